"""Regressions that predict a candidate's full-data result from its features, without a copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]

PENALTY = 10.0
"""Penalty of `ridge`, chosen for cells and 20 probes on tuning cells (`records/tuning/images.md`)."""


def ridge(at: Array, target: Array, fresh: Array) -> Array:
    """Ridge regression of ``target [m]`` on standardised features ``at [m, f]``, at ``fresh [n, f]``."""
    centre, scale = at.mean(0), at.std(0) + 1e-9
    a, b = (at - centre) / scale, (fresh - centre) / scale
    found: Array = b @ np.linalg.solve(a.T @ a + PENALTY * np.eye(a.shape[1]), a.T @ (target - target.mean()))
    return found


def kernels(lam: Array) -> list[Kernel]:
    """Linear, quadratic and Gaussian kernels of several widths."""
    distances = np.sqrt(((lam[:, None] - lam[None]) ** 2).sum(-1))
    typical = float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0

    def polynomial(degree: int) -> Kernel:
        return lambda a, b: (1.0 + a @ b.T) ** degree

    def gaussian(width: float) -> Kernel:
        return lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * width**2))

    return [polynomial(1), polynomial(2), *(gaussian(typical * w) for w in (0.5, 1.0, 2.0))]


def kernel_ridge(lam: Array, scores: Array, fresh: Array) -> Array:
    """Kernel ridge regression of ``scores [m]`` on ``lam [m, H]``, evaluated at ``fresh [n, H]``.

    Kernel and penalty minimise the closed-form leave-one-out error on the probes.
    """
    centre, scale = lam.mean(0), lam.std(0) + 1e-12
    a, b = (lam - centre) / scale, (fresh - centre) / scale
    mean = scores.mean()
    target = scores - mean
    best_error, best = np.inf, np.zeros(len(b))
    for kernel in kernels(a):
        gram = kernel(a, a)
        for penalty in 10.0 ** np.arange(-6, 3):
            inverse = np.linalg.inv(gram + penalty * len(a) * np.eye(len(a)))
            weights = inverse @ target
            error = float(((weights / np.diag(inverse)) ** 2).mean())
            if error < best_error:
                best_error, best = error, kernel(b, a) @ weights
    predictions: Array = best + mean
    return predictions
