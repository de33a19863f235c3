"""What to expect of candidates, given everything known: free figures and trainings of any length.

A Gaussian process per kind of training, from the cheapest to the full one (recursive co-kriging), corrects
results for their noise and carries them to candidates without a result. What cheap figures promise
(`ranks_summed`) is the mean before full trainings: twenty of those know less than it, so the process models
what they add. Weights and scales were chosen on development cells of NAS-Bench-201; see docs/decisions.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hcdc.core.gaussian import Scales, fit_scales, kernel
from hcdc.core.ranks import standard, standard_ranks
from hcdc.core.seeds import numpy_stream
from hcdc.core.threads import one_blas_thread
from hcdc.core.warp import Warp

Array = NDArray[np.float64]
Index = NDArray[np.int64]

BESIDE = {"parameters": 1.0, "loss": 1.0, "no_pool_path": 1.0, "synflow": 0.5, "jacov": 0.5}
"""Weights of figures beside short trainings that explain everything; before any training all weigh 1."""
SHORT = 2.0
"""Weight of short trainings beside these figures."""
BELIEF = 0.9
"""Expected slope of a full result on what is expected before it, both as normal scores."""
SLOPE = 0.8
"""Expected slope of a short training on one shorter still."""
LEVEL = 0.2
"""Deviation of the level of results before the data."""
AMPLITUDE = 0.6
"""Median amplitude, before the data, of a process whose scales are fitted."""
FEW = 50
"""With fewer results, scales are the usual ones; fitted to so few, they ranked worse."""
USUAL = (0.5, 0.3, 0.3)
"""Usual scales: length of a feature over the root of their number, amplitude, deviation of the noise."""


@dataclass(frozen=True)
class Results:
    """Results of some candidates after trainings of one kind.

    Attributes:
        index: Which candidates ``[m]``.
        scores: Their scores ``[m]``, higher is better.
        basis: Positions in ``index`` of the results that inform about other candidates; all by default. The
            others inform about their own candidate only, which keeps a process over many results cheap.
    """

    index: Index
    scores: Array
    basis: Index | None = None


def ranks_summed(figures: Mapping[str, Array], weights: Mapping[str, float] | None = None) -> Array:
    """The weighted sum of the standardised ranks of figures ``[n]`` each, higher is better.

    Args:
        figures: The figures by name.
        weights: Weights by name, figures without one are left out; by default all weigh the same.
    """
    weights = dict.fromkeys(figures, 1.0) if weights is None else weights
    used = [name for name in figures if name in weights]
    found: Array = np.sum([weights[name] * standard_ranks(figures[name]) for name in used], 0)
    return found


def corrected(features: Array, values: Array, basis: Index) -> Array:
    """Figures of all candidates ``[n]`` with less noise, as normal scores.

    Args:
        features: Description of the candidates ``[n, f]``.
        values: The figures, e.g. minus the loss on a copy ``[n]``.
        basis: Candidates from whose figures a process learns what a description predicts.
    """
    results = Results(np.arange(len(values)), values, basis)
    with one_blas_thread():
        return posterior_mean(_standard(features), np.zeros(len(values)), results)


def expected_scores(
    features: Array,
    figures: Mapping[str, Array],
    short: Sequence[Results] = (),
    full: Results | None = None,
) -> Array:
    """Expected normal scores of all candidates after a full training, up to a monotone map ``[n]``.

    Args:
        features: Description of the candidates ``[n, f]``.
        figures: What promises a good candidate, by name ``[n]`` each. All weigh the same before any training;
            the more the short trainings explain, the closer the weights come to `BESIDE`.
        short: Results of short trainings, the shortest first.
        full: Results of full trainings.
    """
    features = _standard(features)
    found, below = standard(ranks_summed(figures)), np.zeros(len(features))
    with one_blas_thread():
        for results in short:
            below = posterior_mean(features, SLOPE * below, results)
        if short:
            explained = min(float(below.var()), 1.0)
            weights = {name: 1 - explained * (1 - BESIDE.get(name, 0.0)) for name in figures}
            found = standard(SHORT * below + ranks_summed(figures, weights))
        if full is None:
            return found
        return posterior_mean(features, BELIEF * found, full)


def posterior_mean(features: Array, mean: Array, results: Results) -> Array:
    """Mean of a Gaussian process at all candidates, given noisy results ``[n]``.

    Like the ladder of `hcdc.search`, it sees normal scores. Their mean and deviation are those expected of
    these candidates, as some may have been chosen because they promised much.

    Args:
        features: Standardised features of all candidates ``[n, f]``.
        mean: The mean before the data ``[n]``.
        results: The results.
    """
    basis = np.arange(len(results.index)) if results.basis is None else results.basis
    at, prior = results.index[basis], mean[results.index[basis]]
    unknown = max(1 - float(mean.var()), 0.0)
    warp = Warp(results.scores[basis], float(prior.mean()), math.sqrt(float(prior.var()) + unknown))
    known = warp(results.scores)
    rest, level = known[basis] - prior, np.full((len(at), len(at)), LEVEL**2)
    scales = _scales(features[at], rest, level)
    noise = scales.noise**2
    covariance = level + kernel(features[at], features[at], scales) + noise * np.eye(len(at))
    reach = kernel(features, features[at], scales) + LEVEL**2
    found: Array = mean + reach @ np.linalg.solve(covariance, rest)
    alone = np.setdiff1d(np.arange(len(results.index)), basis)
    own = results.index[alone]
    spread = _variance(features[own], scales) + LEVEL**2
    spread -= (reach[own] * np.linalg.solve(covariance, reach[own].T).T).sum(1)
    found[own] += spread / (spread + noise) * (known[alone] - found[own])
    return found


def _variance(features: Array, scales: Scales) -> Array:
    """Variance of the function at ``features [n, f]`` before the data ``[n]``: the diagonal of `kernel`."""
    found: Array = scales.amplitude**2 + scales.linear**2 / max(1, features.shape[1]) * (features**2).sum(1)
    return found


def _standard(features: Array) -> Array:
    """Standardised features without constant ones."""
    kept = features[:, features.std(0) > 1e-12]
    return np.stack([standard(column) for column in kept.T], 1) if kept.size else np.zeros((len(features), 0))


def _scales(features: Array, rest: Array, level: Array) -> Scales:
    """Scales of the process: fitted where there are many results."""
    count, width = features.shape
    if count < FEW:
        length, amplitude, noise = USUAL
        return Scales(np.full(width, length * math.sqrt(max(1, width))), amplitude, 0.0, noise)
    return fit_scales(features, rest, level, AMPLITUDE, numpy_stream(0, "posterior", count))
