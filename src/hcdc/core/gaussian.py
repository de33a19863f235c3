"""A Gaussian process over features: its kernel, the scales with the greatest evidence, draws of functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

Array = NDArray[np.float64]

WAVES = 256
"""Random Fourier features of a draw from the prior."""
MOST = 160
"""Observations from which scales are fitted; the posterior uses all."""
STEPS = 25
"""Iterations of a fit."""
LENGTH, NOISE = 1.5, 0.3
"""Medians before the data: length of a feature over the root of their number, deviation of the noise."""
SPREAD_LENGTH, SPREAD_AMPLITUDE, SPREAD_LINEAR, SPREAD_NOISE = 1.0, 0.7, 1.0, 0.8
"""Deviations of the logarithms of scales before the data."""


@dataclass(frozen=True)
class Scales:
    """Scales of the process, all positive.

    Attributes:
        lengths: Length of each feature ``[f]``.
        amplitude: Deviation of the smooth part.
        linear: Deviation of the linear part at one standard deviation of all features.
        noise: Deviation of an observation around the function.
    """

    lengths: Array
    amplitude: float
    linear: float
    noise: float

    def logs(self) -> Array:
        """Logarithms ``[f + 3]``."""
        return np.log([*self.lengths, self.amplitude, self.linear, self.noise])

    @classmethod
    def of(cls, logs: Array) -> Scales:
        """The scales with these logarithms."""
        values = np.exp(logs)
        return cls(values[:-3], float(values[-3]), float(values[-2]), float(values[-1]))

    @classmethod
    def expected(cls, features: int, amplitude: float) -> Scales:
        """The medians before the data, given that of the amplitude."""
        length = LENGTH * math.sqrt(max(1, features))
        return cls(np.full(features, length), amplitude, amplitude / 3, NOISE)


def kernel(a: Array, b: Array, scales: Scales) -> Array:
    """Covariance ``[n, m]`` of the function at ``a [n, f]`` and ``b [m, f]``: Matern 5/2 and linear."""
    near = _matern(distances(a, b, scales.lengths))[0]
    found: Array = scales.amplitude**2 * near + scales.linear**2 / max(1, a.shape[1]) * (a @ b.T)
    return found


def distances(a: Array, b: Array, lengths: Array) -> Array:
    """Euclidean distances ``[n, m]`` in units of the lengths."""
    u, v = a / lengths, b / lengths
    square = (u**2).sum(1)[:, None] + (v**2).sum(1)[None] - 2 * u @ v.T
    found: Array = np.sqrt(np.maximum(square, 0.0))
    return found


def _matern(distance: Array) -> tuple[Array, Array]:
    """Matern 5/2 correlations, and minus their derivative by half the squared distance, of one shape."""
    scaled = math.sqrt(5) * distance
    decay = np.exp(-scaled)
    return (1 + scaled + scaled**2 / 3) * decay, 5 / 3 * (1 + scaled) * decay


class Evidence:
    """Minus the log posterior of the scales, with its gradient.

    Args:
        features: Of the observed candidates ``[n, f]``.
        rest: Observations minus the mean of the prior ``[n]``.
        given: Covariance of everything else that is uncertain ``[n, n]``.
        amplitude: Median of the amplitude before the data.
    """

    def __init__(self, features: Array, rest: Array, given: Array, amplitude: float):
        self.features, self.rest, self.given = features, rest, given
        self._linear = features @ features.T / max(1, features.shape[1])
        self._mean = Scales.expected(features.shape[1], amplitude).logs()
        spread = [SPREAD_AMPLITUDE, SPREAD_LINEAR, SPREAD_NOISE]
        self._precision = 1 / np.array([SPREAD_LENGTH] * features.shape[1] + spread) ** 2

    def __call__(self, logs: Array) -> tuple[float, Array]:
        """The value at logarithms of scales ``[f + 3]``, and its gradient."""
        scales, n = Scales.of(logs), len(self.rest)
        near, slope = _matern(distances(self.features, self.features, scales.lengths))
        linear, noise = scales.linear**2 * self._linear, scales.noise**2
        root = linalg.cholesky(
            self.given + scales.amplitude**2 * near + linear + noise * np.eye(n), lower=True
        )
        inverse = linalg.cho_solve((root, True), np.eye(n))
        weights = inverse @ self.rest
        away = logs - self._mean
        value = 0.5 * float(self.rest @ weights) + float(np.log(np.diag(root)).sum())
        value += 0.5 * float(self._precision @ away**2)
        outer = inverse - np.outer(weights, weights)
        pull = scales.amplitude**2 * outer * slope
        u = self.features / scales.lengths
        apart = 2 * (pull.sum(1) @ u**2) - 2 * (u * (pull @ u)).sum(0)  # sums of pull (u_i - u_j)^2
        gradient = [
            *(0.5 * apart),
            scales.amplitude**2 * float((outer * near).sum()),
            float((outer * linear).sum()),
            noise * float(np.trace(outer)),
        ]
        return value, np.array(gradient) + self._precision * away


def fit_scales(
    features: Array, rest: Array, given: Array, amplitude: float, rng: np.random.Generator
) -> Scales:
    """The scales with the greatest posterior.

    Args:
        features: Of the observed candidates ``[n, f]``.
        rest: Observations minus the mean of the prior ``[n]``.
        given: Covariance of everything else that is uncertain ``[n, n]``.
        amplitude: Median of the amplitude before the data.
        rng: Chooses observations where there are many.
    """
    if len(rest) > MOST:
        some = np.sort(rng.choice(len(rest), MOST, replace=False))
        features, rest, given = features[some], rest[some], given[np.ix_(some, some)]
    first = Scales.expected(features.shape[1], amplitude).logs()
    found = optimize.minimize(
        Evidence(features, rest, given, amplitude), first, jac=True, method="L-BFGS-B",
        bounds=[(log - 4, log + 4) for log in first], options={"maxiter": STEPS},
    )  # fmt: skip
    return Scales.of(found.x)


def prior_draws(features: Array, scales: Scales, count: int, rng: np.random.Generator) -> Array:
    """Functions from the prior at ``features [n, f]``: ``[count, n]``, from random Fourier features."""
    width = features.shape[1]
    normal, chi = rng.standard_normal((width, WAVES)), rng.chisquare(5, WAVES) / 5
    frequency = normal / np.sqrt(chi) / scales.lengths[:, None]  # spectrum of a Matern 5/2 kernel
    phase = rng.uniform(0, 2 * np.pi, WAVES)
    waves = np.cos(features @ frequency + phase) * math.sqrt(2 / WAVES)
    slopes = rng.standard_normal((count, width)) * scales.linear / math.sqrt(max(1, width))
    found: Array = scales.amplitude * rng.standard_normal((count, WAVES)) @ waves.T
    return found + slopes @ features.T
