"""Statistics of feature maps and of the blocks between them."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.seeds import stream


def entropy(x: Tensor) -> float:
    """Entropy of the shares of variance of the principal components of the channels of ``[n, c, h, w]``."""
    covariance = torch.cov(x.detach().transpose(0, 1).flatten(1)).double().view(x.shape[1], x.shape[1])
    share = torch.linalg.eigvalsh(covariance).clamp_min(0)
    return float(torch.special.entr(share / share.sum()).sum())


@lru_cache(maxsize=8)
def _signs(seed: int, shape: torch.Size) -> Tensor:
    return torch.randint(2, shape, generator=stream(seed, "free", "signs"), dtype=torch.int8) * 2 - 1


def gain(source: Tensor, target: Tensor, seed: int) -> float:
    """Largest singular value of the mean Jacobian of a pixel's channels, from one pass of random signs.

    Where ``target`` is smaller, the pixels of ``source`` behind one of its pixels count as channels.
    """
    signs = _signs(seed, target.shape).to(target)
    (back,) = torch.autograd.grad(target, source, signs, retain_graph=True)
    stride = max(math.ceil(source.shape[k] / target.shape[k]) for k in (-1, -2))
    missing = [stride * target.shape[k] - source.shape[k] for k in (-1, -2)]
    back = F.pixel_unshuffle(F.pad(back, (0, missing[0], 0, missing[1])), stride)
    rows, columns = (g.transpose(0, 1).flatten(1) for g in (back, signs))
    return float(torch.linalg.matrix_norm((rows @ columns.t()).double() / rows.shape[1], 2))
