"""The whole training on the full data, with one seed."""

from __future__ import annotations

import dataclasses

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import Forecast, RivalMethod, register_rival


@register_rival
class OneSeedFull(RivalMethod):
    """One seed of the full recipe: the simplest way to spend less on the full data."""

    name = "one-seed-full"

    def applies(self, context: Context) -> bool:
        """If the truth has more seeds, or a trial on the copy visits as many examples as this."""
        several = context.full.seeds > 1 or context.short_steps >= context.full.steps
        return context.truth is None and several

    def run(self, context: Context) -> Rival:
        words = f"full data, one seed, all {context.full.steps} steps"
        return context.full_rival(self.name, words, dataclasses.replace(context.full, seeds=1))

    def seconds(self, context: Context, forecast: Forecast) -> float:
        return forecast.candidates * forecast.full.steps * forecast.step
