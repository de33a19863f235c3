"""Agreement of a stand-in with the truth, and what may be done with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.core.told import counted
from hcdc.core.trusted import Estimate, Trust
from hcdc.evaluation.trust._intervals import (
    Array,
    RankEstimate,
    nearest_weights,
    rank_estimate,
    share_interval,
    weighted_ranks,
)

LEVEL = 0.7
"""Rank correlation from which a stand-in may choose; where "trust" is said, the truth is at least this."""
FEWEST = 16
"""Probes without which nothing is trusted: of 12, too many agree by luck on a stand-in just below `LEVEL`."""
USELESS = 0.3
"""Rank correlation below which a stand-in is not worth its price."""
GROUPS = 2000
"""Random groups behind the estimate of the regret."""


def agreement(
    stand_in: ArrayLike,
    audited: ArrayLike,
    truth: ArrayLike,
    *,
    uniform: bool = True,
    finite: bool = False,
    keep: float = 0.5,
    level: float = 0.9,
    seed: int = 0,
) -> Trust:
    """How far the ranking by ``stand_in`` agrees with the truth, from the audited candidates.

    Args:
        stand_in: Scores of all candidates ``[N]``, finite, higher is better.
        audited: Indices of the candidates whose truth is known ``[n]``.
        truth: Their full scores ``[n]``, finite, higher is better.
        uniform: Whether they were drawn uniformly. If the stand-in's score decided, pass False: each audited
            candidate then counts for those nearest to it in the ranking.
        finite: Whether there are no candidates besides these N.
        keep: Share of candidates that survive a cut by the stand-in.
        level: Level of the intervals.
        seed: Draws the groups behind the regret.
    """
    x, index, y = _checked(stand_in, audited, truth, keep)
    total = len(x) if finite else math.inf
    places = (stats.rankdata(x) - 0.5) / len(x)
    positions = None if uniform else places[index]
    whole = rank_estimate(x[index], y, positions=positions, candidates=total)
    verdict, why = judge(whole, len(index))
    good = np.flatnonzero(places[index] > 1 - keep)
    inner = None if positions is None else (positions[good] - (1 - keep)) / keep
    among = rank_estimate(x[index][good], y[good], positions=inner, candidates=total * keep)
    weights = np.ones(len(index)) / max(len(index), 1) if positions is None else nearest_weights(positions)
    loss, of = _regret(x[index], y, weights, level, seed)
    return Trust(
        spearman=_defined(whole.rho),
        interval=whole.interval(level),
        verdict=verdict,
        why=why,
        probes=len(index),
        candidates=len(x),
        uniform=uniform,
        level=level,
        survivors=Estimate(value=_defined(among.rho), interval=among.interval(level), probes=len(good)),
        keep=keep,
        recall=_recall(positions, x[index], y, weights, keep, level),
        regret=loss,
        of=of,
    )


def judge(estimate: RankEstimate, probes: int) -> tuple[str, str]:
    """The verdict on a stand-in and its reason.

    "trust" needs `FEWEST` probes and a 95 % interval at or above `LEVEL`, by its own error and by that of a
    normal copula, so a stand-in below it should be trusted in at most 2.5 % of cases. "no" needs a 90 %
    interval below `USELESS`. "keep open" needs one above 0: the stand-in may discard candidates, but not
    choose among the rest.
    """
    low, high = estimate.interval(0.9)
    surely = estimate.surely(0.95)
    told = f"from {probes} probes the rank correlation is {estimate.rho:.2f} ({low:.2f} to {high:.2f})"
    if math.isnan(estimate.rho):
        return "unknown", f"{counted(probes, 'probe')} with equal or too few scores have no rank correlation"
    if surely >= LEVEL and probes >= FEWEST:
        return "trust", f"{told}, at least {surely:.2f} with 97.5 % confidence"
    if high < USELESS:
        return "no", f"{told}, below {USELESS:g}"
    if low > 0:
        few = f"surely {LEVEL:g} or more, but fewer than {FEWEST} probes are not trusted"
        return "keep open", f"{told}: {few if surely >= LEVEL else f'above 0, but perhaps below {LEVEL:g}'}"
    return "unknown", f"{told}, which may be chance"


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _checked(
    stand_in: ArrayLike, audited: ArrayLike, truth: ArrayLike, keep: float
) -> tuple[Array, NDArray[np.int64], Array]:
    x, y = np.asarray(stand_in, np.float64), np.asarray(truth, np.float64)
    index = np.asarray(audited, np.int64)
    if index.shape != y.shape or index.ndim != 1:
        raise InputError(f"{len(index)} audited candidates need as many full scores, got {len(y)}")
    if len(index) and not (index.min() >= 0 and index.max() < len(x)):
        raise InputError(f"audited: index {index.max()} is not among the {len(x)} candidates")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("scores must be finite; leave out failed candidates or give them the worst score")
    if not 0 < keep < 1:
        raise InputError(f"keep {keep:g}: the share of survivors must lie between 0 and 1")
    return x, index, y


def _recall(
    positions: Array | None, x: Array, y: Array, weights: Array, keep: float, level: float
) -> Estimate:
    """Share of the truly best candidates that survive."""
    best = weighted_ranks(y, weights) > 1 - keep
    if not best.any():
        return Estimate()
    places = weighted_ranks(x, weights) if positions is None else positions
    w = weights[best] / weights[best].sum()
    share, count = float(w[places[best] > 1 - keep].sum()), 1 / float((w**2).sum())
    return Estimate(value=share, interval=share_interval(share * count, count, level), probes=int(best.sum()))


def _regret(x: Array, y: Array, weights: Array, level: float, seed: int) -> tuple[Estimate, int]:
    """Mean truth lost if the stand-in picks one of ``of`` random candidates: a U-statistic.

    The interval is the jackknife's on a logarithmic scale, where both the mean and its error count one n-th
    of the truth's standard deviation more: few probes may show no loss at all by luck.
    """
    n = len(x)
    of = min(8, n // 2)
    if of < 2:
        return Estimate(), of
    rng = numpy_stream(seed, "trust", "groups")
    keys = np.log(rng.random((GROUPS, n))) / weights  # a draw without replacement, by weight
    groups = np.argpartition(-keys, of - 1, axis=1)[:, :of]
    inside = y[groups]
    lost = inside.max(1) - inside[np.arange(GROUPS), x[groups].argmax(1)]
    mean = float(lost.mean())
    member = np.zeros((GROUPS, n), bool)
    np.put_along_axis(member, groups, True, 1)
    without = np.array([lost[~m].mean() if not m.all() else mean for m in member.T])
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    spread = float(y.std()) / n
    error = math.hypot(error, spread) / max(mean + spread, 1e-12)
    factor = math.exp(float(stats.t.ppf(0.5 + level / 2, n - 1)) * error)
    low, high = max(0.0, (mean + spread) / factor - spread), (mean + spread) * factor - spread
    return Estimate(value=mean, interval=(low, min(high, float(np.ptp(y)))), probes=n), of
