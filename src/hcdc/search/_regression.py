"""The model of one rung given the rungs below it: monotone mean, noise that depends on the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hcdc.core.gaussian import fit_scales, kernel, prior_draws

Array = NDArray[np.float64]

KNOTS = (-0.7, 0.0, 0.7)
"""Normal scores at which the slope of the mean may change."""
PRIOR_SLOPE = 0.8
"""Expected correlation of neighbouring rungs, which is the slope between their normal scores."""
SLOPES, BENDS, OTHERS, LEVEL = 0.3, 0.15, 0.3, 0.4
"""Deviations before the data: slope on the rung below, its changes, other slopes, level."""
ALONE, BESIDE = 0.6, 0.25
"""Median amplitude of the process before the data: on the lowest rung, and beside the score of one below."""


@dataclass(frozen=True)
class Inputs:
    """What is known of candidates before the rung.

    Attributes:
        below: Normal score on the closest rung below ``[n]``, or None for the lowest rung.
        others: Normal scores of the rungs further below, and of a hint if there is one ``[n, o]``.
        features: Standardised description of the configuration ``[n, f]``.
    """

    below: Array | None
    others: Array
    features: Array

    def __len__(self) -> int:
        return len(self.others)

    def take(self, index: NDArray[np.int64]) -> Inputs:
        below = None if self.below is None else self.below[index]
        return Inputs(below, self.others[index], self.features[index])

    def columns(self) -> Array:
        """The linear part of the mean ``[n, p]``: hinges of ``below``, other figures, one."""
        monotone = [] if self.below is None else [hinges(self.below)]
        return np.concatenate([*monotone, self.others, np.ones((len(self), 1))], 1)


def hinges(below: Array) -> Array:
    """``below [..., n]`` and how far it exceeds each knot ``[..., n, 1 + knots]``."""
    columns: Array = np.stack([below, *(np.maximum(below - k, 0) for k in KNOTS)], -1)
    return columns


class RungModel:
    """A score is a monotone function of the score below, plus slopes on other figures, plus a Gaussian
    process over the features, plus noise that depends on the score below.

    Args:
        at: What is known of the observed candidates.
        target: Their normal scores on this rung ``[n]``.
        rng: Draws what the fit draws.
        slopes: Expected slope of each other figure; 0 by default.
        doubt: Variance of a target because its score below is only expected ``[n]``; 0 by default.

    Attributes:
        scales: Those of the process.
    """

    def __init__(
        self,
        at: Inputs,
        target: Array,
        rng: np.random.Generator,
        slopes: Sequence[float] | None = None,
        doubt: Array | None = None,
    ):
        slopes = [0.0] * at.others.shape[1] if slopes is None else slopes
        self.hinges = 0 if at.below is None else 1 + len(KNOTS)
        means = ([PRIOR_SLOPE, *[0.0] * len(KNOTS)] if self.hinges else []) + [*slopes, 0.0]
        spread = ([SLOPES, *[BENDS] * len(KNOTS)] if self.hinges else []) + [OTHERS] * len(slopes) + [LEVEL]
        self.mean, self.spread = np.array(means), np.array(spread)
        self.at, self._columns = at, at.columns()
        self._rest = target - self._columns @ self.mean
        given = (self._columns * self.spread) @ (self._columns * self.spread).T
        self._doubt = np.zeros(len(target)) if doubt is None else doubt
        given += np.diag(self._doubt)
        amplitude = BESIDE if self.hinges else ALONE
        self.scales = fit_scales(at.features, self._rest, given, amplitude, rng)
        self._known = given + kernel(at.features, at.features, self.scales)
        self._noise(target)

    def _noise(self, target: Array) -> None:
        """Smooth the squared residuals over the score below (or the mean), then use this noise.

        Residuals are those of leaving one out. Four observations of the overall noise are always mixed in.
        """
        overall = self.scales.noise**2
        variance = np.full(len(target), overall)
        self._grid = np.linspace(-3, 3, 25)
        for _ in range(2):
            inverse = np.linalg.inv(self._known + np.diag(variance))
            solved = inverse @ self._rest
            fitted = target - variance * solved
            within = np.clip(variance * np.diag(inverse), 0.1, 1)
            squares = (variance * solved) ** 2 / within  # residual^2 / (1 - leverage)
            self._centres = fitted if self.at.below is None else self.at.below
            near = np.exp(-0.5 * ((self._grid[:, None] - self._centres[None]) / 0.5) ** 2)
            self._variance = np.maximum((near @ squares + 4 * overall) / (near.sum(1) + 4), 1e-4)
            variance = self.noise(self._centres)
        self._root = linalg.cholesky(self._known + np.diag(variance), lower=True)
        self._own = variance + self._doubt

    def draw(self, at: Inputs, expected: Inputs, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Scores with noise, given ``at``, and means, given ``expected``, under ``count`` posterior draws.

        A draw from the prior is corrected by what it gets wrong at the observations (Matheron's rule).

        Args:
            at: What is known or drawn of the candidates; ``below`` and ``others`` may have a first axis of
                ``count``.
            expected: The same with means in the place of draws.
            count: Number of draws.
            rng: Draws functions and noise.

        Returns:
            Two arrays ``[count, n]``.
        """
        n, seen = len(self._rest), self.at.features
        half = -(-count // 2)  # the other half mirrors it, so the mean over draws is exact
        functions = prior_draws(np.concatenate([seen, at.features]), self.scales, half, rng)
        weights = self.spread * rng.standard_normal((half, len(self.mean)))
        noise = np.sqrt(self._own) * rng.standard_normal((half, n))
        functions, weights, noise = (
            np.concatenate([some, -some])[:count] for some in (functions, weights, noise)
        )
        wrong = self._rest - weights @ self._columns.T - functions[:, :n] - noise
        solved = linalg.cho_solve((self._root, True), wrong.T)
        weights = self.mean + weights + (self.spread**2 * (self._columns.T @ solved).T)
        smooth = functions[:, n:] + (kernel(at.features, seen, self.scales) @ solved).T
        fixed = smooth + weights[:, -1:]
        value = self._means(at, weights, fixed)
        deviation = np.sqrt(self.noise(value if at.below is None else at.below))
        return value + deviation * rng.standard_normal(value.shape), self._means(expected, weights, fixed)

    def _means(self, at: Inputs, weights: Array, fixed: Array) -> Array:
        """The mean under each draw of the weights; ``fixed`` depends on the configuration alone."""
        others = weights[:, self.hinges : -1]
        found: Array = fixed + np.einsum(
            "no,co->cn" if at.others.ndim == 2 else "cno,co->cn", at.others, others, optimize=True
        )
        if at.below is not None:
            found += monotone(np.broadcast_to(at.below, found.shape), weights[:, : self.hinges])
        return found

    def noise(self, score: Array) -> Array:
        """Variance around the mean, given scores below (or means) of any shape."""
        found: Array = np.interp(score, self._grid, self._variance)
        return found


def monotone(below: Array, weights: Array) -> Array:
    """The part of the mean that depends on ``below [c, n]``, as a running maximum in it ``[c, n]``."""
    order = np.argsort(below, 1, kind="stable")
    part = np.einsum("cnh,ch->cn", hinges(np.take_along_axis(below, order, 1)), weights)
    found: Array = np.empty_like(part)
    np.put_along_axis(found, order, np.maximum.accumulate(part, 1), 1)
    return found
