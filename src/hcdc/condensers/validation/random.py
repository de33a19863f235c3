"""S_val from random validation examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcdc.condensers.validation._base import Made, Validation, Work, register_validation

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@register_validation
@dataclass(frozen=True)
class Random(Validation):
    """Random real validation examples."""

    name = "random"
    learned = False

    def make(self, plan: Plan, work: Work) -> Made:
        return Made(work.task.sample("val", plan.val_size, plan.seed))
