"""A regression on the full trainings that condensing made, without any copy."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hcdc.core.results import Rival
from hcdc.core.ridge import kernel_ridge
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival

FEWEST = 5
"""Probes that a regression needs."""


@register_rival
class RidgeProbes(RivalMethod):
    """Kernel ridge from a candidate's description to the ranks of the probes' results.

    Ranks, because a few probes with very low scores would decide a regression on scores.
    """

    name = "ridge-probes"

    def applies(self, context: Context) -> bool:
        return len(described(context)) >= FEWEST

    def run(self, context: Context) -> Rival:
        scores, seconds, once = predictions(context)
        words = f"kernel ridge on the {len(described(context))} full trainings that condensing made"
        return context.rival(self.name, f"{words}, no copy at all", scores.tolist(), seconds, once)


def described(context: Context) -> list[list[float]]:
    """What the regression knows of each probe: lambda of a trajectory's point, or a candidate's features."""
    probes = context.small.meta.get("probes") or {}
    found: list[list[float]] = probes.get("lam") or [
        context.space.features(config) for config in probes.get("configs") or []
    ]
    return found


Predictions = tuple[NDArray[np.float64], float, float]
"""Predicted ranks ``[n]``, the seconds of predicting them, and the seconds of the probes."""


def predictions(context: Context) -> Predictions:
    """What the regression says of the candidates, computed once."""
    if "ridge" not in context.shared:
        context.shared["ridge"] = _predictions(context)
    found: Predictions = context.shared["ridge"]
    return found


def _predictions(context: Context) -> Predictions:
    probes, known = context.small.meta["probes"], described(context)
    own = context.space.encode if "lam" in probes else context.space.features
    each = context.full.seeds if "lam" in probes else 1  # a point of a trajectory is a training of one seed
    once = len(known) * context.full_seconds / (len(context.configs) * each)
    if "truth" in context.small.meta:  # a table says what these very probes took
        once = context.small.record.get("probe_seconds", once)
    fresh = np.asarray([list(own(config)) for config in context.configs], np.float64)
    begun = time.perf_counter()
    found = kernel_ridge(np.asarray(known, np.float64), stats.rankdata(probes["score"]), fresh)
    return found, time.perf_counter() - begun, once
