"""Agreement per dimension: does a hyperparameter act on the stand-in as it acts on the truth?

truth = m(stand-in) + delta. f_d is the main effect of dimension d on the stand-in, from all candidates; g_d
that on delta, from the audited ones; b is the slope of m. Then b f_d + g_d is the main effect on the truth,
and tau_d = corr(f_d, b f_d + g_d) over the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hcdc.core.configs import Config
from hcdc.core.ranks import standard
from hcdc.core.seeds import numpy_stream
from hcdc.core.trusted import DimensionTrust
from hcdc.evaluation.trust._agreement import LEVEL
from hcdc.spaces import Dimension

Array = NDArray[np.float64]

FEWEST = 12
"""Audits without which every dimension is unknown."""
DRAWS = 2000
SPREADS = (0.05, 0.15, 0.3, 0.6)
"""Possible standard deviations of an effect on delta; audits weigh them."""
NOISES = (0.1, 0.2, 0.4, 0.7, 1.0)
"""Possible standard deviations of what no main effect explains."""


def columns(configs: Sequence[Config], dimensions: Sequence[Dimension]) -> dict[str, Array]:
    """Numbers that describe each dimension of the configurations, ``[N]`` or ``[N, choices]``.

    Logarithms where the scale is logarithmic, one column per choice otherwise; NaN where a configuration does
    not have the dimension.
    """
    found: dict[str, Array] = {}
    for d in dimensions:
        values = [config.get(d.name) for config in configs]
        if d.distribution == "choice":
            found[d.name] = np.array([[float(v == choice) for choice in d.choices] for v in values])
        else:
            numbers = np.array([np.nan if v is None else float(v) for v in values])
            found[d.name] = np.log(numbers) if d.distribution == "log-uniform" else numbers
    return found


def dimension_agreement(
    described: Mapping[str, ArrayLike],
    stand_in: ArrayLike,
    audited: ArrayLike,
    truth: ArrayLike,
    *,
    groups: Mapping[str, ArrayLike] | None = None,
    level: float = 0.9,
    seed: int = 0,
) -> list[DimensionTrust]:
    """tau_d of every dimension and declared group, with interval, importance and verdict.

    Scores are replaced by normal scores of their ranks. Effects are ridge regressions; intervals come from
    posterior draws of b and g. "choose here" needs the interval at or above `LEVEL`, "keep open" below it.
    With fewer than `FEWEST` audits, or where all scores are equal, every dimension is unknown.

    Args:
        described: Per dimension, numbers of all candidates ``[N]`` or ``[N, c]``; see `columns`.
        stand_in: Scores of all candidates ``[N]``.
        audited: Indices of those whose truth is known ``[n]``; 60 or more are needed to tell much.
        truth: Their full scores ``[n]``.
        groups: Combinations that may matter more than their parts, e.g. ``{"step": log lr - log batch -
            log(1 - momentum)}``, ``[N]`` each.
        level: Level of the intervals.
        seed: Draws the posterior.
    """
    given = {**described, **(groups or {})}
    parts = {name: _basis(np.asarray(values, np.float64)) for name, values in given.items()}
    ends = np.cumsum([part.shape[1] for part in parts.values()])
    slices = [slice(end - part.shape[1], end) for end, part in zip(ends, parts.values())]
    design = np.concatenate(list(parts.values()), 1)
    index = np.asarray(audited, np.int64)
    x = _normal_scores(np.asarray(stand_in, np.float64))
    y = _normal_scores(np.asarray(truth, np.float64))
    varied = min(len(np.unique(x)), len(np.unique(y))) > 1
    on_stand_in = _ridge(design, x)
    slope, on_delta = _posterior(x[index], design[index], y, numpy_stream(seed, "trust", "dimensions"))
    found = []
    for name, part in zip(parts, slices):
        basis = design[:, part]
        covariance = basis.T @ basis / len(basis)
        f = on_stand_in[part]
        h = slope[:, None] * f + on_delta[:, part]
        spread = np.einsum("ci,ij,cj->c", h, covariance, h)
        own = float(f @ covariance @ f)
        tau = np.clip(h @ covariance @ f / np.sqrt(np.maximum(spread * own, 1e-18)), -1, 1)
        low, middle, high = np.quantile(tau, [(1 - level) / 2, 0.5, (1 + level) / 2])
        verdict = "choose here" if low >= LEVEL else "keep open" if high < LEVEL else "unknown"
        if not varied:
            low, middle, high, verdict = -1.0, 0.0, 1.0, "unknown"
        verdict = verdict if len(index) >= FEWEST else "unknown"
        found.append(
            DimensionTrust(
                name=name,
                tau=float(middle),
                interval=(float(low), float(high)),
                importance=min(1.0, float(np.median(spread))),
                verdict=verdict,
            )
        )
    return found


def _basis(values: Array) -> Array:
    """Columns of a main effect ``[N, c]``: a number and its square, or the choices; standardised."""
    if values.ndim == 1:
        line = np.nan_to_num(standard(np.where(np.isfinite(values), values, np.nanmean(values))))
        values = np.stack([line, line**2], 1)
    return np.stack([standard(column) for column in values.T], 1)


def _normal_scores(scores: Array) -> Array:
    found: Array = stats.norm.ppf((stats.rankdata(scores) - 0.5) / len(scores))
    return standard(found)


def _ridge(design: Array, target: Array) -> Array:
    """Coefficients with a penalty worth one candidate per column."""
    gram = design.T @ design + np.eye(design.shape[1])
    return np.asarray(np.linalg.solve(gram, design.T @ target), np.float64)


def _posterior(x: Array, design: Array, y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draws of the slope b ``[draws]`` and of the effects on delta ``[draws, p]``.

    A linear model with a wide normal prior of b. The scale of the effects and the noise come from a grid,
    weighted by their evidence.
    """
    full = np.concatenate([x[:, None], np.ones((len(x), 1)), design], 1)
    evidence, fits = [], []
    for spread in SPREADS:
        scale = np.concatenate([[1.0, 1.0], np.full(design.shape[1], spread)])
        for noise in NOISES:
            a = full * scale / noise
            precision = a.T @ a + np.eye(a.shape[1])
            root = np.linalg.cholesky(precision)
            half = np.linalg.solve(root, a.T @ y / noise)
            evidence.append(
                0.5 * (half @ half - y @ y / noise**2) - np.log(np.diag(root)).sum() - len(y) * np.log(noise)
            )
            inverse = np.linalg.inv(root)
            fits.append((scale * (inverse.T @ half), scale[:, None] * inverse.T))
    weights = np.exp(np.array(evidence) - max(evidence))
    counts = rng.multinomial(DRAWS, weights / weights.sum())
    draws = [
        mean + rng.standard_normal((count, len(mean))) @ root.T
        for count, (mean, root) in zip(counts, fits)
        if count
    ]
    together = np.concatenate(draws)
    return together[:, 0], together[:, 2:]
