"""Intervals from few observations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


def mean_interval(
    score: float,
    differences: Sequence[float],
    bounds: tuple[float, float] = (-math.inf, math.inf),
    level: float = 0.9,
    error: float | None = None,
) -> tuple[float | None, float | None]:
    """Interval of an expected score around one observed score.

    Args:
        score: The observed score.
        differences: Differences between scores of repeated trainings.
        bounds: The least and the greatest possible score; the interval ends there.
        level: Its level.
        error: Standard error of the score over the validation rows, if it is known.

    Returns:
        Both ends; None where nothing is known, or where repetitions agree and the error is not known.
    """
    noise = float(np.mean(np.square(differences))) / 2 if differences else math.nan
    total = noise + (error or 0.0) ** 2
    if not total > 0:
        return (None, None)
    freedom = len(differences) * (total / noise) ** 2 if noise else math.inf  # Welch and Satterthwaite
    width = float(stats.t.ppf(0.5 + level / 2, freedom)) * math.sqrt(total)
    return (max(score - width, min(score, bounds[0])), min(score + width, max(score, bounds[1])))


def slope_is_positive(below: Array, above: Array, level: float = 0.99, given: Array | None = None) -> bool:
    """Whether the regression of the ranks of ``above [n]`` on those of ``below [n]`` rises, by a t-test.

    With ``given [n, k]``, their ranks are in the regression too: does ``below`` add to what they tell?
    """
    known = np.empty((len(below), 0)) if given is None else given[:, np.ptp(given, 0) > 0]
    free = len(below) - known.shape[1] - 2
    if free < 2 or np.ptp(below) == 0 or np.ptp(above) == 0:
        return False
    columns = [stats.rankdata(column) for column in (below, *known.T)]
    inputs, ranks = np.stack([*columns, np.ones(len(below))], 1), stats.rankdata(above)
    slopes, _, rank, _ = np.linalg.lstsq(inputs, ranks, rcond=None)
    if rank < inputs.shape[1]:
        return False
    variance = float(((ranks - inputs @ slopes) ** 2).sum()) / free
    error = math.sqrt(max(variance, 0.0) * float(np.linalg.inv(inputs.T @ inputs)[0, 0]))
    return bool(slopes[0] > stats.t.ppf(level, free) * error)
