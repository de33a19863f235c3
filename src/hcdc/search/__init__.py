"""Search under a budget: a ladder of stand-ins for the full training, each measured before it is believed.

The room can be called: ``hcdc.search(objective, full, budget="30m")`` is ``hcdc.search.search(...)``.
"""

import inspect
import sys
from types import ModuleType

from hcdc.core.found import Found, RungReport, SearchCost
from hcdc.core.planned import RungPlan, SearchPlan
from hcdc.datasets import FullData, TrialData
from hcdc.search import searchers
from hcdc.search._copy_alone import COPY_TRIALS
from hcdc.search._dimensions import described, from_dimension, to_dimension
from hcdc.search._distributions import (
    CategoricalDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
    distribution,
)
from hcdc.search._executor import Executor
from hcdc.search._ladder import Ladder
from hcdc.search._objective import ObjectiveProblem
from hcdc.search._optuna import from_optuna, to_optuna
from hcdc.search._optuna_store import OptunaStore
from hcdc.search._plan import plan, planned
from hcdc.search._prepare import USUAL_BUDGET, parse_budget, prepare
from hcdc.search._problem import Outcome, Problem, Rung
from hcdc.search._ray import RayExecutor, ray_cluster, ray_task
from hcdc.search._sampler import Sampler
from hcdc.search._search import check_trials, search
from hcdc.search._settings import LadderSettings
from hcdc.search._store import LineStore, Store, file_name, open_store
from hcdc.search._task_problem import TaskProblem
from hcdc.search._trial import Trial, TrialPruned
from hcdc.search._trust import USUAL_RUNG, check_probes, trust, trust_cost, trust_seconds

__all__ = [
    "COPY_TRIALS",
    "USUAL_BUDGET",
    "USUAL_RUNG",
    "CategoricalDistribution",
    "Distribution",
    "Executor",
    "FloatDistribution",
    "Found",
    "FullData",
    "IntDistribution",
    "Ladder",
    "LadderSettings",
    "LineStore",
    "ObjectiveProblem",
    "OptunaStore",
    "Outcome",
    "Problem",
    "RayExecutor",
    "Rung",
    "RungPlan",
    "RungReport",
    "Sampler",
    "SearchCost",
    "SearchPlan",
    "Store",
    "TaskProblem",
    "Trial",
    "TrialData",
    "TrialPruned",
    "check_probes",
    "check_trials",
    "described",
    "distribution",
    "file_name",
    "from_dimension",
    "from_optuna",
    "open_store",
    "parse_budget",
    "plan",
    "planned",
    "prepare",
    "ray_cluster",
    "ray_task",
    "search",
    "searchers",
    "to_dimension",
    "to_optuna",
    "trust",
    "trust_cost",
    "trust_seconds",
]


class _Room(ModuleType):
    """A module that can be called."""

    __call__ = staticmethod(search)


sys.modules[__name__].__class__ = _Room
__doc__ = f"{inspect.getdoc(search)}\n\n{__doc__}"  # what help(hcdc.search) shows first
