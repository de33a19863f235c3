"""The model of one rung given the rungs below it: monotone mean, noise that depends on the score."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KNOTS = (-0.7, 0.0, 0.7)
"""Normal scores at which the slope of the mean may change."""
WAVES = 96
"""Random Fourier features of the configuration."""
PRIOR_SLOPE = 0.8
"""Expected correlation of neighbouring rungs, which is the slope between their normal scores."""


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


class Basis:
    """Columns of the regression and the standard deviation of each coefficient before the data.

    The first columns are the hinges of ``below``: the mean is monotone in them.

    Args:
        features: Number of features.
        slopes: Expected slope of each other figure.
        below: Whether there is a rung below.
        rng: Draws the random Fourier features.
    """

    def __init__(self, features: int, slopes: Sequence[float], below: bool, rng: np.random.Generator):
        self.hinges = (1 + len(KNOTS)) if below else 0
        normal, chi = rng.standard_normal((features, WAVES)), rng.chisquare(5, WAVES) / 5
        self._frequency = normal / np.sqrt(chi) if features else None  # spectrum of a Matern 5/2 kernel
        self._phase = rng.uniform(0, 2 * np.pi, WAVES)
        self.linear, self.slopes, self.others = features, list(slopes), len(slopes)

    def fixed(self, features: Array, length: float) -> Array:
        """Columns that depend on the configuration alone ``[n, c]``."""
        parts = [np.ones((len(features), 1)), features]
        if self._frequency is not None:
            waves = features @ self._frequency / length + self._phase
            parts.append(np.sqrt(2 / WAVES) * np.cos(waves))
        return np.concatenate(parts, 1)

    def columns(self, at: Inputs, length: float) -> Array:
        """The design ``[n, p]``: hinges, other figures, then the fixed columns."""
        monotone = [] if at.below is None else [hinges(at.below)]
        return np.concatenate([*monotone, at.others, self.fixed(at.features, length)], 1)

    def prior(self, linear: float, smooth: float) -> tuple[Array, Array]:
        """Mean and standard deviation of the coefficients."""
        scales = [0.3, *[0.15] * len(KNOTS)] if self.hinges else []
        means = [PRIOR_SLOPE, *[0.0] * len(KNOTS)] if self.hinges else []
        means += self.slopes
        scales += [0.3] * self.others + [0.4] + [linear / max(1, self.linear) ** 0.5] * self.linear
        if self._frequency is not None:
            scales += [smooth] * WAVES
        return np.array(means + [0.0] * (len(scales) - len(means))), np.array(scales)


def hinges(below: Array) -> Array:
    """``below [..., n]`` and how far it exceeds each knot ``[..., n, 1 + knots]``."""
    columns: Array = np.stack([below, *(np.maximum(below - k, 0) for k in KNOTS)], -1)
    return columns


class RungModel:
    """Bayesian linear regression on `Basis`, with noise that depends on the score below.

    Args:
        at: What is known of the observed candidates.
        target: Their normal scores on this rung ``[n]``.
        rng: Draws the random features.
        slopes: Expected slope of each other figure; 0 by default.
    """

    def __init__(
        self, at: Inputs, target: Array, rng: np.random.Generator, slopes: Sequence[float] | None = None
    ):
        described = at.features.shape[1] > 0
        slopes = [0.0] * at.others.shape[1] if slopes is None else slopes
        self.basis = Basis(at.features.shape[1], slopes, at.below is not None, rng)
        best = -np.inf
        for length in (1.0, 2.5) if described else (1.0,):
            columns = self.basis.columns(at, length)
            for linear, smooth in itertools.product((0.1, 0.5), (0.1, 0.6)) if described else ((0.1, 0.1),):
                for scale in (0.15, 0.35, 0.7):
                    value = self._evidence(columns, target, linear, smooth, scale)
                    if value > best:
                        best, self._chosen = value, (length, linear, smooth, scale)
        length, linear, smooth, scale = self._chosen
        columns = self.basis.columns(at, length)
        self._posterior = self._fit(columns, target, np.full(len(target), scale**2))
        self._noise(at, columns, target)

    def _evidence(self, columns: Array, target: Array, linear: float, smooth: float, scale: float) -> float:
        """Log probability of the target, and that neighbouring rungs rarely agree perfectly or not at all."""
        mean, deviation = self.basis.prior(linear, smooth)
        a = columns * deviation
        root = np.linalg.cholesky(a @ a.T + scale**2 * np.eye(len(target)))
        rest = np.linalg.solve(root, target - columns @ mean)
        return float(-0.5 * rest @ rest - np.log(np.diag(root)).sum() - 2 * np.log(scale / 0.5) ** 2)

    def _fit(self, columns: Array, target: Array, noise: Array) -> tuple[Array, Array]:
        """The posterior of the coefficients: its mean and a root of its covariance."""
        mean, scale = self.basis.prior(*self._chosen[1:3])
        a = columns * scale / np.sqrt(noise)[:, None]
        b = (target - columns @ mean) / np.sqrt(noise)
        inverse = np.linalg.inv(np.linalg.cholesky(a.T @ a + np.eye(a.shape[1])))
        return mean + scale * (inverse.T @ (inverse @ (a.T @ b))), scale[:, None] * inverse.T

    def _noise(self, at: Inputs, columns: Array, target: Array) -> None:
        """Smooth the squared residuals over the score below (or the mean), then fit again with this noise.

        Four observations of the overall noise are always mixed in.
        """
        scale = self._chosen[3]
        for _ in range(2):
            mean = columns @ self._posterior[0]
            leverage = ((columns @ self._posterior[1]) ** 2).sum(1) / scale**2
            squares = (target - mean) ** 2 / np.clip(1 - leverage, 0.3, 1)
            centres = mean if at.below is None else at.below
            self._grid = np.linspace(-3, 3, 25)
            near = np.exp(-0.5 * ((self._grid[:, None] - centres[None]) / 0.5) ** 2)
            self._variance = np.maximum((near @ squares + 4 * scale**2) / (near.sum(1) + 4), 1e-4)
            self._posterior = self._fit(columns, target, self.noise(centres))

    def draw(self, at: Inputs, expected: Inputs, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Scores with noise, given ``at``, and means, given ``expected``, under ``count`` posterior draws.

        Args:
            at: What is known or drawn of the candidates; ``below`` and ``others`` may have a first axis of
                ``count``.
            expected: The same with means in the place of draws.
            count: Number of draws.
            rng: Draws coefficients and noise.

        Returns:
            Two arrays ``[count, n]``.
        """
        mean, root = self._posterior
        weights = mean + (root @ rng.standard_normal((root.shape[1], count))).T
        start = self.basis.hinges + self.basis.others
        fixed = weights[:, start:] @ self.basis.fixed(at.features, self._chosen[0]).T
        value = self._means(at, weights, fixed)
        deviation = np.sqrt(self.noise(value if at.below is None else at.below))
        return value + deviation * rng.standard_normal(value.shape), self._means(expected, weights, fixed)

    def _means(self, at: Inputs, weights: Array, fixed: Array) -> Array:
        """The mean under each draw of the coefficients; ``fixed`` depends on the configuration alone."""
        split = self.basis.hinges, self.basis.hinges + self.basis.others
        found: Array = fixed + np.einsum(
            "...no,co->cn" if at.others.ndim == 2 else "cno,co->cn",
            at.others,
            weights[:, split[0] : split[1]],
        )
        if at.below is not None:
            found += monotone(np.broadcast_to(at.below, found.shape), weights[:, : split[0]])
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
