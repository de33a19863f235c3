"""A regression on the full trainings done for condensing, without a copy."""

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
"""Fewest probes for a regression."""


@register_rival
class RidgeProbes(RivalMethod):
    """Kernel ridge regression from a candidate's features to the ranks of the probes' results.

    Ranks, because a few very low scores would dominate a regression on scores.
    """

    name = "ridge-probes"

    def applies(self, context: Context) -> bool:
        return len(described(context)) >= FEWEST

    def run(self, context: Context) -> Rival:
        scores, seconds, once = predictions(context)
        words = f"kernel ridge on the {len(described(context))} full trainings done for condensing"
        return context.rival(self.name, f"{words}, no copy at all", scores.tolist(), seconds, once)


def described(context: Context) -> list[list[float]]:
    """Features of each probe: lambda at a trajectory's point, or a candidate's features."""
    probes = context.small.meta.get("probes") or {}
    found: list[list[float]] = probes.get("lam") or [
        context.space.features(config) for config in probes.get("configs") or []
    ]
    return found


Predictions = tuple[NDArray[np.float64], float, float]
"""Predicted ranks ``[n]``, seconds for predicting them, and seconds for the probes."""


def predictions(context: Context) -> Predictions:
    """The regression's predictions for the candidates, computed once."""
    if "ridge" not in context.shared:
        context.shared["ridge"] = _predictions(context)
    found: Predictions = context.shared["ridge"]
    return found


def _predictions(context: Context) -> Predictions:
    probes, known = context.small.meta["probes"], described(context)
    own = context.space.encode if "lam" in probes else context.space.features
    once = probe_seconds(context)
    fresh = np.asarray([list(own(config)) for config in context.configs], np.float64)
    begun = time.perf_counter()
    found = kernel_ridge(np.asarray(known, np.float64), stats.rankdata(probes["score"]), fresh)
    return found, time.perf_counter() - begun, once


def probe_seconds(context: Context) -> float:
    """Seconds of the full trainings done for condensing."""
    relaxed = "lam" in context.small.meta["probes"]
    each = context.full.seeds if relaxed else 1  # a relaxed training has one seed
    once = len(described(context)) * context.full_seconds / (len(context.configs) * each)
    if "truth" in context.small.meta and not relaxed:  # a table knows the seconds of these probes
        return float(context.small.record.get("probe_seconds", once))
    return once
