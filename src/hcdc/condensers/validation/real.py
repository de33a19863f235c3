"""The real validation set in place of S_val."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcdc.condensers.validation._base import Made, Validation, Work, register_validation
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@register_validation
@dataclass(frozen=True)
class Real(Validation):
    """There is no S_val: candidates are ranked on the whole real validation set."""

    name = "real"
    learned = False

    def check_size(self, task: Task, size: int) -> None:
        return

    def sized(self, plan: Plan) -> str:
        return "the real validation set"

    def make(self, plan: Plan, work: Work) -> Made:
        return Made(None)
