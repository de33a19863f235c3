"""3 x 3 convolutions of lanes with few channels, for channels_last images on CUDA in Triton.

With 16 to 64 channels per lane these convolutions are bound by memory. A program multiplies a tile of pixels
of one lane by the lane's nine matrices. The slope in the weights is a sum over pixels: programs sum shares of
them, and another kernel adds up the shares in a fixed order, so equal inputs give equal outputs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

WIDTHS = (16, 32, 64)
"""Numbers of channels per lane that the kernels support."""

ROWS, WARPS, STAGES = 128, 4, 3
"""Pixels per tile, warps per program and tiles loaded ahead."""

SUM_ROWS, SUM_WARPS, PROGRAMS = 64, 4, 512
"""Pixels per tile and warps per program of the slope in the weights, and about how many programs."""


@triton.jit
def _near(pixel, tap, pixels, height, width):
    """The pixels at place ``tap`` of the 3 x 3 around each, and whether they are in the image."""
    i, j = pixel // width % height + tap // 3 - 1, pixel % width + tap % 3 - 1
    inside = (pixel < pixels) & (i >= 0) & (i < height) & (j >= 0) & (j < width)
    return pixel + (tap // 3 - 1) * width + tap % 3 - 1, inside


@triton.jit
def _convolve(x, weight, out, pixels, height, width, channels, BACK: tl.constexpr, K: tl.constexpr,
              ROWS: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """Outputs of a tile of pixels of one lane, or (back) slopes in the inputs from those in the outputs."""
    pixel, lane = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    own = tl.arange(0, K)
    c = lane * K + own
    if BACK:  # [outputs, inputs], from the last tap to the first
        of_weight = (c[:, None] * 9 + 8) * K + own[None, :]
    else:
        of_weight = c[None, :] * 9 * K + own[:, None]
    found = tl.zeros([ROWS, K], tl.float32)
    for tap in tl.range(9, num_stages=STAGES):
        near, inside = _near(pixel, tap, pixels, height, width)
        tile = tl.load(x + (near[:, None] * channels + c[None, :]), inside[:, None], 0.0)
        matrix = tl.load(weight + of_weight + (-tap * K if BACK else tap * K))
        found = tl.dot(tile, matrix, found)
    mask = (pixel < pixels)[:, None]
    tl.store(out + (pixel[:, None] * channels + c[None, :]), found.to(out.dtype.element_ty), mask)


@triton.jit
def _sum(x, upstream, sums, pixels, height, width, channels, own, K: tl.constexpr, ROWS: tl.constexpr):
    """Slopes in three taps of a lane's weights, over a share of the pixels."""
    share, lane, line = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    each = tl.arange(0, K)
    c = lane * K + each
    left = tl.zeros([K, K], tl.float32)
    middle = tl.zeros([K, K], tl.float32)
    right = tl.zeros([K, K], tl.float32)
    last = tl.minimum((share + 1) * own, pixels)
    for start in range(share * own, last, ROWS):
        pixel = start + tl.arange(0, ROWS)
        at = pixel[:, None] * channels + c[None, :]
        u = tl.trans(tl.load(upstream + at, (pixel < last)[:, None], 0.0))
        near, inside = _near(pixel, line * 3, last, height, width)
        left = tl.dot(u, tl.load(x + (near[:, None] * channels + c[None, :]), inside[:, None], 0.0), left)
        near, inside = _near(pixel, line * 3 + 1, last, height, width)
        middle = tl.dot(u, tl.load(x + (near[:, None] * channels + c[None, :]), inside[:, None], 0.0), middle)
        near, inside = _near(pixel, line * 3 + 2, last, height, width)
        right = tl.dot(u, tl.load(x + (near[:, None] * channels + c[None, :]), inside[:, None], 0.0), right)
    at = ((share * channels + c[:, None]) * 9 + line * 3) * K + each[None, :]
    tl.store(sums + at, left)
    tl.store(sums + at + K, middle)
    tl.store(sums + at + 2 * K, right)


@triton.jit
def _add(sums, out, size, shares, ENTRIES: tl.constexpr):
    """Add up the shares."""
    at = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    found = tl.zeros([ENTRIES], tl.float32)
    for share in range(shares):
        found += tl.load(sums + share * size + at, at < size, 0.0)
    tl.store(out + at, found.to(out.dtype.element_ty), at < size)


def _run(x: Tensor, weight: Tensor, back: bool) -> Tensor:
    n, c, h, w = x.shape
    k, out = weight.shape[1], torch.empty_like(x)
    grid = (triton.cdiv(n * h * w, ROWS), c // k)
    _convolve[grid](x, weight, out, n * h * w, h, w, c, back, k, ROWS, STAGES, num_warps=WARPS)
    return out


def _of_weight(x: Tensor, upstream: Tensor, weight: Tensor) -> Tensor:
    n, c, h, w = x.shape
    k, pixels, out = weight.shape[1], n * h * w, torch.empty_like(weight)
    shares = triton.cdiv(PROGRAMS, 3 * (c // k))
    own = triton.cdiv(triton.cdiv(pixels, shares), SUM_ROWS) * SUM_ROWS
    shares = triton.cdiv(pixels, own)
    sums = torch.empty(shares, weight.numel(), device=x.device)
    _sum[(shares, c // k, 3)](x, upstream, sums, pixels, h, w, c, own, k, SUM_ROWS, num_warps=SUM_WARPS)
    _add[(triton.cdiv(weight.numel(), 256),)](sums, out, weight.numel(), shares, 256, num_warps=4)
    return out


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _run(x, weight, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        of_x = _run(upstream, weight, True) if ctx.needs_input_grad[0] else None
        return of_x, _of_weight(x, upstream, weight)


def convolve_3x3(x: Tensor, weight: Tensor) -> Tensor:
    """Grouped convolution with 3 x 3 kernels that keeps the image size; first derivatives only.

    Args:
        x: Images ``[n, g k, h, w]`` with k one of `WIDTHS`.
        weight: ``[g k, k, 3, 3]``; both are channels_last and of one type.
    """
    found: Tensor = _Convolution.apply(x, weight)
    return found
