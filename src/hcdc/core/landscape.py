"""A Gaussian process over lambda that is fitted to losses and to their gradients.

One training gives a loss and, by eq. (IFT), H slopes. So m trainings give m (1 + H) numbers, and few of them
determine a smooth function of few hyperparameters. Model, with y the transformed losses:

    y = log((loss - lowest) / sd + 0.05),  standardised
    y(lambda) = constant + f(lambda) + noise,          f ~ GP(0, s^2 k)
    dy/dlambda = df/dlambda + noise of its own
    k(a, b) = Matern-5/2 of |D R^T (a - b)|

R holds the eigenvectors of the gradients' second moments, the directions in which the loss changes more or
less (Constantine's active subspaces), and D one length scale for each. The logarithm keeps the few very bad
losses from hiding the differences among the good ones. If f(lambda) = f(-lambda) is known (``even``), k is
(k(a, b) + k(a, -b)) / 2. Length scales, s and the noises maximise the posterior density.

Candidates may be ranked by a score (accuracy) of which the loss is a smooth stand-in. What the scores of the
same trainings add is a second process with the same kernel and fixed deviations, fitted to the residuals.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

Array = NDArray[np.float64]

OFFSET = 0.05
"""Distance of the lowest loss from the logarithm's pole, in standard deviations of the losses."""
CENTRES = {"scale": 0.0, "value_noise": math.log(0.1), "slope_noise": math.log(0.3), "constant": 0.0}
"""Prior means of log standard deviations, in units of the standardised losses."""
RESIDUAL, SCORE_NOISE = 0.3, 0.1
"""Standard deviations of the second process and of its noise, in the same units."""
JITTER = 1e-8
ROUNDS = 40
"""Most steps of the optimiser."""

Blocks = tuple[Tensor, Tensor, Tensor, Tensor]


def matern(a: Tensor, b: Tensor) -> Blocks:
    """The Matern-5/2 kernel of a ``[n, H]`` and b ``[m, H]`` and its derivatives.

    Returns:
        k ``[n, m]``, dk/da and dk/db ``[n, m, H]``, and d2k/da db ``[n, m, H, H]``.
    """
    apart = a[:, None] - b[None]
    far = torch.sqrt(5 * apart.square().sum(-1) + 1e-12)
    decay = torch.exp(-far)
    first = -(5 / 3) * (1 + far) * decay
    slope = first[..., None] * apart
    outer = (25 / 3) * decay[..., None, None] * apart[..., :, None] * apart[..., None, :]
    mixed = -first[..., None, None] * torch.eye(a.shape[1], dtype=a.dtype) - outer
    return (1 + far + far.square() / 3) * decay, slope, -slope, mixed


def even_matern(a: Tensor, b: Tensor) -> Blocks:
    """`matern`, made even: (k(a, b) + k(a, -b)) / 2."""
    k, of_a, of_b, mixed = matern(a, b)
    other_k, other_a, other_b, other = matern(a, -b)
    return (k + other_k) / 2, (of_a + other_a) / 2, (of_b - other_b) / 2, (mixed - other) / 2


