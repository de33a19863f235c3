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
) -> tuple[float | None, float | None]:
    """Interval of an expected score around one observed score, given differences between repeated scores.

    It ends at the ``bounds`` of possible scores.
    """
    if not differences:
        return (None, None)
    noise = math.sqrt(float(np.mean(np.square(differences))) / 2)
    width = float(stats.t.ppf(0.5 + level / 2, len(differences))) * noise
    return (max(score - width, min(score, bounds[0])), min(score + width, max(score, bounds[1])))


def slope_is_positive(below: Array, above: Array, level: float = 0.99) -> bool:
    """Whether the regression of the ranks of ``above [n]`` on those of ``below [n]`` rises, by a t-test."""
    if len(below) < 4 or np.ptp(below) == 0 or np.ptp(above) == 0:
        return False
    found = stats.linregress(stats.rankdata(below), stats.rankdata(above))
    if found.stderr == 0:
        return bool(found.slope > 0)
    return bool(found.slope / found.stderr > stats.t.ppf(level, len(below) - 2))
