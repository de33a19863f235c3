"""BatchNorm of channels_last images on CUDA in Triton: two kernels forward and two backward.

Cell networks are small. Torch's BatchNorm of bfloat16 images takes six kernels forward and backward, each
slower than its memory traffic requires, and over a quarter of a training step. Here both passes work alike:
one kernel makes partial sums over shares of the pixels, the other adds up the shares and maps the pixels.
Sums have a fixed order, so equal inputs give equal outputs.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-5
log = logging.getLogger("hcdc")
PROGRAMS = 256
"""Approximate number of programs per kernel: two per multiprocessor."""

ROWS, COLUMNS, SHARES = 128, 32, 128
"""Pixels and channels per tile, and the largest number of pixel shares."""


@triton.jit
def _sum(x, upstream, mean, factor, sums, pixels, channels, own, shares, BACK: tl.constexpr,
         ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Sums over a share of the pixels: x and x^2, or (back) the upstream slope and its product with x_hat."""
    share = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < channels
    one = tl.zeros([ROWS, COLUMNS], tl.float32)
    two = tl.zeros([ROWS, COLUMNS], tl.float32)
    if BACK:
        m = tl.load(mean + c, inside, 0.0)[None, :]
        r = tl.load(factor + c, inside, 0.0)[None, :]
    last = tl.minimum((share + 1) * own, pixels)
    for start in range(share * own, last, ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * channels + c[None, :]
        mask = (row[:, None] < last) & inside[None, :]
        v = tl.load(x + at, mask, 0.0).to(tl.float32)
        if BACK:
            u = tl.load(upstream + at, mask, 0.0).to(tl.float32)
            one += u
            two += u * (v - m) * r
        else:
            one += v
            two += v * v
    tl.store(sums + share * channels + c, tl.sum(one, 0), inside)
    tl.store(sums + (shares + share) * channels + c, tl.sum(two, 0), inside)


@triton.jit
def _map(x, upstream, out, scale, shift, mean, factor, of_scale, of_shift, sums, pixels, channels, own,
         epsilon, shares: tl.constexpr, BACK: tl.constexpr, ROWS: tl.constexpr,
         COLUMNS: tl.constexpr):  # fmt: skip
    """Outputs (or slopes in x) for a share of the pixels; the first share stores the per-channel results."""
    share = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < channels
    each = tl.arange(0, shares)[:, None] * channels + c[None, :]
    one = tl.sum(tl.load(sums + each, inside[None, :], 0.0), 0)
    two = tl.sum(tl.load(sums + shares * channels + each, inside[None, :], 0.0), 0)
    g = tl.load(scale + c, inside, 0.0)
    if BACK:
        m = tl.load(mean + c, inside, 0.0)
        r = tl.load(factor + c, inside, 0.0)
        if share == 0:
            tl.store(of_shift + c, one, inside)
            tl.store(of_scale + c, two, inside)
        one = one / pixels
        two = two / pixels * r
    else:
        m = one / pixels
        r = tl.rsqrt(tl.maximum(two / pixels - m * m, 0.0) + epsilon)
        h = tl.load(shift + c, inside, 0.0)
        if share == 0:
            tl.store(mean + c, m, inside)
            tl.store(factor + c, r, inside)
    g = g * r
    last = tl.minimum((share + 1) * own, pixels)
    for start in range(share * own, last, ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * channels + c[None, :]
        mask = (row[:, None] < last) & inside[None, :]
        v = tl.load(x + at, mask, 0.0).to(tl.float32)
        if BACK:
            u = tl.load(upstream + at, mask, 0.0).to(tl.float32)
            found = (u - one[None, :] - (v - m[None, :]) * two[None, :]) * g[None, :]
        else:
            found = (v - m[None, :]) * g[None, :] + h[None, :]
        tl.store(out + at, found.to(out.dtype.element_ty), mask)


def _run(x: Tensor, upstream: Tensor | None, scale: Tensor, shift: Tensor, kept: list[Tensor]) -> Any:
    """Run both kernels of a pass: the mapped images and, backward, the slopes in scale and shift."""
    count, channels, height, width = x.shape
    pixels, back = count * height * width, upstream is not None
    columns = min(COLUMNS, triton.next_power_of_2(channels))
    blocks = triton.cdiv(channels, columns)
    shares = min(SHARES, max(16, triton.next_power_of_2(PROGRAMS // blocks)))
    own = triton.cdiv(pixels, shares)
    sums = torch.empty(2 * shares, channels, device=x.device)
    out, u = torch.empty_like(x), x if upstream is None else upstream
    of_scale, of_shift = (torch.empty_like(scale), torch.empty_like(scale)) if back else (scale, scale)
    grid = (shares, blocks)
    _sum[grid](x, u, *kept, sums, pixels, channels, own, shares, back, ROWS, columns)
    _map[grid](
        x, u, out, scale, shift, *kept, of_scale, of_shift, sums, pixels, channels, own,
        EPSILON, shares, back, ROWS, columns,
    )  # fmt: skip
    return (out, of_scale, of_shift) if back else out


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        kept = [torch.empty_like(scale), torch.empty_like(scale)]  # mean and 1 / deviation
        out: Tensor = _run(x, None, scale, shift, kept)
        ctx.save_for_backward(x, scale, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        x, scale, *kept = ctx.saved_tensors
        return _run(x, upstream.contiguous(memory_format=torch.channels_last), scale, scale, kept)


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """BatchNorm of channels_last ``[n, c, h, w]`` with the batch's own statistics; first derivatives only.

    Args:
        x: Images, bfloat16 or float32.
        scale, shift: ``[c]``, float32.
    """
    found: Tensor = _BatchNorm.apply(x, scale, shift)
    return found


def works() -> bool:
    """Whether the kernels compile and run here; logs a warning if not (Triton needs a C compiler)."""
    scale = torch.ones(16, device="cuda")
    try:
        batch_norm(scale.view(1, 16, 1, 1).contiguous(memory_format=torch.channels_last), scale, scale)
    except Exception as error:  # compilers have no common error class
        log.warning("Triton cannot compile BatchNorm (%s); using torch's, which is slower", error)
        return False
    return True
