"""Nodes of a cell on CUDA in Triton: sums of BatchNorms and their ReLU, in two kernels each way.

Cell networks are small, and their elementwise work is bound by memory. Torch's BatchNorm of bfloat16 images
takes six kernels forward and backward; sums over the edges of a node, ReLU and the sums of their gradients
take many more. Here one kernel makes partial sums over shares of the pixels, and the other adds up the shares
and maps the pixels of all edges at once. Sums have a fixed order, so equal inputs give equal outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-5
log = logging.getLogger("hcdc")

PROGRAMS = 264
"""Approximate number of programs per kernel: two per multiprocessor."""

ROWS, COLUMNS, SHARES, WARPS = 64, 64, 128, 8
"""Pixels and channels per tile, the largest number of pixel shares, and warps per program."""

Normed = tuple[Tensor, Tensor, Tensor]
"""Images, scale and shift of a BatchNorm."""


@triton.jit
def _total(sums, which, channels, c, inside, shares, SHARES: tl.constexpr):
    """Add up the shares of one kind of sum; sums are ``[kinds, shares, channels]``."""
    each = tl.arange(0, SHARES)[:, None]
    at = (which * shares + each) * channels + c[None, :]
    return tl.sum(tl.load(sums + at, (each < shares) & inside[None, :], 0.0), 0)


@triton.jit
def _sum(ys, sums, pixels, channels, own, shares, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sums of y and y^2 over a share of the pixels, for each y."""
    share = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < channels
    last = tl.minimum((share + 1) * own, pixels)
    for e in tl.static_range(len(ys)):
        one = tl.zeros([ROWS, COLUMNS], tl.float32)
        two = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(share * own, last, ROWS):
            row = start + tl.arange(0, ROWS)[:, None]
            v = tl.load(ys[e] + (row * channels + c[None, :]), (row < last) & inside[None, :], 0.0)
            v = v.to(tl.float32)
            one += v
            two += v * v
        tl.store(sums + (2 * e * shares + share) * channels + c, tl.sum(one, 0), inside)
        tl.store(sums + ((2 * e + 1) * shares + share) * channels + c, tl.sum(two, 0), inside)


