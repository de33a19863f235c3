"""Real validation examples instead of a learned S_val."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcdc.condensers.validation._base import Made, Validation, Work, register_validation
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


MOST = 2000
"""Most real validation examples in the file by default."""


@register_validation
@dataclass(frozen=True)
class Real(Validation):
    """Ranks candidates on real validation examples.

    The file stores up to 2,000 of them, so it stands alone. For graphs it stores none, because a validation
    node needs its whole graph; the original validation set is used instead.
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
