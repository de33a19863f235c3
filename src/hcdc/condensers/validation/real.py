"""Real validation examples in place of a learned S_val."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcdc.condensers.validation._base import Made, Validation, Work, register_validation
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


MOST = 2000
"""Real validation examples in the file, at most, where nothing is said."""


@register_validation
@dataclass(frozen=True)
class Real(Validation):
    """Candidates are ranked on real validation examples.

    Up to 2,000 of them are stored in the file, so that it stands alone; a validation node needs its whole
    graph, so for graphs none are, and the original validation set is used.
    """

    name = "real"
    learned = False

    def val_size(self, task: Task, train_size: int) -> int:
        return min(MOST, len(task.val))

    def check_size(self, task: Task, size: int) -> None:
        return

    def metric(self, task: Task) -> str:
        return task.real_metric

    def sized(self, plan: Plan) -> str:
        if not plan.task.stands_alone:
            return "the real validation set"
        return f"{plan.val_size:,} real validation examples"

    def make(self, plan: Plan, work: Work) -> Made:
        return Made(work.task.pool(plan.val_size, plan.seed) if work.task.stands_alone else None)
