"""Grouped convolutions and pools as dense matrices, which CUDA multiplies fast."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor


@functools.cache
def _identity(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The identity matrix; kept for good, since recorded steps read it."""
    return torch.eye(size, dtype=dtype).to(
        device
    )  # copied from the host, so ready before any stream reads it


def block_diagonal(weight: Tensor, groups: int) -> Tensor:
    """Kernels of a grouped convolution ``[g o, i, k, k]`` as kernels of a plain one ``[g o, g i, k, k]``.

    The result is in channels_last order. One non-finite channel spoils all groups.
    """
    outputs, inputs, *size = weight.shape
    rows = weight.permute(0, 2, 3, 1).reshape(groups, outputs // groups, *size, 1, inputs)
    own = _identity(groups, weight.device, weight.dtype).view(groups, 1, 1, 1, groups, 1)
    return (rows * own).reshape(outputs, *size, groups * inputs).permute(0, 3, 1, 2)


@functools.cache
def _pool_matrix(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The pool of an edge as a matrix ``[h w, h w]``; kept for good, since recorded steps read it."""
    bands = []
    for size in (height, width):
        at = torch.arange(size)
        bands.append((at[:, None] - at).abs() <= 1)
    return _means(*bands).to(dtype).to(device)  # as `_identity`


@functools.cache
def _halving_matrix(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The pool of a reduction as a matrix ``[h w / 4, h w]``, sizes rounded up; kept for good."""
    bands = []
    for size in (height, width):
        bands.append(torch.arange(math.ceil(size / 2))[:, None] == torch.arange(size) // 2)
    return _means(*bands).to(dtype).to(device)


def _means(rows: Tensor, columns: Tensor) -> Tensor:
    """Averages over row ranges ``[a, h]`` and column ranges ``[b, w]``, as a matrix ``[a b, h w]``."""
    one, two = (mask / mask.sum(1, keepdim=True).double() for mask in (rows, columns))
    return torch.kron(one, two)


def _product(matrix: Tensor, x: Tensor, height: int) -> Tensor:
    """Apply a linear map of pixels ``[a b, h w]`` to channels_last images ``[n, c, h, w]``."""
    n, c, h, w = x.shape
    found: Tensor = matrix @ x.permute(0, 2, 3, 1).reshape(n, h * w, c)
    return found.view(n, height, -1, c).permute(0, 3, 1, 2)
