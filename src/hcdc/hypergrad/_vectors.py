"""Parameters as vectors: inner products and sums of dicts of tensors, lane by lane under ``vmap``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hcdc.networks import Params

MatVec = Callable[[Params], Params]


def dot(a: Params, b: Params) -> Tensor:
    """<a, b>, a scalar."""
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()


def norm(a: Params) -> Tensor:
    """||a||, a scalar."""
    return dot(a, a).sqrt()


def add(a: Params, b: Params, scale: Tensor | float = 1.0) -> Params:
    """a + scale * b."""
    return {name: a[name] + scale * b[name] for name in a}


def scaled(a: Params, scale: Tensor | float) -> Params:
    """scale * a."""
    return {name: scale * tensor for name, tensor in a.items()}


def select(mask: Tensor, a: Params, b: Params) -> Params:
    """``a`` where the scalar ``mask`` is true, else ``b``; not even NaN leaks from the other side."""
    return {name: torch.where(mask, a[name], b[name]) for name in a}


def combine(weights: Tensor, rows: Params) -> Params:
    """sum_h weights_h rows_h, for weights ``[H]`` and tensors with leading dimension H."""
    return {name: torch.tensordot(weights, tensor, dims=1) for name, tensor in rows.items()}


def inner_each(rows: Params, a: Params) -> Tensor:
    """<rows_h, a> for every h, ``[H]``."""
    return torch.stack([(rows[name] * a[name]).flatten(1).sum(1) for name in a]).sum(0)


def size(a: Params) -> int:
    """P, the number of entries of all parameters."""
    return sum(tensor.numel() for tensor in a.values())


def flatten(a: Params) -> Tensor:
    """All parameters as one vector ``[P]``."""
    return torch.cat([tensor.reshape(-1) for tensor in a.values()])


def unflatten(vector: Tensor, like: Params) -> Params:
    """The inverse of `flatten`: tensors with the names and shapes of ``like``."""
    parts = torch.split(vector, [tensor.numel() for tensor in like.values()])
    return {name: part.reshape(tensor.shape) for part, (name, tensor) in zip(parts, like.items())}
