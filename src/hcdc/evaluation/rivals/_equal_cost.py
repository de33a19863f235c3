"""The full data, for the total seconds of condensing and searching."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import Forecast, RivalMethod, register_rival

MOST_SEEDS = 30
"""Most seeds to train; more hardly change the mean."""


@register_rival
class EqualCost(RivalMethod):
    """The average of as many whole seeds as fit into the seconds, then one more for the remaining steps.

    A partly trained seed is weighted by its share of the steps.
    """

    name = "equal-cost"

    def applies(self, context: Context) -> bool:
        """If seconds are known for condensing and, once candidates are trained, for the full data."""
        timed = not context.known or context.full_seconds > 0  # NaN for another device
        return context.truth is None and context.condense_seconds is not None and timed

    def run(self, context: Context) -> Rival:
        assert context.condense_seconds is not None, "applies() requires it"
        full = context.full
        budget = context.condense_seconds + context.proxy_seconds
        fits = budget * full.seeds / context.full_seconds
        seeds = min(math.floor(fits), MOST_SEEDS)
        steps = 0 if seeds == MOST_SEEDS else math.floor(full.steps * (fits - seeds))
        steps = max(steps, 0 if seeds else 1)
        parts = [(dataclasses.replace(full, seeds=seeds), 0, float(seeds))] if seeds else []
        if steps:
            parts.append((dataclasses.replace(full, steps=steps, seeds=1), 1, steps / full.steps))
        trained = [context.train_on_full(self.name, recipe, seed) for recipe, seed, _ in parts]
        shares = [share for _, _, share in parts]
        mean = np.average([some.scores for some in trained], axis=0, weights=shares)
        spent = sum(some.seconds for some in trained)
        words = f"full data, the seconds of condensing and searching: {_spent(seeds, steps, full.steps)}"
        joined = {
            what: [
                [value for some in each for value in some]
                for each in zip(*(t.repeats[what] for t in trained))
            ]
            for what in trained[0].repeats
        }
        return context.rival(self.name, words, mean.tolist(), spent, repeats=joined)

    def seconds(self, context: Context, forecast: Forecast) -> float:
        if forecast.condense is None:
            return 0.0
        most = MOST_SEEDS * forecast.full.steps * forecast.step * forecast.candidates
        return min(most, forecast.condense + forecast.copy * forecast.candidates)


def _spent(seeds: int, steps: int, whole: int) -> str:
    """What the seconds were spent on, in words."""
    told = [f"{seeds} whole seed{'' if seeds == 1 else 's'}"] if seeds else []
    if steps:
        told.append(f"{steps} of {whole} steps of {'another' if seeds else 'one seed'}")
    return " and ".join(told) + (", which take less" if seeds == MOST_SEEDS else "")
