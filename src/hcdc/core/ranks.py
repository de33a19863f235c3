"""Rank agreement between two lists of scores, with intervals.

Ties get average ranks; constant scores have no rank correlation (NaN).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

Array = NDArray[np.float64]


def _pair(truth: ArrayLike, proxy: ArrayLike) -> tuple[Array, Array]:
    a, b = np.asarray(truth, np.float64), np.asarray(proxy, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"two lists of equal length are needed, got shapes {a.shape} and {b.shape}")
    return a, b


def _undefined(a: Array, b: Array) -> bool:
    finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
    return len(a) < 2 or not finite or bool((a == a[0]).all()) or bool((b == b[0]).all())


def standard(values: Array) -> Array:
    """Values with mean 0 and variance 1, or all 0 if they are equal."""
    found: Array = (values - values.mean()) / max(float(values.std()), 1e-12)
    return found


def standard_ranks(values: ArrayLike) -> Array:
    """Average ranks with mean 0 and variance 1, or all 0 if the values are equal."""
    return standard(stats.rankdata(np.asarray(values, np.float64)))


def standard_tensor_ranks(values: Tensor) -> Tensor:
    """`standard_ranks` of ``values [B]`` on their device and in their type, without synchronising."""
    below = (values[:, None] > values[None]).to(values.dtype).sum(1)
    equal = (values[:, None] == values[None]).to(values.dtype).sum(1)
    ranks = below + (equal - 1) / 2
    centred = ranks - ranks.mean()
    return centred / centred.square().mean().sqrt().clamp_min(1e-12)


def spearman(truth: ArrayLike, proxy: ArrayLike) -> float:
    """Spearman's rank correlation; NaN for constant or non-finite scores, or fewer than two."""
    a, b = _pair(truth, proxy)
    if _undefined(a, b):
        return math.nan
    ra, rb = stats.rankdata(a), stats.rankdata(b)
    return float(np.corrcoef(ra, rb)[0, 1])


def kendall(truth: ArrayLike, proxy: ArrayLike) -> float:
    """Kendall's tau-b; NaN if undefined."""
    a, b = _pair(truth, proxy)
    return math.nan if _undefined(a, b) else float(stats.kendalltau(a, b).statistic)


def calibration(truth: ArrayLike, proxy: ArrayLike) -> float:
    """Share of pairs that both lists order alike: how far eq. (HC), the paper's calibration, holds.

    A pair counts if (t_i - t_j) (p_i - p_j) > 0. Pairs with equal truth are left out, since nothing could
    order them; pairs that only the proxy ties are not calibrated. Without ties this is (1 + Kendall's
    tau) / 2. NaN if the truth has no order or a score is not finite; constant proxy scores give 0.
    """
    a, b = _pair(truth, proxy)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    pairs = alike = 0
    for i in range(len(a)):  # row by row: all pairs at once would not fit for many thousand candidates
        ordered = np.sign(a[i] - a[i + 1 :])
        pairs += int((ordered != 0).sum())
        alike += int((ordered * np.sign(b[i] - b[i + 1 :]) > 0).sum())
    return alike / pairs if pairs else math.nan


def top_k_overlap(truth: ArrayLike, proxy: ArrayLike, k: int) -> float:
    """Share of the ``k`` best by truth (higher is better) that are also among the ``k`` best by proxy.

    NaN for ``k`` or fewer candidates, where any proxy would score 1.
    """
    a, b = _pair(truth, proxy)
    if not 1 <= k < len(a):
        return math.nan
    best_a, best_b = (np.argsort(-v, kind="stable")[:k] for v in (a, b))
    return len(set(best_a) & set(best_b)) / k


def upper_half_spearman(truth: ArrayLike, proxy: ArrayLike) -> float:
    """Spearman's correlation within the better half by truth, which matters most to a search."""
    a, b = _pair(truth, proxy)
    keep = np.argsort(-a, kind="stable")[: (len(a) + 1) // 2]
    return spearman(a[keep], b[keep])


def regret(truth: ArrayLike, proxy: ArrayLike) -> float:
    """Best truth minus the truth of the proxy's pick (in the unit of ``truth``).

    Ties go to the first candidate. A non-finite proxy score is picked only if none is finite.
    """
    a, b = _pair(truth, proxy)
    return float(a.max() - a[int(np.argmax(np.where(np.isfinite(b), b, -np.inf)))])


@dataclass(frozen=True)
class Interval:
    """An interval and its level."""

    low: float
    high: float
    level: float

    def as_list(self) -> list[float]:
        return [self.low, self.high]


def percentiles(value: float, draws: Array, level: float) -> tuple[float, float]:
    """The middle ``level`` of bootstrap ``draws`` of a statistic, widened to contain its ``value``.

    Few candidates or many ties can leave the value outside. Undefined draws are dropped; NaN if fewer than
    three in five remain, or if the value itself is undefined.
    """
    kept = draws[np.isfinite(draws)]
    if not math.isfinite(value) or len(kept) < max(1.0, 0.6 * len(draws)):
        return math.nan, math.nan
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return min(float(low), value), max(float(high), value)


def mean_interval(values: ArrayLike, level: float = 0.90) -> tuple[float, Interval]:
    """Mean and Student-t interval over independent repeats (seeds)."""
    v = np.asarray(values, np.float64)
    mean = float(v.mean())
    if len(v) < 2:
        return mean, Interval(math.nan, math.nan, level)
    half = float(stats.t.ppf(0.5 + level / 2, len(v) - 1) * v.std(ddof=1) / math.sqrt(len(v)))
    return mean, Interval(mean - half, mean + half, level)


def share_error(share: float, count: float) -> float:
    """Standard error of a share among ``count`` examples.

    One right and one wrong example are added, so that it is not 0 where all are right.
    """
    near = (share * count + 1) / (count + 2)
    return math.sqrt(near * (1 - near) / count)
