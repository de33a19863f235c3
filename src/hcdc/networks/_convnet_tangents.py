"""Tangents of a ConvNet's loss along a direction of its parameters, for trajectory matching.

The direction is known before the pass, so the forward pass and its tangent share one kernel per block, and so
do the backward pass and its tangent. (In `Pass`, the direction depends on the gradients.) A block reads the
convolution's output and recomputes everything else. Parameters are one vector theta ``[P]``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.networks._base import Params
from hcdc.networks._convnet import ConvNet

log = logging.getLogger("hcdc")

RECOMPUTE: dict[str, Any] = {"realize_reads_threshold": 64, "realize_opcount_threshold": 1000}
"""Compiler options: recompute values where they are used instead of storing them."""

EPSILON = 1e-5
PLANE = (2, 3)
"""Pixel dimensions: height and width."""


class Fused:
    """A function of elementwise operations and reductions, compiled into few kernels on CUDA, else plain.

    Derivatives inside the function are resolved before compiling; each shape is compiled once. If compiling
    fails, the plain function is used, with a warning.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.compiled: dict[object, Callable[..., Any]] = {}

    def __call__(self, *tensors: Tensor) -> Any:
        if not tensors[0].is_cuda:
            return self.function(*tensors)
        key = tuple((t.shape, t.stride(), t.dtype) for t in tensors)
        if key not in self.compiled:
            self.compiled[key] = self._compile(tensors)
        return self.compiled[key](*tensors)

    def _compile(self, tensors: tuple[Tensor, ...]) -> Callable[..., Any]:
        from torch.fx.experimental.proxy_tensor import make_fx

        try:
            graph = make_fx(self.function, tracing_mode="fake")(*tensors)
            compiled: Callable[..., Any] = torch.compile(graph, dynamic=False, options=RECOMPUTE)
            compiled(*tensors)
        except Exception as error:  # the plain function gives the same result
            log.warning("kernels are not fused, this run is slower: %s", error)
            return self.function
        return compiled


# One block: z [n, c, h, w] is the convolution's output, without a bias, which the norm would remove.


def _wide(z: Tensor) -> Tensor:
    """At least float32, for sums."""
    return z if z.dtype == torch.float64 else z.float()


