"""S_val made like S_train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcdc.condensers.validation._base import Made, Validation, Work, register_validation

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@register_validation
@dataclass(frozen=True)
class Same(Validation):
    """Applies the method that makes S_train to the validation examples."""

    name = "same"
    learned = False
    reduces = True

    def make(self, plan: Plan, work: Work) -> Made:
        *_, made = plan.reducer.iterates(
            work.task, "val", plan.val_size, plan.seed,
            progress=work.progress, checkpoint=work.checkpoint.child("val"),
        )  # fmt: skip
        return Made(made.images, {"val_learned": dict(made.told)} if made.told else {})