@triton.jit(do_not_specialize=["with_total", "with_relu"])
def _join(ys, plain, scales, shifts, kept, sums, total, relu, pixels, channels, own, shares, epsilon,
          with_total, with_relu, SHARES: tl.constexpr, ROWS: tl.constexpr,
          COLUMNS: tl.constexpr):  # fmt: skip
    """The total of BatchNorms and plain images, and its ReLU; the first share stores means and factors."""
    share = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < channels
    slopes = ()
    means = ()
    constant = tl.zeros([COLUMNS], tl.float32)
    for e in tl.static_range(len(ys)):
        m = _total(sums, 2 * e, channels, c, inside, shares, SHARES) / pixels
        square = _total(sums, 2 * e + 1, channels, c, inside, shares, SHARES) / pixels
        r = tl.rsqrt(tl.maximum(square - m * m, 0.0) + epsilon)
        if share == 0:
            tl.store(kept + 2 * e * channels + c, m, inside)
            tl.store(kept + (2 * e + 1) * channels + c, r, inside)
        means += (m,)  # type: ignore[assignment]
        slopes += (r * tl.load(scales[e] + c, inside, 0.0),)  # type: ignore[assignment]
        constant += tl.load(shifts[e] + c, inside, 0.0)
    last = tl.minimum((share + 1) * own, pixels)
    for start in range(share * own, last, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        at = row * channels + c[None, :]
        mask = (row < last) & inside[None, :]
        found = tl.zeros([ROWS, COLUMNS], tl.float32) + constant[None, :]
        for e in tl.static_range(len(ys)):
            v = tl.load(ys[e] + at, mask, 0.0).to(tl.float32)
            found += (v - means[e][None, :]) * slopes[e][None, :]
        for k in tl.static_range(len(plain)):
            found += tl.load(plain[k] + at, mask, 0.0).to(tl.float32)
        tl.store(total + at, found.to(total.dtype.element_ty), mask & (with_total > 0))
        tl.store(relu + at, tl.maximum(found, 0.0).to(relu.dtype.element_ty), mask & (with_relu > 0))


@triton.jit(do_not_specialize=["totals", "relus"])
def _sum_slopes(of_total, of_relu, totals, relus, relu, ys, kept, g, sums, pixels, channels, own, shares,
                ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """The slope in the total, and over a share of the pixels its sum and that of slope * y_hat for each y."""
    share = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < channels
    last = tl.minimum((share + 1) * own, pixels)
    one = tl.zeros([COLUMNS], tl.float32)
    two = tl.zeros([COLUMNS], tl.float32)
    three = tl.zeros([COLUMNS], tl.float32)
    four = tl.zeros([COLUMNS], tl.float32)
    for start in range(share * own, last, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        at = row * channels + c[None, :]
        mask = (row < last) & inside[None, :]
        u = tl.zeros([ROWS, COLUMNS], tl.float32)
        if len(of_relu) > 0:
            for k in tl.static_range(len(of_relu)):
                u += tl.load(of_relu[k] + at, mask & (k < relus), 0.0).to(tl.float32)
            u = tl.where(tl.load(relu + at, mask & (relus > 0), 0.0) > 0, u, 0.0)
        for k in tl.static_range(len(of_total)):
            u += tl.load(of_total[k] + at, mask & (k < totals), 0.0).to(tl.float32)
        if len(of_relu) > 0:
            u = u.to(g.dtype.element_ty)
            tl.store(g + at, u, mask)
            u = u.to(tl.float32)
        if len(ys) > 0:
            one += tl.sum(u, 0)
            two += _with_normed(ys[0], at, mask, u, kept, 0, channels, c, inside)
        if len(ys) > 1:
            three += _with_normed(ys[1], at, mask, u, kept, 1, channels, c, inside)
        if len(ys) > 2:
            four += _with_normed(ys[2], at, mask, u, kept, 2, channels, c, inside)
    if len(ys) > 0:
        tl.store(sums + share * channels + c, one, inside)
        tl.store(sums + (shares + share) * channels + c, two, inside)
    if len(ys) > 1:
        tl.store(sums + (2 * shares + share) * channels + c, three, inside)
    if len(ys) > 2:
        tl.store(sums + (3 * shares + share) * channels + c, four, inside)


@triton.jit
def _with_normed(y, at, mask, u, kept, e: tl.constexpr, channels, c, inside):
    """Sums over rows of u * y_hat."""
    m = tl.load(kept + 2 * e * channels + c, inside, 0.0)[None, :]
    r = tl.load(kept + (2 * e + 1) * channels + c, inside, 0.0)
    return tl.sum(u * (tl.load(y + at, mask, 0.0).to(tl.float32) - m), 0) * r


@triton.jit
def _spread(g, ys, outs, scales, kept, of_scale, of_shift, sums, pixels, channels, own,
            shares, SHARES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Slopes in each y for a share of the pixels; the first share stores those in scales and shifts."""
    share = tl.program_id(0)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = c < channels
    one = _total(sums, 0, channels, c, inside, shares, SHARES)
    if share == 0:
        tl.store(of_shift + c, one, inside)
    means = ()
    inner = ()
    slopes = ()
    for e in tl.static_range(len(ys)):
        two = _total(sums, 1 + e, channels, c, inside, shares, SHARES)
        if share == 0:
            tl.store(of_scale + e * channels + c, two, inside)
        r = tl.load(kept + (2 * e + 1) * channels + c, inside, 0.0)
        means += (tl.load(kept + 2 * e * channels + c, inside, 0.0),)  # type: ignore[assignment]
        inner += (two / pixels * r,)  # type: ignore[assignment]
        slopes += (r * tl.load(scales[e] + c, inside, 0.0),)  # type: ignore[assignment]
    one = one / pixels
    last = tl.minimum((share + 1) * own, pixels)
    for start in range(share * own, last, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        at = row * channels + c[None, :]
        mask = (row < last) & inside[None, :]
        u = tl.load(g + at, mask, 0.0).to(tl.float32) - one[None, :]
        for e in tl.static_range(len(ys)):
            v = tl.load(ys[e] + at, mask, 0.0).to(tl.float32)
            found = (u - (v - means[e][None, :]) * inner[e][None, :]) * slopes[e][None, :]
            tl.store(outs[e] + at, found.to(outs[e].dtype.element_ty), mask)


def _grid(x: Tensor) -> tuple[tuple[int, int], tuple[int, int, int, int], int]:
    """(shares, blocks of channels), (pixels, channels, pixels per share, shares), and columns per tile."""
    count, channels, height, width = x.shape
    pixels, columns = count * height * width, min(COLUMNS, triton.next_power_of_2(channels))
    blocks = triton.cdiv(channels, columns)
    shares = min(SHARES, max(16, triton.next_power_of_2(PROGRAMS // blocks + 1) // 2))
    return (shares, blocks), (pixels, channels, triton.cdiv(pixels, shares), shares), columns


def _run(normed: Sequence[Normed], plain: tuple[Tensor, ...], total: bool, relu: bool) -> Any:
    """The total and its ReLU, each if wanted, and ``kept`` ``[edges, 2, c]``, means and 1 / deviations."""
    x = normed[0][0] if normed else plain[0]
    grid, (pixels, channels, own, shares), columns = _grid(x)
    ys, scales, shifts = (tuple(part) for part in zip(*normed)) if normed else ((), (), ())
    kept = torch.empty(len(ys), 2, channels, device=x.device)
    sums = torch.empty(len(ys), 2, shares, channels, device=x.device)
    out, positive = (torch.empty_like(x) if wanted else x for wanted in (total, relu))
    if ys:
        _sum[grid](ys, sums, pixels, channels, own, shares, ROWS, columns, num_warps=WARPS)
    _join[grid](
        ys, plain, scales, shifts, kept, sums, out, positive, pixels, channels, own, shares, EPSILON,
        int(total), int(relu), SHARES, ROWS, columns, num_warps=WARPS,
    )  # fmt: skip
    return out, positive, kept


def _padded(totals: int, relus: int) -> tuple[int, int]:
    """Numbers of slopes rounded up to a few pairs: each pair compiles its own kernel."""
    if totals + relus == 1:
        return totals, relus
    return (max(totals, relus),) * 2


def _run_back(
    of_total: tuple[Tensor, ...], of_relu: tuple[Tensor, ...], relu: Tensor | None,
    ys: tuple[Tensor, ...], scales: tuple[Tensor, ...], kept: Tensor | None,
) -> Any:  # fmt: skip
    """Slopes in the total, in each y, in the scales ``[edges, c]`` and in each shift ``[c]``."""
    x = (*of_total, *of_relu)[0]
    grid, (pixels, channels, own, shares), columns = _grid(x)
    given = len(of_total), len(of_relu)
    alone = given == (1, 0)
    g = x if alone else torch.empty_like(x)
    sums = torch.empty(1 + len(ys), shares, channels, device=x.device)
    of_scale, of_shift = torch.empty(len(ys), channels, device=x.device), sums.new_empty(channels)
    if ys or not alone:
        parts = zip((of_total, of_relu), _padded(*given))
        slopes = (part + (x,) * (size - len(part)) for part, size in parts)
        _sum_slopes[grid](
            *slopes, *given, x if relu is None else relu, ys, kept, g, sums, pixels, channels, own, shares,
            ROWS, columns, num_warps=WARPS,
        )  # fmt: skip
    outs = tuple(torch.empty_like(y) for y in ys)
    if ys:
        _spread[grid](
            g, ys, outs, scales, kept, of_scale, of_shift, sums, pixels, channels, own, shares,
            SHARES, ROWS, columns, num_warps=WARPS,
        )  # fmt: skip
    return g, outs, of_scale, of_shift


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: int, totals: int, relus: int, *given: Tensor) -> tuple[Tensor, ...]:
        normed = [(given[3 * e], given[3 * e + 1], given[3 * e + 2]) for e in range(edges)]
        plain = given[3 * edges :]
        alone = not edges and len(plain) == 1
        total, relu, kept = given[-1], given[-1], None
        if relus or not alone:
            out, relu, kept = _run(normed, plain, totals > 0 and not alone, relus > 0)
            total = total if alone else out
        ctx.edges, ctx.totals, ctx.plain = edges, totals, len(plain)
        ctx.save_for_backward(kept, relu if relus else None, *(t for n in normed for t in n[:2]))
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in [total] * totals + [relu] * relus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        kept, relu, *rest = ctx.saved_tensors
        parts = upstream[: ctx.totals], upstream[ctx.totals :]
        of_total, of_relu = (tuple(_ordered(g) for g in part if g is not None) for part in parts)
        if not of_total and not of_relu:
            return (None,) * (3 + 3 * ctx.edges + ctx.plain)
        g, outs, of_scale, of_shift = _run_back(
            of_total, of_relu, relu, tuple(rest[::2]), tuple(rest[1::2]), kept
        )
        of_edges = (slope for e, out in enumerate(outs) for slope in (out, of_scale[e], of_shift))
        return None, None, None, *of_edges, *([g] * ctx.plain)


def _ordered(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def node(normed: Sequence[Normed], plain: Sequence[Tensor], totals: int, relus: int) -> tuple[Tensor, ...]:
    """The sum of BatchNorms and plain images, and its ReLU; first derivatives only.

    Use each result at most once: then no sums of gradients remain to torch.

    Args:
        normed: Up to three (images, scale, shift). Images are channels_last ``[n, c, h, w]``, all bfloat16
            or all float32; scale and shift are ``[c]``, float32. Statistics are those of the batch.
        plain: Images to add as they are.
        totals, relus: How often the sum and its ReLU are needed.

    Returns:
        The sum ``totals`` times, then its ReLU ``relus`` times.
    """
    if totals + relus == 0:
        return ()
    flat = (t for one in normed for t in one)
    found: tuple[Tensor, ...] = _Node.apply(len(normed), totals, relus, *flat, *plain)
    return found


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """BatchNorm of channels_last ``[n, c, h, w]`` with the batch's own statistics; see `node`."""
    return node([(x, scale, shift)], [], 1, 0)[0]


def works() -> bool:
    """Whether the kernels compile and run here; logs a warning if not (Triton needs a C compiler)."""
    scale = torch.ones(16, device="cuda")
    try:
        batch_norm(scale.view(1, 16, 1, 1).contiguous(memory_format=torch.channels_last), scale, scale)
    except Exception as error:  # compilers have no common error class
        log.warning("Triton cannot compile BatchNorm (%s); using torch's, which is slower", error)
        return False
    return True
