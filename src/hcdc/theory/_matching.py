"""Gradient matching on linear models: when the optimum of the copy is the optimum of the original.

The gradient of ||Z W - y||^2 is affine in W, so a trajectory that matches it must span R^d *affinely*: d + 1
points in general position. The paper asks for a linear span (Assumption achievability), which d points have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.core.seeds import stream


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """min over W of ||Z W - y||^2, eq. (least-square-linear-conv) with Z = C(A) X for a fixed filter C.

    Attributes:
        z: Filtered features Z ``[n, d]``, of full column rank where an optimum is asked for.
        y: Labels ``[n]``.
    """

    z: Tensor
    y: Tensor

    @property
    def gram(self) -> Tensor:
        """Z^T Z ``[d, d]``."""
        return self.z.mT @ self.z

    @property
    def moment(self) -> Tensor:
        """Z^T y ``[d]``."""
        return self.z.mT @ self.y

    def loss(self, w: Tensor) -> Tensor:
        """||Z W - y||^2 at W ``[d]``."""
        return (self.z @ w - self.y).square().sum()

    def gradients(self, trajectory: Tensor) -> Tensor:
        """2 (Z^T Z W_t - Z^T y) at every row of ``trajectory`` ``[T, d]``."""
        return 2 * (trajectory @ self.gram - self.moment)

    def optimum(self) -> Tensor:
        """W* = (Z^T Z)^-1 Z^T y ``[d]``."""
        solved: Tensor = torch.linalg.lstsq(self.z, self.y[:, None]).solution
        return solved[:, 0]


@dataclass(frozen=True)
class MatchingValidity:
    """The two sides of `matching_validity`.

    Attributes:
        mismatch: The gradient matching loss on the trajectory, (sum_t ||difference of gradients||^2)^1/2.
        linear_span: Smallest singular value of the points W_t: positive if they span R^d, as in the paper.
        affine_span: Smallest singular value of the points [W_t, 1]: positive if they span R^d affinely.
        distance: ||W^S - W^T||.
        bound: What the distance cannot exceed; infinite without an affine span.
        excess: L_T(W^S) - min L_T.
    """

    mismatch: float
    linear_span: float
    affine_span: float
    distance: float
    bound: float
    excess: float


def matching_validity(
    original: LeastSquares, synthetic: LeastSquares, trajectory: Tensor
) -> MatchingValidity:
    """Lemma sdc-valid, with a bound: gradients that match on a trajectory give the original optimum.

    With R the ``[T, d]`` differences of gradients and s the smallest singular value of the points [W_t, 1],

        ||W^S - W^T|| <= ||R|| (1 + ||W^S||^2)^1/2 / (2 s lambda_min(Z^T Z)).

    So R = 0 and s > 0 give W^S = W^T. The paper asks only that the W_t span R^d linearly; then s may be 0 and
    nothing follows (`match_on_span`).

    Args:
        original: T, with Z ``[n, d]`` of full column rank.
        synthetic: S, with Z' ``[c, d]`` of full column rank.
        trajectory: W_t, ``[T, d]``.
    """
    mismatch = float((original.gradients(trajectory) - synthetic.gradients(trajectory)).norm())
    affine_span = smallest_singular(torch.cat([trajectory, torch.ones_like(trajectory[:, :1])], 1))
    w_t, w_s = original.optimum(), synthetic.optimum()
    curvature = float(torch.linalg.eigvalsh(original.gram)[0])
    reach = float((1 + w_s.square().sum()).sqrt())
    slope = 2 * affine_span * curvature
    return MatchingValidity(
        mismatch=mismatch,
        linear_span=smallest_singular(trajectory),
        affine_span=affine_span,
        distance=float((w_s - w_t).norm()),
        bound=mismatch * reach / slope if slope > 0 else float("inf"),
        excess=float(original.loss(w_s) - original.loss(w_t)),
    )


def smallest_singular(rows: Tensor) -> float:
    """Smallest singular value of a map from R^k, ``[T, k]``: 0 if the T rows do not span R^k."""
    if len(rows) < rows.shape[1]:
        return 0.0
    values = torch.linalg.svdvals(rows)
    floor = values[0] * torch.finfo(rows.dtype).eps * max(rows.shape)
    return float(values[-1]) if values[-1] > floor else 0.0


def with_moments(gram: Tensor, moment: Tensor, size: int, seed: int = 0) -> LeastSquares:
    """A regression of ``size`` rows with the given Z^T Z and Z^T y (the proof of Proposition sdc-overfit).

    Args:
        gram: Positive definite ``[d, d]``.
        moment: ``[d]``.
        size: c, at least d.
        seed: Draws U with U^T U = I; Z = U (Z^T Z)^1/2.
    """
    d = len(moment)
    if size < d:
        raise InputError(f"size {size}: at least {d} rows are needed to match {d} features")
    draw = torch.randn(size, d, generator=stream(seed, "theory-copy"), dtype=torch.float64)
    u = torch.linalg.qr(draw.to(gram)).Q
    values, vectors = torch.linalg.eigh(gram)
    z = u @ (vectors * values.sqrt()) @ vectors.mT
    return LeastSquares(z, z @ torch.linalg.solve(gram, moment))


def matched_copy(original: LeastSquares, size: int, seed: int = 0) -> LeastSquares:
    """A copy of ``size`` rows whose gradients equal the original's everywhere."""
    return with_moments(original.gram, original.moment, size, seed)


def match_on_span(
    original: LeastSquares, trajectory: Tensor, size: int, strength: float = 1.0, seed: int = 0
) -> LeastSquares:
    """Counter-example to Lemma sdc-valid as printed: matched on d spanning points, with another optimum.

    With q W_t = 1 at all d points, Z'^T Z' = Z^T Z + s q q^T and Z'^T y' = Z^T y + s q change no gradient on
    the trajectory, yet move the optimum (unless it happens to lie on the plane q W = 1).

    Args:
        original: T.
        trajectory: d linearly independent points ``[d, d]``.
        size: c, the rows of the copy.
        strength: s > 0.
        seed: Draws the rows of the copy.
    """
    q = torch.linalg.solve(trajectory, torch.ones_like(trajectory[:, 0]))
    return with_moments(
        original.gram + strength * torch.outer(q, q), original.moment + strength * q, size, seed
    )