@dataclass(frozen=True)
class Landscape:
    """The fitted process. Make one with `fit_landscape`.

    Attributes:
        at: lambda of the trainings ``[m, H]``, rotated by R.
        turn: R ``[H, H]``.
        target: Standardised y ``[m]``, then its gradients ``[m H]`` unless there are none.
        logs: Logs of the H length scales, of s, of both noises and of the constant's deviation.
        even: Whether lambda and -lambda have the same loss.
        residual: Weights ``[m]`` of the second process; zeros without scores.
    """

    at: Tensor
    turn: Tensor
    target: Tensor
    logs: Tensor
    even: bool
    residual: Tensor

    @property
    def sloped(self) -> bool:
        """Whether gradients were given."""
        return len(self.target) > len(self.at)

    def _gram(self, logs: Tensor, a: Tensor, slopes_of_a: bool) -> Tensor:
        """Covariances of f (and its gradients) at ``a [n, H]`` with the observations."""
        count, inverse = a.shape[1], torch.exp(-logs[: a.shape[1]])
        kernel = even_matern if self.even else matern
        k, of_a, of_b, mixed = kernel(a * inverse, self.at * inverse)
        n, m = k.shape
        variance, constant = torch.exp(2 * logs[count]), torch.exp(2 * logs[count + 3])
        rows = [[variance * k + constant]]
        if self.sloped:
            rows[0].append(variance * (of_b * inverse).reshape(n, m * count))
        if slopes_of_a:
            across = (mixed * inverse * inverse[:, None]).transpose(1, 2).reshape(n * count, m * count)
            down = (of_a * inverse).transpose(1, 2).reshape(n * count, m)
            rows.append([variance * down, variance * across])
        return torch.cat([torch.cat(row, 1) for row in rows], 0)

    def _noise(self, logs: Tensor) -> Tensor:
        """Variance of the noise of each observation."""
        m, count = self.at.shape
        parts = [torch.exp(2 * logs[count + 1]).expand(m)]
        if self.sloped:
            parts.append(torch.exp(2 * logs[count + 2]).expand(m * count))
        return torch.cat(parts) + JITTER

    def _factor(self, logs: Tensor) -> Tensor:
        """Cholesky factor of the observations' covariance."""
        gram = self._gram(logs, self.at, self.sloped)
        found: Tensor = torch.linalg.cholesky(gram + torch.diag(self._noise(logs)))
        return found

    def misfit(self, logs: Tensor) -> Tensor:
        """Minus the log posterior density of the hyperparameters, up to a constant."""
        factor = self._factor(logs)
        white = torch.linalg.solve_triangular(factor, self.target[:, None], upper=False)
        apart = logs - _centres(self.at.shape[1])
        apart = torch.cat([apart[:-1], 2 * apart[-1:]])  # the constant varies less
        found: Tensor = (
            0.5 * white.square().sum() + factor.diagonal().log().sum() + 0.5 * apart.square().sum()
        )
        return found

    def _kernel(self, a: Tensor) -> Tensor:
        """k at ``a [n, H]`` and the trainings ``[n, m]``."""
        inverse = torch.exp(-self.logs[: a.shape[1]])
        kernel = even_matern if self.even else matern
        return kernel(a * inverse, self.at * inverse)[0]

    def with_scores(self, scores: Array) -> Landscape:
        """This process with a second one for the residuals of scores ``[m]``, higher is better."""
        rest = torch.from_numpy(transformed(-np.asarray(scores, np.float64))[0]) - self._mean(self.at)[0]
        noise = SCORE_NOISE**2 * torch.eye(len(rest), dtype=torch.float64)
        weights = torch.linalg.solve(RESIDUAL**2 * self._kernel(self.at) + noise, rest - rest.mean())
        return dataclasses.replace(self, residual=RESIDUAL**2 * weights)

    def predict(self, lam: Array) -> tuple[Array, Array]:
        """Expected y at ``lam [n, H]``, which has the order of the losses, and its standard deviation."""
        fresh = torch.from_numpy(np.asarray(lam, np.float64)) @ self.turn
        mean, deviation = self._mean(fresh)
        return (mean + self._kernel(fresh) @ self.residual).numpy(), deviation.numpy()

    def _mean(self, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the first process at ``fresh [n, H]``, rotated."""
        factor, cross = self._factor(self.logs), self._gram(self.logs, fresh, False)
        both = torch.cat([self.target[:, None], cross.t()], 1)
        white = torch.linalg.solve_triangular(factor, both, upper=False)
        variance = self._prior(fresh) - white[:, 1:].square().sum(0)
        return white[:, 1:].t() @ white[:, 0], variance.clamp_min(0).sqrt()

    def _prior(self, a: Tensor) -> Tensor:
        """Variance of f and the constant at ``a [n, H]`` before any observation."""
        count, inverse = a.shape[1], torch.exp(-self.logs[: a.shape[1]])
        kernel = even_matern if self.even else matern
        scaled = a * inverse
        own = torch.stack([kernel(row[None], row[None])[0][0, 0] for row in scaled])
        return torch.exp(2 * self.logs[count]) * own + torch.exp(2 * self.logs[count + 3])


def _centres(dimensions: int) -> Tensor:
    return torch.tensor([0.0] * dimensions + list(CENTRES.values()), dtype=torch.float64)


def transformed(losses: Array) -> tuple[Array, Array]:
    """y ``[m]`` of losses ``[m]``, see above, and its derivative in the loss ``[m]``."""
    spread = max(float(losses.std()), 1e-12)
    above = (losses - losses.min()) / spread + OFFSET
    y = np.log(above)
    unit = max(float(y.std()), 1e-12)
    return (y - y.mean()) / unit, 1 / (spread * above * unit)


def spread_out(draws: Tensor, tries: int, unit: Tensor, even: bool) -> Tensor:
    """Points that keep away from each other: each is the farthest of ``tries`` draws from those before it.

    This is Mitchell's best-candidate sampling. Fewer draws give the first of the points of more.

    Args:
        draws: Random lambdas ``[m tries, H]``.
        tries: Draws per point.
        unit: The unit of each hyperparameter ``[H]``.
        even: Whether lambda and -lambda are alike, so that a point keeps away from both.

    Returns:
        The points ``[m, H]``.
    """
    groups = draws.reshape(-1, tries, draws.shape[1])
    chosen = groups[0, :1]
    for group in groups[1:]:
        known = torch.cat([chosen, -chosen]) if even else chosen
        apart = torch.cdist(group / unit, known / unit).amin(1)
        chosen = torch.cat([chosen, group[apart.argmax()][None]])
    return chosen


def fit_landscape(
    lam: Array,
    losses: Array,
    gradients: Array | None = None,
    scores: Array | None = None,
    *,
    even: bool = False,
) -> Landscape:
    """Fit the process to trainings.

    Args:
        lam: lambda ``[m, H]``.
        losses: Losses ``[m]``, lower is better.
        gradients: Their gradients in lambda ``[m, H]``; None uses losses alone, without a rotation.
        scores: What candidates are ranked by ``[m]``, higher is better; None means the losses.
        even: Whether lambda and -lambda have the same loss.
    """
    at = torch.from_numpy(np.asarray(lam, np.float64))
    unit = _units(at)
    y, slope = transformed(np.asarray(losses, np.float64))
    target = torch.from_numpy(y)
    turn = torch.eye(at.shape[1], dtype=torch.float64)
    if gradients is not None:
        slopes = torch.from_numpy(np.asarray(gradients, np.float64) * slope[:, None]) * unit
        turn = torch.linalg.eigh(slopes.t() @ slopes)[1]
        target = torch.cat([target, (slopes @ turn).flatten()])
    nothing = torch.zeros(len(at), dtype=torch.float64)
    turn = turn / unit[:, None]
    begun = Landscape(at @ turn, turn, target, _centres(at.shape[1]), even, nothing)
    found = dataclasses.replace(begun, logs=_fitted(begun))
    return found if scores is None else found.with_scores(scores)


def _units(at: Tensor) -> Tensor:
    """The unit of each hyperparameter ``[H]``: the power of two next to twice its deviation in ``at [m, H]``.

    It is 1 for a uniform distribution on [-1, 1]. Powers of two change no digit.
    """
    spread = 2 * at.std(0, correction=0)
    return torch.where(spread > 0, 2.0 ** torch.round(torch.log2(spread.clamp_min(1e-300))), 1.0)


def _fitted(begun: Landscape) -> Tensor:
    """The logs that minimise the misfit."""

    def misfit(logs: Array) -> tuple[float, Array]:
        now = torch.from_numpy(logs).requires_grad_()
        with torch.enable_grad():
            found = begun.misfit(now)
            (slope,) = torch.autograd.grad(found, now)
        return float(found.detach()), slope.numpy()

    found = optimize.minimize(
        misfit, begun.logs.numpy(), jac=True, method="L-BFGS-B", bounds=[(-6.0, 6.0)] * len(begun.logs),
        options={"maxiter": ROUNDS},
    )  # fmt: skip
    return torch.from_numpy(found.x)
