"""The distance between synthetic and original hypergradients, eq. (HCDC), and its gradient in S_val.

The gradient uses the adjoint form. The synthetic hypergradient is

    g_S = d L^val(S_val) / d lambda - M^T A^-1 (d L^val(S_val) / d theta)

with M = d^2 L^train / d theta d lambda and A the curvature. S_val enters it linearly, through the two
gradients of the validation loss. With u = d D / d g_S (H numbers per lambda) and A symmetric, a change of
S_val changes D by

    d D = <u, d (d L^val / d lambda)> - <w, d (d L^val / d theta)>,    A w = M u.

So the gradient of D in S_val is the gradient of the slope of L^val(S_val) along (-w, u) in (theta, lambda).
It takes one further solve, which is not recorded, and one extra backward pass. If the best response J is
known, -w = J u and no solve is needed. The result is the exact derivative of the computed D for solvers that
are linear in the right-hand side (Neumann, identity, exact); for conjugate gradients, up to convergence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp, vmap

from hcdc.core.errors import InputError, unknown_name
from hcdc.hypergrad._curvature import get_curvature, mixed_product
from hcdc.hypergrad._hypergradient import batched_hypergradient, batched_response_hypergradient, check_batch
from hcdc.hypergrad._solvers import Solver, full_precision
from hcdc.hypergrad._vectors import combine, scaled
from hcdc.networks import Params
from hcdc.tasks import Task

Distance = Callable[[Tensor, Tensor], Tensor]


def cosine(g_T: Tensor, g_S: Tensor) -> Tensor:
    """The paper's D_c: 1 - cos(g_T, g_S), mean over the batch.

    Args:
        g_T, g_S: Original and synthetic hypergradients ``[B, H]`` with H > 1; a zero vector has distance 1.
    """
    if g_S.shape[-1] == 1:
        raise InputError(
            "distance 'cosine': with a one-dimensional lambda the cosine is 1 or -1 and has no gradient; "
            "choose distance 'scaled_l2'"
        )
    return (1 - (_direction(g_T) * _direction(g_S)).sum(-1)).mean()


def scaled_l2(g_T: Tensor, g_S: Tensor) -> Tensor:
    """||a g_S - g_T||^2 / ||g_T||^2 over the whole batch, with one fitted scale a >= 0.

    Distance 0 means L_S = a L_T + b along connected lambdas, which preserves every ranking; a cosine per
    lambda does not. a = max(0, <g_S, g_T> / <g_S, g_S>) minimises the distance, so by the envelope theorem
    the gradient in g_S treats a as constant. If <g_S, g_T> <= 0 over the batch, then a = 0: the distance is 1
    and has no gradient.

    Args:
        g_T, g_S: Original and synthetic hypergradients ``[B, H]``.
    """
    fitted = (g_S * g_T).sum() / _or_one((g_S * g_S).sum())
    scale = fitted.detach().clamp_min(0)
    return ((scale * g_S - g_T) ** 2).sum() / _or_one((g_T * g_T).sum())


def _direction(g: Tensor) -> Tensor:
    return g / _or_one(torch.linalg.vector_norm(g, dim=-1, keepdim=True))


def _or_one(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, 1)


DISTANCES: dict[str, Distance] = {"cosine": cosine, "scaled_l2": scaled_l2}


def alignment_loss(g_T: Tensor, g_S: Tensor, distance: str = "cosine") -> Tensor:
    """The distance D between original and synthetic hypergradients ``[B, H]``, a scalar; see `DISTANCES`."""
    if distance not in DISTANCES:
        raise unknown_name("distance", distance, DISTANCES)
    if g_T.shape != g_S.shape or g_T.dim() != 2:
        raise InputError(
            "g_T and g_S: two batches [B, H] of hypergradients are needed, "
            f"got shapes {tuple(g_T.shape)} and {tuple(g_S.shape)}"
        )
    return DISTANCES[distance](g_T, g_S)


@torch.no_grad()
@full_precision()
def alignment_gradient(
    task: Task,
    params: Params,
    lam: Tensor,
    g_T: Tensor,
    s_train: Any,
    s_val: Any,
    solver: Solver,
    curvature: str = "gauss_newton",
    distance: str = "cosine",
    chunk_size: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """D(g_T, g_S(S_val)) and its gradient in S_val by the adjoint form: two solves per lambda.

    Args:
        task: What is learned.
        params: theta^S ``[B, ...]``, trained on ``s_train`` at each lambda.
        lam: lambda ``[B, H]``.
        g_T: Original hypergradients ``[B, H]``.
        s_train: The synthetic training set.
        s_val: The synthetic validation set.
        solver: See `hcdc.hypergrad.SOLVERS`.
        curvature: ``"gauss_newton"`` or ``"hessian"``.
        distance: See `DISTANCES`.
        chunk_size: Most lambdas at once; None means all.

    Returns:
        The loss and ``{name: gradient}`` with the names of ``task.tensors(s_val)``.
    """
    g_S = batched_hypergradient(task, params, lam, s_train, s_val, solver, curvature, chunk_size).total
    loss, u = _loss_and_weights(g_T, g_S, distance)

    def adjoint(p: Params, l: Tensor, weights: Tensor) -> Params:
        product = get_curvature(curvature)(task, p, l, s_train)
        return scaled(solver(product, mixed_product(task, p, l, s_train, weights)).x, -1.0)

    moved: Params = vmap(adjoint, chunk_size=chunk_size)(params, lam, u)
    return loss, _directional_gradient(task, params, lam, moved, u, s_val, chunk_size)


@torch.no_grad()
@full_precision()
def response_alignment_gradient(
    task: Task,
    params: Params,
    lam: Tensor,
    response: Params,
    g_T: Tensor,
    s_val: Any,
    distance: str = "cosine",
    chunk_size: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """`alignment_gradient` for a known response J ``[B, H, ...]``, without a solve.

    Many steps of S_val can share one J, as long as theta and lambda do not change.
    """
    g_S = batched_response_hypergradient(task, params, lam, response, s_val, chunk_size)
    loss, u = _loss_and_weights(g_T, g_S, distance)
    moved: Params = vmap(combine)(u, response)
    return loss, _directional_gradient(task, params, lam, moved, u, s_val, chunk_size)


def _loss_and_weights(g_T: Tensor, g_S: Tensor, distance: str) -> tuple[Tensor, Tensor]:
    """D and u = d D / d g_S ``[B, H]``."""
    u, loss = grad_and_value(lambda g: alignment_loss(g_T, g, distance))(g_S)
    return loss, u


def _directional_gradient(
    task: Task, params: Params, lam: Tensor, moved: Params, u: Tensor, s_val: Any, chunk_size: int | None
) -> dict[str, Tensor]:
    """Gradient in S_val of the slope of L^val(S_val) along (moved, u) in (theta, lambda), summed over b."""
    check_batch(params, lam)

    def part(tensors: dict[str, Tensor], p: Params, l: Tensor, d: Params, w: Tensor) -> Tensor:
        data = task.replace(s_val, tensors)

        def one(p: Params, l: Tensor, d: Params, w: Tensor) -> Tensor:
            slope: Tensor = jvp(lambda q, at: task.val_loss(q, at, data), (p, l), (d, w))[1]
            return slope

        result: Tensor = vmap(one)(p, l, d, w).sum()
        return result

    tensors = {name: tensor.detach() for name, tensor in task.tensors(s_val).items()}
    total = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    width = len(lam) if chunk_size is None else chunk_size
    for start in range(0, len(lam), width):
        rows = slice(start, start + width)
        piece = grad(part)(
            tensors,
            {name: tensor[rows] for name, tensor in params.items()},
            lam[rows],
            {name: tensor[rows] for name, tensor in moved.items()},
            u[rows],
        )
        total = {name: total[name] + piece[name] for name in total}
    return total
