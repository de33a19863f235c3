"""The whole real validation set."""

from __future__ import annotations

from typing import Any

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival


@register_rival
class RealVal(RivalMethod):
    """The same S_train with all of T_val, by accuracy (by loss without classes)."""

    name = "real-val"

    def metric(self, context: Context) -> str:
        return context.metric

    def sets(self, context: Context) -> dict[str, Any]:
        return {"real": context.task.val}

    def run(self, context: Context) -> Rival:
        return context.same_train(self.name, "real", self.metric(context), "the whole real validation set")


@register_rival
class RealValLoss(RealVal):
    """The same, by loss."""

    name = "real-val-loss"

    def metric(self, context: Context) -> str:
        return "loss"

    def applies(self, context: Context) -> bool:
        return context.metric != "loss"
