"""Agreement of a stand-in with the truth, and what may be done with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.core.told import counted
from hcdc.core.trusted import Cut, Estimate, Trust
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
    k: float | None = None,
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
        k: Share that recall@k and regret@k keep, of all candidates and of the survivors; ``keep`` by default.
        level: Level of the intervals.
        seed: Draws the groups behind the regret.
    """
    k = keep if k is None else k
    x, index, y = _checked(stand_in, audited, truth, keep=keep, k=k)
    total = len(x) if finite else math.inf
    places = (stats.rankdata(x) - 0.5) / len(x)
    positions = None if uniform else places[index]
    whole = rank_estimate(x[index], y, positions=positions, candidates=total)
    verdict, why = judge(whole, len(index))
    good = np.flatnonzero(places[index] > 1 - keep)
    inner = None if positions is None else (positions[good] - (1 - keep)) / keep
    among = rank_estimate(x[index][good], y[good], positions=inner, candidates=total * keep)
    weights = _weights(positions, len(index))
    loss, _, of = _regret(x[index], y, weights, 0.0, level, seed)
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
        k=k,
        at_k=_cut(positions, x[index], y, k, level, seed),
        survivors_at_k=_cut(inner, x[index][good], y[good], k, level, seed),
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
    sure = f"at least {surely:.2f} with 97.5 % confidence"
    few = "" if probes >= FEWEST else f"; {probes} probes are too few to say trust: {FEWEST} are needed"
    if math.isnan(estimate.rho):
        return "unknown", f"{counted(probes, 'probe')} with equal or too few scores have no rank correlation"
    if surely >= LEVEL and not few:
        return "trust", f"{told}, {sure}"
    if high < USELESS:
        return "no", f"{told}, below {USELESS:g}"
    if low > 0:
        why = sure if surely >= LEVEL else f"above 0, but perhaps below {LEVEL:g}"
        return "keep open", f"{told}, {why}{few}"
    return "unknown", f"{told}, which may be chance{few}"


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _checked(
    stand_in: ArrayLike, audited: ArrayLike, truth: ArrayLike, **shares: float
) -> tuple[Array, NDArray[np.int64], Array]:
    x, y = np.asarray(stand_in, np.float64), np.asarray(truth, np.float64)
    index = np.asarray(audited, np.int64)
    if index.shape != y.shape or index.ndim != 1:
        raise InputError(f"{len(index)} audited candidates need as many full scores, got {len(y)}")
    if len(index) and not (index.min() >= 0 and index.max() < len(x)):
        raise InputError(f"audited: index {index.max()} is not among the {len(x)} candidates")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("scores must be finite; leave out failed candidates or give them the worst score")
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(f"{name} {share:g}: the share of candidates must lie between 0 and 1")
    return x, index, y


def _weights(positions: Array | None, count: int) -> Array:
    """The share of the candidates that each probe stands for."""
    return np.ones(count) / max(count, 1) if positions is None or not count else nearest_weights(positions)


def _cut(positions: Array | None, x: Array, y: Array, k: float, level: float, seed: int) -> Cut:
    """Recall and regret if the best share ``k`` by the stand-in is kept."""
    weights = _weights(positions, len(x))
    regret, kept, of = _regret(x, y, weights, k, level, seed)
    return Cut(recall=_recall(positions, x, y, weights, k, level), regret=regret, kept=kept, of=of)


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


def _regret(
    x: Array, y: Array, weights: Array, k: float, level: float, seed: int
) -> tuple[Estimate, int, int]:
    """Mean truth lost if the stand-in keeps a share ``k`` of ``of`` random candidates: a U-statistic.

    Also how many are kept, and of how many: the share is rounded down, to one at least. The interval is the
    jackknife's on a logarithmic scale, where both the mean and its error count one n-th of the truth's
    standard deviation more: few probes may show no loss at all by luck.
    """
    n = len(x)
    of = min(8, n // 2)
    kept = max(1, int(k * of + 1e-9))
    if of < 2:
        return Estimate(), kept, of
    rng = numpy_stream(seed, "trust", "groups")
    keys = np.log(rng.random((GROUPS, n))) / weights  # a draw without replacement, by weight
    groups = np.argpartition(-keys, of - 1, axis=1)[:, :of]
    inside = y[groups]
    preferred = np.argsort(-x[groups], axis=1, kind="stable")[:, :kept]
    lost = inside.max(1) - np.take_along_axis(inside, preferred, 1).max(1)
    mean = float(lost.mean())
    member = np.zeros((GROUPS, n), bool)
    np.put_along_axis(member, groups, True, 1)
    without = np.array([lost[~m].mean() if not m.all() else mean for m in member.T])
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    spread = float(y.std()) / n
    error = math.hypot(error, spread) / max(mean + spread, 1e-12)
    factor = math.exp(float(stats.t.ppf(0.5 + level / 2, n - 1)) * error)
    low, high = max(0.0, (mean + spread) / factor - spread), (mean + spread) * factor - spread
    return Estimate(value=mean, interval=(low, min(high, float(np.ptp(y)))), probes=n), kept, of