def _laid_out(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in a given type and, on CUDA, in the fastest memory order for convolutions."""
    order = torch.channels_last if x.is_cuda else torch.contiguous_format
    return x.to(dtype).contiguous(memory_format=order)


def _halved(a: Tensor) -> Tensor:
    """2 x 2 averages; an odd last row or column is dropped."""
    height, width = (side // 2 for side in a.shape[2:])
    cut = a[:, :, : 2 * height, : 2 * width]
    return cut.reshape(*a.shape[:2], height, 2, width, 2).mean((3, 5))


def _doubled(p: Tensor, size: torch.Size) -> Tensor:
    """The transpose of `_halved`, for images of ``size`` (height, width)."""
    n, c, height, width = p.shape
    up = (p / 4)[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2).reshape(n, c, 2 * height, 2 * width)
    rest = (0, size[1] - 2 * width, 0, size[0] - 2 * height)
    return F.pad(up, rest) if any(rest) else up


def _channel(v: Tensor) -> Tensor:
    return v[:, None, None]


def _centred(z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per plane: z minus its first pixel, that pixel, the mean difference and 1 / sqrt(variance + eps).

    Summing differences to a pixel needs one pass and avoids cancellation when the mean is large.
    """
    pivot = z[:, :, :1, :1]
    c = z - pivot
    mean = c.mean(PLANE, keepdim=True)
    variance = (c.square().mean(PLANE, keepdim=True) - mean.square()).clamp_min(0)
    return c, pivot, mean, torch.rsqrt(variance + EPSILON)


def block_tangent(
    z: Tensor, tz: Tensor, scale: Tensor, shift: Tensor, tscale: Tensor, tshift: Tensor
) -> tuple[Tensor, ...]:
    """`block` and its derivative along (tz, tscale, tshift).

    txhat = r ((tz - tm) - xhat q) with tm = mean(tz), q = mean(xhat * (tz - tm)), and r moves by -r^2 q.

    Returns:
        p, tp, m, r, tm, q.
    """
    c, pivot, mean, r = _centred(_wide(z))
    tz = _wide(tz)
    tm = tz.mean(PLANE, keepdim=True)
    q = r * ((c * tz).mean(PLANE, keepdim=True) - mean * tm)
    xhat = (c - mean) * r
    txhat = r * (tz - tm - xhat * q)
    u = _channel(scale) * xhat + _channel(shift)
    tu = _channel(tscale) * xhat + _channel(scale) * txhat + _channel(tshift)
    p, tp = _halved(F.relu(u)), _halved((u > 0) * tu)
    return _laid_out(p, z.dtype), _laid_out(tp, z.dtype), pivot + mean, r, tm, q


def block_back_tangent(
    z: Tensor,
    tz: Tensor,
    m: Tensor,
    r: Tensor,
    tm: Tensor,
    q: Tensor,
    scale: Tensor,
    shift: Tensor,
    tscale: Tensor,
    tshift: Tensor,
    dp: Tensor,
    tdp: Tensor,
) -> tuple[Tensor, ...]:
    """dL/dz, and the derivative of what `block_back` returns along (tz, tscale, tshift, tdp).

    Returns:
        dz, tdz, tdscale, tdshift.
    """
    xhat = (_wide(z) - m) * r
    txhat = r * (_wide(tz) - tm - xhat * q)
    live = _channel(scale) * xhat + _channel(shift) > 0
    e, te = (live * _doubled(_wide(d), z.shape[2:]) for d in (dp, tdp))
    s0, s1, t0, t1 = (v.sum(PLANE, keepdim=True) for v in (e, e * xhat, te, te * xhat + e * txhat))
    g, tg = _channel(scale), _channel(tscale)
    pixels = z.shape[2] * z.shape[3]
    core = g * (e - s0 / pixels - xhat * (s1 / pixels))
    moved = (
        tg * (e - s0 / pixels - xhat * (s1 / pixels))
        + g * (te - t0 / pixels - xhat * (t1 / pixels))
        - g * txhat * (s1 / pixels)
    )
    tdz = r * (moved - r * q * core)
    return _laid_out(r * core, z.dtype), _laid_out(tdz, z.dtype), t1.sum(0).flatten(), t0.sum(0).flatten()


BLOCK_TANGENT, BLOCK_BACK_TANGENT = Fused(block_tangent), Fused(block_back_tangent)


def _conv_back(
    dz: Tensor, x: Tensor, w: Tensor, for_x: bool = True, for_w: bool = True
) -> tuple[Tensor, Tensor]:
    """The requested ones of dL/dx and dL/dw for z = conv(x, w)."""
    ones, none = [1, 1], [0, 0]
    dx, dw, _ = torch.ops.aten.convolution_backward(
        dz, x, w, None, ones, ones, ones, False, none, 1, [for_x, for_w, False]
    )
    return dx, dw


def _loss_back(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax of the logits, and dL/dlogits of the mean cross-entropy, ``[n, C]`` each."""
    p = outputs.softmax(1)
    hit = y[:, None] == torch.arange(outputs.shape[1], device=y.device)
    return p, (p - hit.to(p.dtype)) / len(y)


@torch.no_grad()
def loss_products(
    net: ConvNet, theta: Tensor, along: Tensor, x: Tensor, y: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives of the mean cross-entropy L(theta, x) and of its gradients along a direction of theta.

    Forward over reverse mode: with g = dL/dtheta and v = ``along``, the derivatives along v of L, g and dL/dx
    are <g, v>, H v and d<g, v>/dx.

    Args:
        net, theta, x, y, dtype: As in `loss_gradient`.
        along: Direction v ``[P]``.

    Returns:
        <g, v>, H v ``[P]`` and d<g, v>/dx ``[n, c, h, w]``.
    """
    params, tangents = net.views(theta), net.views(along)
    kept: list[tuple[Any, ...]] = []
    p = _laid_out(x, dtype)
    tp: Tensor | None = None
    for k in range(net.depth):
        w, tw = (_laid_out(of[f"{k}.weight"], dtype) for of in (params, tangents))
        z, tz = F.conv2d(p, w, padding=1), F.conv2d(p, tw, padding=1)
        if tp is not None:
            tz += F.conv2d(tp, w, padding=1)
        norm = [of[f"{k}.{name}"] for of in (params, tangents) for name in ("scale", "shift")]
        above, tabove, *statistics = BLOCK_TANGENT(z, tz, *norm)
        kept.append((p, tp, w, tw, z, tz, statistics, norm))
        p, tp = above, tabove
    assert tp is not None, "a network has at least one block"
    f, tf = _wide(p).flatten(1), _wide(tp).flatten(1)
    a, ta = params["linear.weight"], tangents["linear.weight"]
    moved = F.linear(tf, a, tangents["linear.bias"]) + f @ ta.t()
    soft, d = _loss_back(F.linear(f, a, params["linear.bias"]), y)
    td = soft * (moved - (soft * moved).sum(1, keepdim=True)) / len(y)
    slope = (d * moved).sum()
    found: Params = {"linear.weight": td.t() @ f + d.t() @ tf, "linear.bias": td.sum(0)}
    dp, tdp = (d @ a).view(p.shape), (td @ a + d @ ta).view(p.shape)
    for k in reversed(range(net.depth)):
        p, tp, w, tw, z, tz, statistics, norm = kept.pop()
        dz, tdz, found[f"{k}.scale"], found[f"{k}.shift"] = BLOCK_BACK_TANGENT(
            z, tz, *statistics, *norm, dp.to(dtype), tdp.to(dtype)
        )
        tdp, tdw = _conv_back(tdz, p, w)
        if tp is None:
            tdp = tdp + _conv_back(dz, p, tw, for_w=False)[0]
        else:
            dp, _ = _conv_back(dz, p, w, for_w=False)
            more, dw = _conv_back(dz, tp, tw)
            tdp, tdw = tdp + more, tdw + dw
        found[f"{k}.weight"], found[f"{k}.bias"] = tdw.to(theta.dtype), torch.zeros_like(found[f"{k}.scale"])
    return slope, net.flatten(found), tdp.to(x.dtype)
