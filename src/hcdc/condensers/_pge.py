"""GCond's adjacency: an MLP on every ordered pair of nodes (x_i, x_j), symmetrised, through a sigmoid.

The plain form applies a 3-layer MLP with batch normalisation to n^2 concatenated pairs. Three identities make
it cheaper without changing the result:

- the first layer splits, ``W [x_i; x_j] = A x_i + B x_j``: n rows instead of n^2;
- over all ordered pairs, ``mean(a_i + b_j) = mean(a) + mean(b)`` and ``var(a_i + b_j) = var(a) + var(b)``:
  the first normalisation also needs only n rows;
- a bias before a normalisation cancels, so the first two layers have none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

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
    left, right = x @ params["left"], x @ params["right"]
    left_var, left_mean = torch.var_mean(left, 0, correction=0)
    right_var, right_mean = torch.var_mean(right, 0, correction=0)
    scale = params["scale1"] * (left_var + right_var + EPS).rsqrt()
    left, right = (left - left_mean) * scale, (right - right_mean) * scale + params["shift1"]
    hidden = torch.relu_(left[:, None] + right[None]).view(n * n, -1) @ params["middle"]
    hidden = F.batch_norm(hidden, None, None, params["scale2"], params["shift2"], training=True, eps=EPS)
    pairs = (torch.relu_(hidden) @ params["out"] + params["bias"]).view(n, n)
    off_diagonal = 1 - torch.eye(n, dtype=x.dtype, device=x.device)
    return torch.sigmoid((pairs + pairs.t()) / 2) * off_diagonal
