"""One block of ConvNet-3 and its hand-written first and second derivatives, without autograd.

A block is what stands between two convolutions: instance norm, ReLU, 2x2 average pool. On a GPU the cost of a
step is the memory traffic of its blocks. So each derivative is a pair of plain functions that read the
convolution's output and recompute everything else: one sums over pixels, the other does the rest. The kernels
at the end are these pairs, compiled on CUDA in one of two ways (`PARTS`, `WHOLE`).

Tensors are ``[n, h, w, c]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.networks import _fused

NORM_EPS = 1e-5
PIXELS = (1, 2)

Call = Callable[..., Any]


def wide(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _pool(a: Tensor) -> Tensor:
    """2x2 averages; an odd last row or column is dropped, as `avg_pool2d` does."""
    n, h, w, c = a.shape
    a = a[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)
    return a.sum((2, 4)) * 0.25


def _unpool(dy: Tensor, height: int, width: int) -> Tensor:
    """The transpose of `_pool`."""
    n, h, w, c = dy.shape
    spread = (dy * 0.25)[:, :, None, :, None].expand(n, h, 2, w, 2, c).reshape(n, 2 * h, 2 * w, c)
    if (2 * h, 2 * w) == (height, width):
        return spread
    return F.pad(spread, (0, 0, 0, width - 2 * w, 0, height - 2 * h))


def _mean(x: Tensor) -> Tensor:
    return x.mean(PIXELS, keepdim=True)


# Forward: u ``[n, h, w, c]`` is the output of a convolution, scale and shift are ``[c]``,
# xhat = (u - mean) r, z = scale xhat + shift, y = pool(relu(z)). Means over pixels are ``[n, 1, 1, c]``.


def moments(u: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and r = 1 / sqrt(variance + eps).

    Summing differences to the first pixel needs one pass and avoids cancellation when the mean is large.
    """
    x = wide(u)
    first = x[:, :1, :1]
    away = x - first
    offset = _mean(away)
    variance = (_mean(away.square()) - offset.square()).clamp_min(0)
    return first + offset, torch.rsqrt(variance + NORM_EPS)


