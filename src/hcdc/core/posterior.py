"""What to expect of candidates, given everything known: free figures and trainings of any length.

A Gaussian process per length of training, from the shortest to the full one (recursive co-kriging). Before
any training counts what is hoped of a candidate from figures that cost little (`hope`): its size,
training-free scores, its loss and accuracy on a copy. Twenty full trainings know less than that, so the
process models what they add to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hcdc.core.gaussian import Scales, fit_scales, kernel
from hcdc.core.ranks import standard, standard_ranks
from hcdc.core.seeds import numpy_stream
from hcdc.core.threads import one_blas_thread
from hcdc.core.warp import Warp

Array = NDArray[np.float64]

BELIEF = 0.9
"""Expected slope of a full result on what is expected before it, both as normal scores."""
SLOPE = 0.8
"""Expected slope of a short training on one shorter still."""
SHORT, SIZE = 0.5, 0.25
"""Weights of short trainings and of the number of parameters beside the hope. Larger networks gain more from
the rest of their training. Chosen, like `BELIEF` and `USUAL`, on development cells of NAS-Bench-201."""
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
    """Results of some candidates after trainings of one length.

    Attributes:
        index: Which candidates ``[m]``.
        scores: Their scores ``[m]``, higher is better.
    """

    index: NDArray[np.int64]
    scores: Array


def hope(columns: Array) -> Array:
    """The sum of the ranks of several figures ``[n, k]``, higher is better, standardised ``[n]``."""
    return standard(np.sum([standard_ranks(column) for column in columns.T], 0))


def expected_scores(
    features: Array,
    before: Array,
    short: Sequence[Results] = (),
    full: Results | None = None,
    size: Array | None = None,
) -> Array:
    """Expected normal scores of all candidates after a full training ``[n]``.

    Args:
        features: Description of the candidates ``[n, f]``.
        before: What is hoped of them before any training ``[n]``, see `hope`.
        short: Results of short trainings, the shortest first.
        full: Results of full trainings.
        size: Number of parameters of each candidate ``[n]``, for the step from short trainings to full ones.
    """
    features = np.stack([standard(column) for column in features[:, features.std(0) > 1e-12].T], 1)
    found, below = standard(before), np.zeros(len(features))
    with one_blas_thread():
        for results in short:
            below = posterior_mean(features, SLOPE * below, results)
        if short:
            larger = 0.0 if size is None else SIZE * standard_ranks(size)
            found = standard(found + SHORT * standard(below) + larger)
        return found if full is None else posterior_mean(features, BELIEF * found, full)


def posterior_mean(features: Array, mean: Array, results: Results) -> Array:
    """Mean of a Gaussian process given noisy results ``[n]``; where there is a result, the result itself.

    Like the ladder of `hcdc.search`, it sees normal scores. Their mean and deviation are those expected of
    these candidates, as some may have been chosen because they promised much.

    Args:
        features: Standardised features of all candidates ``[n, f]``.
        mean: The mean before the data ``[n]``.
        results: The results.
    """
    at, prior = results.index, mean[results.index]
    unknown = max(1 - float(mean.var()), 0.0)
    warp = Warp(results.scores, float(prior.mean()), math.sqrt(float(prior.var()) + unknown))
    known = warp(results.scores)
    rest, level = known - prior, np.full((len(at), len(at)), LEVEL**2)
    scales = _scales(features[at], rest, level)
    covariance = level + kernel(features[at], features[at], scales) + scales.noise**2 * np.eye(len(at))
    reach = kernel(features, features[at], scales) + LEVEL**2
    found: Array = mean + reach @ np.linalg.solve(covariance, rest)
    found[at] = known
    return found


def _scales(features: Array, rest: Array, level: Array) -> Scales:
    """Scales of the process: fitted where there are many results."""
    count, width = features.shape
    if count < FEW:
        length, amplitude, noise = USUAL
        return Scales(np.full(width, length * math.sqrt(max(1, width))), amplitude, 0.0, noise)
    return fit_scales(features, rest, level, AMPLITUDE, numpy_stream(0, "posterior", count))
