"""Alignment with anchors: hypergradients agree in direction and values agree in order, at the same points.

An original hypergradient costs a training on the original data, which also gives the value L_T there. The
anchored objective uses both: D(g_T, g_S) + weight * (1 - corr(rank(L_T), L_S)). Alignment fixes the shape of
L_S along each trajectory; the anchors fix how far apart the trajectories lie, which the cosine cannot see.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp, vmap

from hcdc.core.ranks import standard_tensor_ranks
from hcdc.hypergrad._alignment import alignment_loss
from hcdc.hypergrad._solvers import full_precision
from hcdc.hypergrad._vectors import combine, inner_each
from hcdc.networks import Params
from hcdc.tasks import Task


def anchored_loss(g_T: Tensor, v_T: Tensor, g_S: Tensor, v_S: Tensor, distance: str, weight: float) -> Tensor:
    """D(g_T, g_S) + weight * (1 - Pearson(rank(v_T), v_S)), a scalar.

    Args:
        g_T, g_S: Original and synthetic hypergradients ``[B, H]``.
        v_T, v_S: Original and synthetic validation losses ``[B]``.
        distance: See `hcdc.hypergrad.DISTANCES`.
        weight: Weight of the anchors; 0 gives the paper's alignment loss.
    """
    loss = alignment_loss(g_T, g_S, distance)
    if weight == 0 or len(v_T) < 2:
        return loss
    centred = v_S - v_S.mean()
    spread = centred.square().mean().sqrt().clamp_min(1e-12)
    return loss + weight * (1 - (standard_tensor_ranks(v_T) * centred / spread).mean())


def values_and_hypergradients(
    task: Task, params: Params, lam: Tensor, response: Params, val: Any
) -> tuple[Tensor, Tensor]:
    """L^val ``[B]`` and its hypergradient ``[B, H]`` at every lambda, given the response J.

    Args:
        params, lam, response: theta ``[B, ...]``, lambda ``[B, H]`` and J ``[B, H, ...]``.
        val: The validation set.
    """

    def one(p: Params, l: Tensor, j: Params) -> tuple[Tensor, Tensor]:
        (of_params, direct), value = grad_and_value(task.val_loss, argnums=(0, 1))(p, l, val)
        return value, inner_each(j, of_params) + direct

    result: tuple[Tensor, Tensor] = vmap(one)(params, lam, response)
    return result


@torch.no_grad()
@full_precision()
def anchored_gradient(
    task: Task,
    params: Params,
    lam: Tensor,
    response: Params,
    g_T: Tensor,
    v_T: Tensor,
    s_val: Any,
    distance: str = "cosine",
    weight: float = 0.0,
    index: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The anchored loss and its gradient in S_val: a gradient pass, a slope pass, a backward pass; no solve.

    With u = dD/dg_S and c = dD/dv_S, this is the gradient of sum_b slope_b + c_b * value_b in S_val, where
    slope_b is the derivative of L^val(S_val) along (J u, u) in (theta, lambda).

    Args:
        params, lam, response: theta^S ``[B, ...]``, lambda ``[B, H]`` and J ``[B, H, ...]``.
        g_T, v_T: Original hypergradients ``[B, H]`` and values ``[B]``.
        s_val: The synthetic validation set.
        distance, weight: See `anchored_loss`.
        index: Examples of S_val in the loss ``[m]`` (a mini-batch, see `Task.subset`); None means all.

    Returns:
        The loss and ``{name: gradient}`` with the names of ``task.tensors(s_val)``.
    """

    def batch(data: Any) -> Any:
        return data if index is None else task.subset(data, index)

    v_S, g_S = values_and_hypergradients(task, params, lam, response, batch(s_val))

    def objective(g: Tensor, v: Tensor) -> Tensor:
        return anchored_loss(g_T, v_T, g, v, distance, weight)

    (u, c), loss = grad_and_value(objective, argnums=(0, 1))(g_S, v_S)
    moved: Params = vmap(combine)(u, response)

    def total(tensors: dict[str, Tensor]) -> Tensor:
        data = batch(task.replace(s_val, tensors))

        def one(p: Params, l: Tensor, d: Params, w: Tensor, weight_of_value: Tensor) -> Tensor:
            found = jvp(lambda q, at: task.val_loss(q, at, data), (p, l), (d, w))
            value: Tensor = found[0]
            slope: Tensor = found[1]
            return slope + weight_of_value * value

        result: Tensor = vmap(one)(params, lam, moved, u, c).sum()
        return result

    return loss, grad(total)({name: tensor.detach() for name, tensor in task.tensors(s_val).items()})
