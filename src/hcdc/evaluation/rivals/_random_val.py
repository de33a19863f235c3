"""As many random validation examples as the copy has."""

from __future__ import annotations

from typing import Any

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival


@register_rival
class RandomVal(RivalMethod):
    """The same S_train with random validation examples, by accuracy (by loss without classes)."""

    name = "random-val"

    def metric(self, context: Context) -> str:
        return context.metric

    def applies(self, context: Context) -> bool:
        """If examples can be drawn, and the copy does not already use such a set and metric."""
        drawn = context.small.meta["val_method"] == "random"
        itself = drawn and self.metric(context) == context.calibrated.metric
        return context.task.most("val") > 0 and not itself

    def sets(self, context: Context) -> dict[str, Any]:
        return {"random": context.task.sample("val", context.val_size, int(context.small.meta["seed"]))}

    def run(self, context: Context) -> Rival:
        size = context.val_size
        words = f"{size} random validation examples"
        return context.same_train(self.name, "random", self.metric(context), words, val_size=size)


@register_rival
class RandomValLoss(RandomVal):
    """The same, by loss."""

    name = "random-val-loss"

    def metric(self, context: Context) -> str:
        return "loss"

    def applies(self, context: Context) -> bool:
        return context.metric != "loss" and super().applies(context)
