"""GCond's adjacency: an MLP on every ordered pair of nodes (x_i, x_j), symmetrised, through a sigmoid.

The plain form applies a 3-layer MLP with batch normalisation to n^2 concatenated pairs. Three identities make
it cheaper without changing the result:

- the first layer splits, ``W [x_i; x_j] = A x_i + B x_j``: n rows instead of n^2;
- over all ordered pairs, ``mean(a_i + b_j) = mean(a) + mean(b)`` and ``var(a_i + b_j) = var(a) + var(b)``:
  the first normalisation also needs only n rows;
- a bias before a normalisation cancels, so the first two layers have none.

The gradient is in closed form as well (`_Pairs`): half the passes over the n^2 pairs, and none for parameters
that are not learned.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from hcdc.condensers._product import product

relu_backward = (
    torch.ops.aten.threshold_backward.grad_input
)  # torch.where takes thirty times as long on a CPU
NAMES = ("left", "right", "scale1", "shift1", "middle", "scale2", "shift2", "out", "bias")
PGEParams = dict[str, Tensor]
EPS = 1e-5  # of both batch normalisations


def init_pge(features: int, hidden: int, generator: torch.Generator) -> PGEParams:
    """Fresh parameters: weights uniform in +-1/sqrt(inputs), normalisations at scale 1 and shift 0."""

    def uniform(*shape: int, inputs: int) -> Tensor:
        return (torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(inputs)

    return {
        "left": uniform(features, hidden, inputs=2 * features),
        "right": uniform(features, hidden, inputs=2 * features),
        "scale1": torch.ones(hidden),
        "shift1": torch.zeros(hidden),
        "middle": uniform(hidden, hidden, inputs=hidden),
        "scale2": torch.ones(hidden),
        "shift2": torch.zeros(hidden),
        "out": uniform(hidden, inputs=hidden),
        "bias": uniform(1, inputs=hidden),
    }


def pge_adjacency(x: Tensor, params: PGEParams) -> Tensor:
    """Weighted adjacency ``[n, n]`` for features ``[n, d]``: symmetric, entries in (0, 1), zero diagonal."""
    n = x.shape[0]
    pairs: Tensor = _Pairs.apply(x, *[params[k] for k in NAMES])  # type: ignore[no-untyped-call]
    off_diagonal = 1 - torch.eye(n, dtype=x.dtype, device=x.device)
    return torch.sigmoid((pairs + pairs.t()) / 2) * off_diagonal


class _Pairs(Function):
    """The MLP's output for all ordered pairs.

    With a, b the centred rows of ``x left`` and ``x right``, and N = n^2 pairs (i, j):
    ``h = relu(s1 (a_i + b_j) + shift1)``, ``u = h M - mean``, ``v = relu(s2 u + shift2)``, output
    ``v out + bias``, where ``s1 = scale1 / sqrt(var(a) + var(b) + eps)`` and
    ``s2 = scale2 / sqrt(var(u) + eps)``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *params: Tensor) -> Tensor:
        """Outputs ``[n, n]`` for features ``[n, d]``; the parameters in the order of `NAMES`."""
        left, right, scale1, shift1, middle, scale2, shift2, out, bias = params
        n, width = len(x), len(out)
        a, b = product(x, left), product(x, right)
        a, b = a - a.mean(0), b - b.mean(0)
        inverse1 = (a.square().mean(0) + b.square().mean(0) + EPS).rsqrt()
        s1 = scale1 * inverse1
        h = ((a * s1)[:, None] + torch.addcmul(shift1, b, s1)[None]).relu_().view(n * n, width)
        mean = h.mean(0)
        u = product(h, middle, -(mean @ middle))
        v = u.square()  # the arrays of all pairs are used again: together they do not fit the cache
        inverse2 = (v.mean(0) + EPS).rsqrt()
        torch.addcmul(shift2, u, scale2 * inverse2, out=v).relu_()
        ctx.save_for_backward(x, a, b, inverse1, h, mean, u, inverse2, v, *params)
        return (v @ out + bias).view(n, n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, a, b, inverse1, h, mean, u, inverse2, v, *params = ctx.saved_tensors
        left, right, scale1, _, middle, scale2, _, out, _ = params
        (g,) = gradients
        n, pairs = len(g), g.reshape(-1)

        dv = torch.outer(pairs, out)
        relu_backward(dv, v, 0, grad_input=dv)
        shift2, out_gradient = dv.sum(0), v.t() @ pairs
        scale2_u = torch.mul(dv, u, out=v).sum(0)
        s2 = scale2 * inverse2
        du = dv.addcmul_(u, scale2_u * (-inverse2.square() / n**2))  # but for - shift2 / N, and times s2
        back = (middle * s2).t()
        dh = product(du, back, (shift2 @ back) / -(n**2))
        dh = relu_backward(dh, h, 0, grad_input=dh).view(n, n, -1)
        da, db = dh.sum(1), dh.sum(0)
        s1_gradient = (da * a).sum(0) + (db * b).sum(0)
        s1, pull = scale1 * inverse1, s1_gradient * scale1 * inverse1**3 / n
        shift1, da, db = db.sum(0), da - da.mean(0), db - db.mean(0)
        da, db = (torch.addcmul(d * s1, rows, pull, value=-1) for d, rows in ((da, a), (db, b)))
        by_x = product(da, left.t()) + product(db, right.t()) if ctx.needs_input_grad[0] else None
        if not any(ctx.needs_input_grad[1:]):
            return (by_x, *[None] * len(params))
        dm = (product(h.t(), du) - torch.outer(mean, shift2)) * s2
        first = product(x.t(), da), product(x.t(), db), s1_gradient * inverse1, shift1
        return by_x, *first, dm, scale2_u * inverse2, shift2, out_gradient, pairs.sum(0, True)
