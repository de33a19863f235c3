"""Twelve epochs on the full data, from a table."""

from __future__ import annotations

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival


@register_rival
class TwelveEpochs(RivalMethod):
    """The table's results after 12 of 200 epochs."""

    name = "12-epochs"

    def applies(self, context: Context) -> bool:
        return context.truth is not None and 12 in context.truth.fidelities

    def run(self, context: Context) -> Rival:
        assert context.truth is not None, "applies() requires it"
        scores = [context.truth.score(config, "val", 12) for config in context.configs]
        seconds = sum(map(context.truth.seconds, context.configs)) * context.truth.fidelities[12]
        return context.rival(self.name, "full data, 12 of 200 epochs, from the table", scores, seconds)
