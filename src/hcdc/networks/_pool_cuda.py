"""The pools of cells for channels_last images on CUDA in Triton: one pass over memory each way."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS, COLUMNS, WARPS = 64, 64, 8
"""Pixels and channels per tile, and warps per program."""


@triton.jit
def _mean_3x3(x, out, pixels, height, width, channels, BACK: tl.constexpr, ROWS: tl.constexpr,
              COLUMNS: tl.constexpr):  # fmt: skip
    """Means over the 3 x 3 pixels around each pixel, or (back) slopes in the pixels."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    i, j = pixel // width % height, pixel % width
    found = tl.zeros([ROWS, COLUMNS], tl.float32)
    for k in tl.static_range(9):
        down, right = i + k // 3 - 1, j + k % 3 - 1
        there = (pixel < pixels) & (down >= 0) & (down < height) & (right >= 0) & (right < width)
        at = (pixel + (k // 3 - 1) * width + k % 3 - 1)[:, None] * channels + c[None, :]
        v = tl.load(x + at, there[:, None] & (c < channels)[None, :], 0.0).to(tl.float32)
        found += v / _size(down, right, height, width)[:, None] if BACK else v
    if not BACK:
        found = found / _size(i, j, height, width)[:, None]
    at = pixel[:, None] * channels + c[None, :]
    mask = (pixel < pixels)[:, None] & (c < channels)[None, :]
    tl.store(out + at, found.to(out.dtype.element_ty), mask)


@triton.jit
def _size(i, j, height, width):
    """How many of the 3 x 3 pixels around a pixel are in the image."""
    rows = 3 - (i == 0).to(tl.int32) - (i == height - 1).to(tl.int32)
    columns = 3 - (j == 0).to(tl.int32) - (j == width - 1).to(tl.int32)
    return (rows * columns).to(tl.float32)


def _run(x: Tensor, back: bool) -> Tensor:
    n, c, h, w = x.shape
    out, columns = torch.empty_like(x), min(COLUMNS, triton.next_power_of_2(c))
    grid = (triton.cdiv(n * h * w, ROWS), triton.cdiv(c, columns))
    _mean_3x3[grid](x, out, n * h * w, h, w, c, back, ROWS, columns, num_warps=WARPS)
    return out


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _run(x, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        return _run(upstream.contiguous(memory_format=torch.channels_last), True)


def pool_3x3(x: Tensor) -> Tensor:
    """Mean over 3 x 3 pixels of channels_last ``[n, c, h, w]`` without padding; first derivatives only."""
    found: Tensor = _Pool.apply(x)
    return found
