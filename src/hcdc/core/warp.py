"""A monotone map from scores to normal scores and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


class Warp:
    """Map scores to normal quantiles of their ranks, linearly extrapolated beyond the observed ones.

    Scores of trained networks have heavy tails, and differences at the top are small. Normal scores give
    every part of the ranking the same resolution.

    Args:
        scores: Observed scores ``[n]``, finite.
        mean, deviation: Of the normal scores.
    """

    def __init__(self, scores: Array, mean: float = 0.0, deviation: float = 1.0):
        values = np.unique(scores)
        ranks = stats.rankdata(scores, method="average")
        normal = stats.norm.ppf((ranks - 0.375) / (len(scores) + 0.25))
        self._x = values
        self._z = mean + deviation * np.array([normal[scores == value].mean() for value in values])
        spread = float(scores.std()) or abs(float(scores.mean())) * 1e-3 or 1e-9
        tail = 0.25 if len(values) >= 12 else 0.5
        self._low, self._high = self._slope(0.0, tail, spread), self._slope(1 - tail, 1.0, spread)

    def _slope(self, start: float, end: float, spread: float) -> float:
        """Normal scores per unit of score between two quantiles; one per ``spread`` if undefined."""
        n = len(self._x)
        a, b = round(start * (n - 1)), round(end * (n - 1))
        width = self._x[b] - self._x[a]
        return float((self._z[b] - self._z[a]) / width) if width > 0 else 1.0 / spread

    def __call__(self, scores: Array) -> Array:
        """Normal scores of ``scores``."""
        x, z = self._x, self._z
        found: Array = np.interp(scores, x, z)
        found = np.where(scores < x[0], z[0] + (scores - x[0]) * self._low, found)
        found = np.where(scores > x[-1], z[-1] + (scores - x[-1]) * self._high, found)
        return found

    def inverse(self, normal: Array) -> Array:
        """Scores of normal scores."""
        x, z = self._x, self._z
        found: Array = np.interp(normal, z, x)
        found = np.where(normal < z[0], x[0] + (normal - z[0]) / self._low, found)
        found = np.where(normal > z[-1], x[-1] + (normal - z[-1]) / self._high, found)
        return found
