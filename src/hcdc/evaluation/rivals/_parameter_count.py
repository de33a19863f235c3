"""The number of parameters, which is free."""

from __future__ import annotations

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival


@register_rival
class ParameterCount(RivalMethod):
    """Ranks larger networks higher."""

    name = "parameter-count"

    def applies(self, context: Context) -> bool:
        return context.task.parameter_count(context.space, context.configs[0]) is not None

    def run(self, context: Context) -> Rival:
        counts = [context.task.parameter_count(context.space, config) for config in context.configs]
        sizes = [float(count or 0) for count in counts]
        return context.rival(self.name, "number of parameters, no training", sizes, 0.0)