def block(u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """y ``[n, h/2, w/2, c]``."""
    return _pool(F.relu((wide(u) - mean) * r * scale + shift)).to(u.dtype)


# Back: dy = dL/dy and so on; dz = [z > 0] pool^T dy, a = mean(dz), b = mean(dz xhat).


def _means(u: Tensor, sums: Sequence[Tensor]) -> list[Tensor]:
    """Sums over the pixels of u as means."""
    return [each * (1 / (u.shape[1] * u.shape[2])) for each in sums]


def _opened(u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """xhat, and where z > 0."""
    xhat = (wide(u) - mean) * r
    return xhat, xhat * scale + shift > 0


def _passed(on: Tensor, dy: Tensor) -> Tensor:
    """dz."""
    return torch.where(on, _unpool(wide(dy), on.shape[1], on.shape[2]), 0.0)


def back_sums(
    u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """s0 = sum(dz) and s1 = sum(dz xhat); over images they add up to dL/dshift and dL/dscale."""
    xhat, on = _opened(u, mean, r, scale, shift)
    dz = _passed(on, dy)
    return dz.sum(PIXELS, keepdim=True), (dz * xhat).sum(PIXELS, keepdim=True)


def block_back(
    u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor, dy: Tensor, s0: Tensor, s1: Tensor
) -> Tensor:
    """du = r scale (dz - a - xhat b)."""
    xhat, on = _opened(u, mean, r, scale, shift)
    a, b = _means(u, (s0, s1))
    return (r * scale * (_passed(on, dy) - a - xhat * b)).to(u.dtype)


# Tangents of the above along u_dot, dy_dot, scale_dot and shift_dot (None for 0): t = mean(u_dot),
# p = mean(xhat u_dot), r_dot = -r^2 p, xhat_dot = r (u_dot - t - xhat p).


def push_means(u: Tensor, mean: Tensor, r: Tensor, u_dot: Tensor) -> tuple[Tensor, Tensor]:
    """t and p; differences to the first pixel as in `moments`, so that both need one pass together."""
    x, tangent = wide(u), wide(u_dot)
    first = x[:, :1, :1]
    t = _mean(tangent)
    return t, r * (_mean((x - first) * tangent) - (mean - first) * t)


def block_push(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    t: Tensor,
    p: Tensor,
    scale_dot: Tensor | None = None,
    shift_dot: Tensor | None = None,
) -> Tensor:
    """The tangent of y."""
    xhat, on = _opened(u, mean, r, scale, shift)
    z_dot = scale * (r * (wide(u_dot) - t - xhat * p))
    if scale_dot is not None and shift_dot is not None:
        z_dot = z_dot + scale_dot * xhat + shift_dot
    return _pool(torch.where(on, z_dot, 0.0)).to(u.dtype)


def push_back_sums(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    t: Tensor,
    p: Tensor,
    dy: Tensor,
    dy_dot: Tensor,
) -> tuple[Tensor, Tensor]:
    """The tangents of `back_sums`: sum(dz_dot) and sum(dz_dot xhat + dz xhat_dot)."""
    xhat, on = _opened(u, mean, r, scale, shift)
    xhat_dot = r * (wide(u_dot) - t - xhat * p)
    dz, dz_dot = _passed(on, dy), _passed(on, dy_dot)
    return dz_dot.sum(PIXELS, keepdim=True), (dz_dot * xhat + dz * xhat_dot).sum(PIXELS, keepdim=True)


def block_push_back(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    t: Tensor,
    p: Tensor,
    dy: Tensor,
    dy_dot: Tensor,
    s0: Tensor,
    s1: Tensor,
    s0_dot: Tensor,
    s1_dot: Tensor,
    scale_dot: Tensor | None = None,
) -> Tensor:
    """The tangent of du."""
    xhat, on = _opened(u, mean, r, scale, shift)
    a, b, a_dot, b_dot = _means(u, (s0, s1, s0_dot, s1_dot))
    xhat_dot = r * (wide(u_dot) - t - xhat * p)
    inner = _passed(on, dy) - a - xhat * b
    moved = scale * (_passed(on, dy_dot) - a_dot - xhat_dot * b - xhat * b_dot - r * p * inner)
    if scale_dot is not None:
        moved = moved + scale_dot * inner
    return (r * moved).to(u.dtype)


# Kernels: a sum over pixels and what it is for, both through ``call``. ``kept`` is u, mean, r, scale, shift.


def _forward(call: Call, u: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
    """y, mean and r."""
    mean, r = call(moments, u, any_size=True)
    return call(block, u, mean, r, scale, shift), mean, r


def _backward(call: Call, *given: Tensor) -> tuple[Tensor, ...]:
    """du, s0 and s1 from ``kept`` and dy."""
    sums = call(back_sums, *given, any_size=True)
    return call(block_back, *given, *sums), *sums


def _push(call: Call, *given: Any) -> tuple[Tensor, ...]:
    """y_dot, t and p from ``kept``, u_dot, scale_dot and shift_dot."""
    *read, scale_dot, shift_dot = given
    means = call(push_means, *read[:3], read[5], any_size=True)
    return call(block_push, *read, *means, scale_dot, shift_dot), *means


def _push_back(call: Call, *given: Any) -> tuple[Tensor, ...]:
    """du_dot, s0_dot and s1_dot from ``kept``, u_dot, t, p, dy, dy_dot, s0, s1 and scale_dot."""
    *read, s0, s1, scale_dot = given
    sums = call(push_back_sums, *read, any_size=True)
    return call(block_push_back, *read, s0, s1, *sums, scale_dot), *sums


def _forward_push(call: Call, u: Tensor, scale: Tensor, shift: Tensor, *dots: Tensor) -> tuple[Tensor, ...]:
    """`_forward`, then `_push`."""
    y, mean, r = _forward(call, u, scale, shift)
    return y, mean, r, *_push(call, u, mean, r, scale, shift, *dots)


def _backward_push(call: Call, *given: Tensor) -> tuple[Tensor, ...]:
    """`_backward`, then `_push_back`, from ``kept``, u_dot, t, p, dy, dy_dot and scale_dot."""
    *read, scale_dot = given
    du, s0, s1 = _backward(call, *read[:5], read[8])
    return du, s0, s1, *_push_back(call, *read, s0, s1, scale_dot)


def _in_parts(function: Call) -> Call:
    return lambda *given: function(_fused.fused, *given)


def _as_a_whole(function: Call) -> Call:
    return _fused.Fused(lambda *given: function(_fused.plain, *given))


class Kernels(NamedTuple):
    """`_forward` and `_backward` as they are called."""

    forward: Call
    backward: Call


PARTS = Kernels(_in_parts(_forward), _in_parts(_backward))
"""Each part is a kernel, compiled once for any number of images."""

WHOLE = Kernels(_as_a_whole(_forward), _as_a_whole(_backward))
"""Each pair is compiled together, for one number of images."""

push, push_back = _in_parts(_push), _in_parts(_push_back)
"""The tangents of a pass that exists."""

forward_push, backward_push = _as_a_whole(_forward_push), _as_a_whole(_backward_push)
"""A pass with its tangents. Counting reads and writes by the size of u, a block costs 11.5 together and 16
one after the other."""
