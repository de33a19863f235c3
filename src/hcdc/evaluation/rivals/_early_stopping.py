"""The full data, stopped after as many example visits as a trial on the copy."""

from __future__ import annotations

import dataclasses

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import Forecast, RivalMethod, register_rival


@register_rival
class EarlyStopping(RivalMethod):
    """One seed on the full data, stopped early."""

    name = "early-stopping"

    def applies(self, context: Context) -> bool:
        """If it is shorter than the whole training; otherwise it is `OneSeedFull`."""
        return context.truth is None and context.short_steps < context.full.steps

    def run(self, context: Context) -> Rival:
        full, steps = context.full, context.short_steps
        words = f"full data, one seed, {steps} of {full.steps} steps: as many example visits as on the copy"
        return context.full_rival(self.name, words, dataclasses.replace(full, steps=steps, seeds=1))

    def seconds(self, context: Context, forecast: Forecast) -> float:
        return forecast.candidates * context.short_steps * forecast.step
