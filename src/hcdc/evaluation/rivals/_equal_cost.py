"""The full data for the seconds that condensing and searching took together."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import Forecast, RivalMethod, register_rival

MOST_SEEDS = 30
"""More seeds are not trained: their mean changes no more."""


@register_rival
class EqualCost(RivalMethod):
    """As many whole seeds on the full data as fit into the seconds, averaged, then the remaining steps.

    A seed that is trained in part counts by its share of the steps.
    """

    name = "equal-cost"

    def applies(self, context: Context) -> bool:
        """Where the seconds of condensing and, once candidates are trained, of the full data are known."""
        timed = not context.known or context.full_seconds > 0  # those of another device are NaN
        return context.truth is None and context.condense_seconds is not None and timed

    def run(self, context: Context) -> Rival:
        assert context.condense_seconds is not None, "this rival applies where the seconds are known"
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
    """What the seconds are spent on."""
    told = [f"{seeds} whole seed{'' if seeds == 1 else 's'}"] if seeds else []
    if steps:
        told.append(f"{steps} of {whole} steps of {'another' if seeds else 'one seed'}")
    return " and ".join(told) + (", which take less" if seeds == MOST_SEEDS else "")
