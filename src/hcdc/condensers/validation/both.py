"""S_val from aligned hypergradients together with full-data results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers.validation._base import Made, Validation, Work, register_validation
from hcdc.condensers.validation._trained import probing_cost, train_probes
from hcdc.condensers.validation.aligned import Aligning
from hcdc.condensers.validation.probes import Probes
from hcdc.core.settings import setting
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@dataclass(frozen=True)
class Anchored(Aligning):
    """Aligns hypergradients, with the values of the same full trainings as anchors.

    This is ``both`` for tasks whose full trainings for the original hypergradients give such values.
    """

    name = "both"


@register_validation
@dataclass(frozen=True)
class Both(Probes, Aligning):
    """Aligns hypergradients first, then learns the examples from probes.

    For other tasks the name means `Anchored`.
    """

    name = "both"
    fixed = frozenset({"anchors", "ridge"})

    anchors: float = setting(0.0, least=0, most=0)

    @classmethod
    def for_task(cls, task: Task) -> type[Validation]:
        return Anchored if task.anchored else cls

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        return [*Aligning.cost(self, plan, task, device), *probing_cost(plan, self, task, device)]

    def make(self, plan: Plan, work: Work) -> Made:
        found = self.align(plan, work)
        probed = train_probes(plan, self, work)
        s_val, history = self.learn(plan, work, probed, found.val)
        record = probed.record(found.history + history, found.full_trainings)
        return Made(s_val, probed.file(found.candidates), record)
