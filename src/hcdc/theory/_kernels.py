"""Copies of signals and the kernel size of a linear 1D-CNN (Proposition sdc-1dcnns)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

from hcdc.core.errors import InputError
from hcdc.datasets import Graph, Nodes
from hcdc.tasks import LinearConvTask


@dataclass(frozen=True)
class KernelTransfer:
    """The two sides of `kernel_transfer`.

    Attributes:
        small: ||difference of gradients|| of the smaller kernel K' at [alpha, W].
        large: The same for the larger kernel K at alpha padded with zeros; never less than ``small``.
    """

    small: float
    large: float


def kernel_gradient(x: Tensor, y: Tensor, alpha: Tensor, w: Tensor) -> Tensor:
    """Gradient of ||(sum_k alpha_k P^k) X W - y||^2 in [alpha, W], ``[2 K + 1 + d]``, eq. (cnn).

    Args:
        x: The signal ``[n, d]``; P is the cyclic shift of its rows.
        y: Labels ``[n]``.
        alpha: The kernel ``[2 K + 1]``.
        w: W ``[d]``.
    """
    nodes = Nodes(Graph(x, None), y)
    task = LinearConvTask(nodes, nodes, order=len(alpha) // 2, form="cnn", ridge=0.0, learn_alpha=True)
    found = grad(task.train_loss)({"alpha": alpha, "W": w}, torch.ones_like(alpha), nodes)
    return torch.cat([found["alpha"], found["W"]])


def kernel_transfer(
    original: tuple[Tensor, Tensor], synthetic: tuple[Tensor, Tensor], alpha: Tensor, w: Tensor, order: int
) -> KernelTransfer:
    """Proposition sdc-1dcnns: a copy that matches kernel K matches every kernel K' <= K.

    The smaller network is the larger one with alpha_k = 0 for |k| > K', and its gradient is a part of the
    larger one's. So for *any* two data sets the mismatch of K' is at most that of K at the padded point.

    Args:
        original, synthetic: ``(X, y)`` of T and S, ``[n, d]`` and ``[n]``, ``[c, d]`` and ``[c]``.
        alpha: A kernel ``[2 K' + 1]``.
        w: W ``[d]``.
        order: K >= K'.
    """
    extra = order - len(alpha) // 2
    if extra < 0:
        raise InputError(f"order {order}: at least {len(alpha) // 2}, the order of alpha, is needed")
    padded = torch.nn.functional.pad(alpha, (extra, extra))
    small, large = (
        float((kernel_gradient(*original, a, w) - kernel_gradient(*synthetic, a, w)).norm())
        for a in (alpha, padded)
    )
    return KernelTransfer(small, large)


def silent_pair(
    x: Tensor, y: Tensor, length: int, order: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A signal that is zero outside a window, and a shorter copy that matches every kernel up to K exactly.

    Gradients depend on X^T P^m X for |m| <= 2 K and on X^T P^k y for |k| <= K. A copy that keeps 2 K zeros
    beside the window has the same ones. At K + 1 the copy wraps round and the match is lost.

    Args:
        x, y: The window, ``[L, d]`` and ``[L]``.
        length: n, the length of the original, at least L + 4 K + 2.
        order: K.

    Returns:
        ``(X, y)`` of T, ``[n, d]`` and ``[n]``, and of S with L + 2 K rows.
    """
    least = len(y) + 4 * order + 2
    if length < least:
        raise InputError(f"length {length}: at least {least} is needed for {len(y)} rows and order {order}")

    def padded(rows: int) -> tuple[Tensor, Tensor]:
        empty = x.new_zeros(rows - len(y), x.shape[1])
        return torch.cat([x, empty]), torch.cat([y, empty[:, 0]])

    return padded(length), padded(len(y) + 2 * order)


@dataclass(frozen=True)
class KernelMoments:
    """How much of a data set the gradients on a trajectory fix.

    Attributes:
        rank: Independent equations that the trajectory gives.
        unknowns: Numbers of the data set that the gradients depend on: (2 K + 1) (d (d + 1) / 2 + d).
    """

    rank: int
    unknowns: int


def kernel_moments(alphas: Tensor, ws: Tensor) -> KernelMoments:
    """Whether matching on a trajectory implies matching everywhere: it does if rank = unknowns.

    The paper asks for 2 K + 1 + d points that span the space of [alpha, W]. Each gives at most 2 K + d
    equations, which can be too few: for K = 1 they are as soon as d >= 5.

    Args:
        alphas: Kernels along the trajectory ``[T, 2 K + 1]``.
        ws: W along the trajectory ``[T, d]``.
    """
    p, d = alphas.shape[1], ws.shape[1]
    rows, columns = torch.triu_indices(d, d)

    def loss(moments: Tensor, alpha: Tensor, w: Tensor) -> Tensor:
        grams, cross = moments[: p * len(rows)].view(p, -1), moments[p * len(rows) :].view(p, d)
        lags = torch.stack([(alpha[: p - m] * alpha[m:]).sum() for m in range(p)])
        return lags @ grams @ (w[rows] * w[columns]) - alpha @ cross @ w

    def gradient(moments: Tensor, alpha: Tensor, w: Tensor) -> Tensor:
        return torch.cat(grad(loss, argnums=(1, 2))(moments, alpha, w))

    zero = alphas.new_zeros(p * len(rows) + p * d)
    system = vmap(jacrev(gradient), in_dims=(None, 0, 0))(zero, alphas, ws).flatten(0, 1)
    return KernelMoments(int(torch.linalg.matrix_rank(system)), len(zero))
