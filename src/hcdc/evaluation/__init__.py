"""How well a condensed data set ranks candidates, compared with the full data and with rivals."""

from hcdc.core.results import Evaluation, Rival
from hcdc.evaluation._agreement import agreement, proxy_scores
from hcdc.evaluation._context import Context
from hcdc.evaluation._cost import cost
from hcdc.evaluation._evaluate import evaluate
from hcdc.evaluation._judges import checked_judges, judges
from hcdc.evaluation._score import score
from hcdc.evaluation._tasks import reopen_task, task_of
from hcdc.evaluation.rivals import RivalMethod, register_rival, rival_names

__all__ = [
    "Context",
    "Evaluation",
    "Rival",
    "RivalMethod",
    "agreement",
    "checked_judges",
    "cost",
    "evaluate",
    "judges",
    "proxy_scores",
    "register_rival",
    "reopen_task",
    "rival_names",
    "score",
    "task_of",
]
