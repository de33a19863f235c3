"""Aligned hypergradients and calibrated rankings: what one says about the other (Theorem equi-hga-hc).

Losses here are functions of lambda ``[H]``: L*_T and L*_S of the paper. Calibration, eq. (HC), asks that no
two lambdas are ordered differently. Ties do not count: with two or more hyperparameters every continuous loss
has them, so eq. (HC) cannot hold as a strict inequality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from hcdc.core.errors import InputError

LossOfLambda = Callable[[Tensor], Tensor]
NODES, WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(32))


@dataclass(frozen=True)
class PathOrder:
    """The two sides of `path_order`.

    Attributes:
        monotone: L_T never falls, or never rises, from point to point.
        discordant: Pairs of points that the two losses order differently.
        cosine: Smallest cosine of the two gradients at the points.
    """

    monotone: bool
    discordant: int
    cosine: float


@dataclass(frozen=True)
class ScaleBound:
    """The two sides of `scale_bound`: ``deviation <= bound``.

    Attributes:
        scale: a, the one scale fitted to all gradients on the path.
        deviation: |(L_S - a L_T)(end) - (L_S - a L_T)(start)|.
        bound: The integral of ||grad L_S - a grad L_T|| along the path.
        change: |L_T(end) - L_T(start)|; if a * change > bound, L_S orders the ends as L_T does.
    """

    scale: float
    deviation: float
    bound: float
    change: float


@dataclass(frozen=True)
class OppositeOrder:
    """Two losses on [0, 4], linear between whole numbers, with slopes of the same sign everywhere.

    Attributes:
        loss_t, loss_s: Values at 0, 1, 2, 3, 4.
        pair: Two of these points that the losses order differently.
    """

    loss_t: tuple[float, ...]
    loss_s: tuple[float, ...]
    pair: tuple[int, int]


def discordant_pairs(v_t: Tensor, v_s: Tensor) -> int:
    """Pairs that violate eq. (HC): ``v_t`` ``[B]`` orders them one way and ``v_s`` ``[B]`` the other."""
    products = (v_t[:, None] - v_t) * (v_s[:, None] - v_s)
    return int((products < 0).sum()) // 2


def opposite_order() -> OppositeOrder:
    """Counter-example to Theorem equi-hga-hc as printed: aligned everywhere, not calibrated.

    Slopes (-1, 1, -1.1, 1) and (-3, 1, -.5, 1). The direction of a gradient says nothing about its size, so
    the two losses disagree about which of two valleys is deeper.
    """
    slopes = ((-1.0, 1.0, -1.1, 1.0), (-3.0, 1.0, -0.5, 1.0))
    loss_t, loss_s = (tuple(float(v) for v in np.cumsum((0.0, *steps))) for steps in slopes)
    return OppositeOrder(loss_t, loss_s, (1, 3))


def path_order(loss_t: LossOfLambda, loss_s: LossOfLambda, path: Tensor) -> PathOrder:
    """What alignment does imply: the same order along every path on which L_T is monotone.

    If grad L_S = c(lambda) grad L_T with c > 0, both losses rise and fall together along any path. So a path
    on which L_T only rises has no discordant pair; a path over a hill may. `violating_path` is the converse,
    which leaves out points where a gradient vanishes.

    Args:
        loss_t, loss_s: Differentiable functions of lambda ``[H]``.
        path: Points ``[M, H]``, dense enough that L_T is monotone between neighbours where it is at them.
    """
    v_t, v_s = vmap(loss_t)(path), vmap(loss_s)(path)
    g_t, g_s = vmap(grad(loss_t))(path), vmap(grad(loss_s))(path)
    steps = v_t.diff()
    return PathOrder(
        monotone=bool((steps >= 0).all() or (steps <= 0).all()),
        discordant=discordant_pairs(v_t, v_s),
        cosine=float(torch.nn.functional.cosine_similarity(g_t, g_s).min()),
    )


def violating_path(loss_t: LossOfLambda, loss_s: LossOfLambda, lam: Tensor, length: float) -> Tensor:
    """The converse: where gradients are not aligned, a short path on which L_T rises and L_S falls.

    Its direction is g_T / ||g_T|| - g_S / ||g_S||, whose slope is ||g_T|| (1 - cos) for L_T and
    -||g_S|| (1 - cos) for L_S.

    Args:
        loss_t, loss_s: Differentiable functions of lambda ``[H]``.
        lam: A point ``[H]`` with cosine below 1.
        length: Length of the path; the statement is about short ones.

    Returns:
        The two ends ``[2, H]``.
    """
    g_t, g_s = grad(loss_t)(lam), grad(loss_s)(lam)
    if not g_t.norm() * g_s.norm() > 0:
        raise InputError("lam: a gradient vanishes there, so it has no direction; take another point")
    direction = g_t / g_t.norm() - g_s / g_s.norm()
    if not direction.norm() > 1e-6:
        raise InputError("lam: the gradients are aligned there, so no such path exists")
    step = length * direction / direction.norm()
    return torch.stack([lam, lam + step])


def scale_bound(loss_t: LossOfLambda, loss_s: LossOfLambda, path: Tensor) -> ScaleBound:
    """What implies calibration: alignment up to *one* scale, grad L_S = a grad L_T with the same a > 0.

    Then L_S = a L_T + b on a connected set, and every pair keeps its order. With an error, the integral of
    ||grad L_S - a grad L_T|| along a path bounds how far L_S - a L_T drifts, and every pair whose values
    differ by more than bound / a still keeps its order. `hcdc.hypergrad.scaled_l2` is this distance.

    Args:
        loss_t, loss_s: Differentiable functions of lambda ``[H]``.
        path: Corners of straight pieces ``[M, H]``, float64; each piece gets a 32-point Gauss rule.
    """
    pieces = path.diff(dim=0)
    points = path[:-1, None] + (NODES[:, None] + 1) / 2 * pieces[:, None]
    g_t, g_s = (vmap(grad(loss))(points.flatten(0, 1)) for loss in (loss_t, loss_s))
    scale = (g_s * g_t).sum() / (g_t * g_t).sum()
    weights = (WEIGHTS / 2 * pieces.norm(dim=1)[:, None]).flatten()
    rest = (g_s - scale * g_t).norm(dim=1)
    change_t, change_s = (loss(path[-1]) - loss(path[0]) for loss in (loss_t, loss_s))
    return ScaleBound(
        scale=float(scale),
        deviation=float((change_s - scale * change_t).abs()),
        bound=float(weights @ rest),
        change=float(change_t.abs()),
    )
