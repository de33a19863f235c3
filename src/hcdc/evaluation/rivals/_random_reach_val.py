"""Random validation nodes joined by reach: S_val for graphs before learning."""

from __future__ import annotations

from typing import Any

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival


@register_rival
class RandomReachVal(RivalMethod):
    """The same S_train with the set ``"reach"`` that the task offers."""

    name = "random-reach-val-loss"

    def applies(self, context: Context) -> bool:
        return "reach" in context.offered

    def sets(self, context: Context) -> dict[str, Any]:
        return {"reach": context.offered["reach"][0]}

    def run(self, context: Context) -> Rival:
        words = context.offered["reach"][1]
        return context.same_train(self.name, "reach", "loss", words, val_size=context.val_size)
