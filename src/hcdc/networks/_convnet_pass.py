"""ConvNet-3 as blocks with hand-written first and second derivatives, without autograd.

A block is what stands between two convolutions: instance norm, ReLU, 2x2 average pool. On a GPU the cost of a
step is the memory traffic of its blocks. So each derivative is a pair of plain functions that read the
convolution's output and recompute everything else: one sums over pixels, the other does the rest. On CUDA,
torch's compiler turns each into one kernel, so a pass writes that output once and reads it twice. No step
needs autograd, and each can be recorded as one CUDA graph.

Tensors are ``[n, h, w, c]`` inside; images enter and leave as ``[n, c, h, w]``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.networks._base import Params
from hcdc.networks._convnet import ConvNet

NORM_EPS = 1e-5
PIXELS = (1, 2)


def pays(device: torch.device) -> bool:
    """Whether hand-written derivatives are faster than autograd, i.e. whether they are compiled."""
    return device.type == "cuda"


def _wide(x: Tensor) -> Tensor:
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
    x = _wide(u)
    first = x[:, :1, :1]
    away = x - first
    offset = _mean(away)
    variance = (_mean(away.square()) - offset.square()).clamp_min(0)
    return first + offset, torch.rsqrt(variance + NORM_EPS)


def block(u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """y ``[n, h/2, w/2, c]``."""
    return _pool(F.relu((_wide(u) - mean) * r * scale + shift)).to(u.dtype)


# Back: dy = dL/dy and so on; dz = [z > 0] pool^T dy, a = mean(dz), b = mean(dz xhat).


def _means(u: Tensor, sums: Sequence[Tensor]) -> list[Tensor]:
    """Sums over the pixels of u as means."""
    return [each * (1 / (u.shape[1] * u.shape[2])) for each in sums]


def _opened(u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """xhat, and where z > 0."""
    xhat = (_wide(u) - mean) * r
    return xhat, xhat * scale + shift > 0


def _passed(on: Tensor, dy: Tensor) -> Tensor:
    """dz."""
    return torch.where(on, _unpool(_wide(dy), on.shape[1], on.shape[2]), 0.0)


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


# Tangents of the above along u_dot and dy_dot: t = mean(u_dot), p = mean(xhat u_dot),
# r_dot = -r^2 p, xhat_dot = r (u_dot - t - xhat p).


def push_means(u: Tensor, mean: Tensor, r: Tensor, u_dot: Tensor) -> tuple[Tensor, Tensor]:
    """t and p."""
    tangent = _wide(u_dot)
    return _mean(tangent), _mean((_wide(u) - mean) * r * tangent)


def block_push(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    t: Tensor,
    p: Tensor,
) -> Tensor:
    """The tangent of y."""
    xhat, on = _opened(u, mean, r, scale, shift)
    xhat_dot = r * (_wide(u_dot) - t - xhat * p)
    return _pool(torch.where(on, scale * xhat_dot, 0.0)).to(u.dtype)


def push_back_means(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    dy: Tensor,
    dy_dot: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """mean(dz_dot), mean(dz_dot xhat) and mean(dz u_dot)."""
    xhat, on = _opened(u, mean, r, scale, shift)
    dz_dot = _passed(on, dy_dot)
    return _mean(dz_dot), _mean(dz_dot * xhat), _mean(_passed(on, dy) * _wide(u_dot))


def block_push_back(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    dy: Tensor,
    dy_dot: Tensor,
    t: Tensor,
    p: Tensor,
    s0: Tensor,
    s1: Tensor,
    a_dot: Tensor,
    dz_dot_xhat: Tensor,
    dz_u_dot: Tensor,
) -> Tensor:
    """The tangent of du; b_dot = mean(dz_dot xhat) + r (mean(dz u_dot) - a t - p b)."""
    xhat, on = _opened(u, mean, r, scale, shift)
    a, b = _means(u, (s0, s1))
    xhat_dot = r * (_wide(u_dot) - t - xhat * p)
    dz, dz_dot = _passed(on, dy), _passed(on, dy_dot)
    b_dot = dz_dot_xhat + r * (dz_u_dot - a * t - p * b)
    moved = dz_dot - a_dot - xhat_dot * b - xhat * b_dot - r * p * (dz - a - xhat * b)
    return (r * scale * moved).to(u.dtype)


RECOMPUTE: dict[str, Any] = {
    "realize_reads_threshold": 64,
    "realize_acc_reads_threshold": 64,
    "realize_opcount_threshold": 1000,
}
"""Compiler options: recompute values where they are used instead of storing them."""


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False, fullgraph=True, options=RECOMPUTE)


def fused(function: Callable[..., Any], *given: Any, any_size: bool = False) -> Any:
    """Call a function, compiled if its first tensor is on CUDA, plain otherwise.

    Args:
        function: Elementwise operations and reductions.
        given: Its arguments.
        any_size: Compile it once for all even image sizes. This does not slow sums over pixels, but it does
            slow functions that write pixels, whose addresses then need divisions by unknown numbers.
    """
    return _called_compiled(function, given, any_size) if given[0].is_cuda else function(*given)


def _called_compiled(function: Callable[..., Any], given: Sequence[Any], any_size: bool) -> Any:
    """Call the function, compiled once for any number of images.

    Only the leading dimensions of ``[n, h, w, c]`` and ``[groups, n, c, h, w]`` vary; the compiler treats the
    others as constants.
    """
    from torch import _dynamo

    even = not any(side % 2 for side in given[0].shape[1:3])

    def marked(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dim() < 4:
            return value
        value = value.detach()  # marks stick to their tensor
        for dimension in range(value.dim() - 3 + 2 * (any_size and even)):
            _dynamo.maybe_mark_dynamic(value, dimension)
        return value

    with _dynamo.config.patch(recompile_limit=64):
        return _compiled(function)(*map(marked, given))


def _conv(x: Tensor, w: Tensor) -> Tensor:
    """3x3 convolution of ``[n, h, w, c]``; w is ``[out, in, 3, 3]``."""
    return F.conv2d(x.permute(0, 3, 1, 2), w, padding=1).permute(0, 2, 3, 1)


def _conv_back(du: Tensor, x: Tensor, w: Tensor, to_weight: bool) -> Tensor:
    """dL/dw (``to_weight``) or dL/dx of `_conv`."""
    down, into = (t.permute(0, 3, 1, 2) for t in (du, x))
    mask = (not to_weight, to_weight, False)
    found = torch.ops.aten.convolution_backward(
        down, into, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask
    )
    gradient: Tensor = found[1] if to_weight else found[0].permute(0, 2, 3, 1)
    return gradient


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    """``[groups * n, ...]`` as ``[groups, n, ...]``."""
    return tensor.view(groups, -1, *tensor.shape[1:])


def _each(groups: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Iterate over the groups of several tensors."""
    return zip(*(_grouped(tensor, groups).unbind() for tensor in tensors))


class Features:
    """The blocks of a ConvNet over images, kept for the backward pass.

    Convolution biases are left out: the norm after them removes them, and their gradient is 0.

    Args:
        net: The network; only its depth is read.
        params: Its parameters, at least float32.
        images: ``[n, c, h, w]``.
        dtype: Type that convolutions compute in.

    Attributes:
        values: Embeddings ``[n, features_out]`` in the order of `ConvNet.features`, at least float32.
    """

    def __init__(self, net: ConvNet, params: Params, images: Tensor, dtype: torch.dtype):
        self.dtype, self.layers = dtype, range(net.depth)
        self.weights = [
            params[f"{k}.weight"].to(dtype, memory_format=torch.channels_last) for k in self.layers
        ]
        self.inputs: list[Tensor] = []
        self.blocks: list[tuple[Tensor, ...]] = []
        x = images.to(dtype, memory_format=torch.channels_last).permute(0, 2, 3, 1).contiguous()
        for k, w in enumerate(self.weights):
            u, affine = _conv(x, w), (params[f"{k}.scale"], params[f"{k}.shift"])
            self.inputs.append(x)
            self.blocks.append((u, *fused(moments, u, any_size=True), *affine))
            x = fused(block, *self.blocks[-1])
        self.shape = x.shape[1:]
        self.values = self._flat(x)

    def __getitem__(self, images: slice) -> Features:
        """Some of the images, as views."""
        some = object.__new__(Features)
        some.dtype, some.layers, some.weights, some.shape = self.dtype, self.layers, self.weights, self.shape
        some.inputs = [x[images] for x in self.inputs]
        some.blocks = [(*(t[images] for t in kept[:3]), *kept[3:]) for kept in self.blocks]
        some.values = self.values[images]
        return some

    def _flat(self, x: Tensor) -> Tensor:
        """Features in the order of `ConvNet`: channels, rows, columns."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return x.permute(0, 3, 1, 2).to(wide, memory_format=torch.contiguous_format).flatten(1)

    def _unflat(self, features: Tensor) -> Tensor:
        h, w, c = self.shape
        dy = features.view(-1, c, h, w).to(self.dtype, memory_format=torch.channels_last)
        return dy.permute(0, 2, 3, 1).contiguous()

    def back(self, slope: Tensor) -> None:
        """From dL/dvalues, compute dL/dy (``dy``), dL/du (``du``) and `back_sums` (``sums``) per layer."""
        self.dy = [self._unflat(slope)]
        self.du: list[Tensor] = []
        self.sums: list[tuple[Tensor, Tensor]] = []
        for k in reversed(self.layers):
            read = *self.blocks[k], self.dy[0]
            self.sums.insert(0, fused(back_sums, *read, any_size=True))
            du = fused(block_back, *read, *self.sums[0])
            self.du.insert(0, du)
            if k:
                self.dy.insert(0, _conv_back(du, self.inputs[k], self.weights[k], to_weight=False))

    def pixels(self, slope: Tensor) -> Tensor:
        """From dL/dvalues, compute dL/dimages ``[n, c, h, w]``, at least float32."""
        self.back(slope)
        dx = _conv_back(self.du[0], self.inputs[0], self.weights[0], to_weight=False)
        return _wide(dx).permute(0, 3, 1, 2)


class Pass(Features):
    """A forward and backward pass of a ConvNet, kept for gradients by group and their derivative.

    Args:
        net: The network; only depth and classes are read.
        params: Its parameters, at least float32.
        images: ``[n, c, h, w]``.
        y: Labels ``[n]``.
        weight: Loss weight of each image's cross-entropy ``[n]``.
        dtype: Type that convolutions compute in.
    """

    def __init__(
        self, net: ConvNet, params: Params, images: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype
    ):
        super().__init__(net, params, images, dtype)
        self.classifier, self.weight = params["linear.weight"], weight[:, None]
        logits = F.linear(self.values, self.classifier, params["linear.bias"])
        self.probabilities = logits.softmax(-1)
        wanted = (y[:, None] == torch.arange(net.classes, device=y.device)).to(logits.dtype)
        self.slope = (self.probabilities - wanted) * self.weight  # dL/dlogits
        self.back(self.slope @ self.classifier)

    def weight_gradients(self, groups: int) -> list[Tensor]:
        """dL/dweight per layer and group of consecutive images: ``[groups, *shape of the weight]`` each."""
        found = [
            torch.stack([_conv_back(d, x, w, to_weight=True) for d, x in _each(groups, du, inputs)])
            for du, inputs, w in zip(self.du, self.inputs, self.weights)
        ]
        slope, features = _grouped(self.slope, groups), _grouped(self.values, groups)
        return [_wide(g) for g in found] + [slope.mT @ features]

    def gradients(self) -> Params:
        """dL/dtheta over all images, in the order of `ConvNet.shapes`; 0 for convolution biases."""
        sums = torch.cat([each.flatten(1) for pair in self.sums for each in pair], 1).sum(0)
        by_layer = sums.view(len(self.layers), 2, -1)
        zeros = torch.zeros_like(by_layer[0, 0])
        found: Params = {}
        for k, (shift, scale) in enumerate(by_layer):
            g = _conv_back(self.du[k], self.inputs[k], self.weights[k], to_weight=True)
            found[f"{k}.weight"] = g.to(shift.dtype, memory_format=torch.contiguous_format)
            found |= {f"{k}.bias": zeros, f"{k}.scale": scale, f"{k}.shift": shift}
        return found | {"linear.weight": self.slope.mT @ self.values, "linear.bias": self.slope.sum(0)}

    def pixel_slope(self, v: Sequence[Tensor]) -> Tensor:
        """d/dX of the sum over groups and layers of <v, dL/dweight>, with v fixed.

        With g = dL/dweight this is the derivative of dL/dX along v,

            d/dX <v, g(theta, X)> = d/de [dL/dX (theta + e v, X)] at e = 0:

        the tangents along v of a forward and backward pass. Norms act on each image alone, so all groups
        share every block, and only products with v are computed group by group.

        Args:
            v: Per layer, ``[groups, *shape of the weight]``.

        Returns:
            ``[n, c, h, w]``.
        """
        groups = len(v[0])
        along = [[w.to(self.dtype, memory_format=torch.channels_last) for w in layer] for layer in v[:-1]]
        u_dots: list[Tensor] = []
        x_dots: list[Tensor] = []
        means: list[tuple[Tensor, Tensor]] = []
        for k, x in enumerate(self.inputs):
            u_dot = torch.cat([_conv(of, w) for (of,), w in zip(_each(groups, x), along[k])])
            if k:
                u_dot = u_dot + _conv(x_dots[-1], self.weights[k])
            u_dots.append(u_dot)
            means.append(fused(push_means, *self.blocks[k][:3], u_dot, any_size=True))
            x_dots.append(fused(block_push, *self.blocks[k], u_dot, *means[k]))

        slope, features = _grouped(self.slope, groups), _grouped(self.values, groups)
        logits_dot = self._flat(x_dots[-1]) @ self.classifier.mT + (features @ v[-1].mT).flatten(0, 1)
        p = self.probabilities
        slope_dot = self.weight * p * (logits_dot - (p * logits_dot).sum(-1, keepdim=True))
        dy_dot = self._unflat(slope_dot @ self.classifier + (slope @ v[-1]).flatten(0, 1))
        for k in reversed(self.layers):
            read = *self.blocks[k], u_dots[k], self.dy[k], dy_dot
            more = fused(push_back_means, *read, any_size=True)
            du_dot = fused(block_push_back, *read, *means[k], *self.sums[k], *more)
            x, w = self.inputs[k], self.weights[k]
            dy_dot = _conv_back(du_dot, x, w, to_weight=False) + torch.cat(
                [
                    _conv_back(du, of, at, to_weight=False)
                    for (du, of), at in zip(_each(groups, self.du[k], x), along[k])
                ]
            )
        return _wide(dy_dot).permute(0, 3, 1, 2)


class PlainPass:
    """`Pass` by autograd, with the same arguments; faster when nothing is compiled.

    Only `pixel_slope` keeps a graph; it computes the gradients again.
    """

    def __init__(
        self, net: ConvNet, params: Params, images: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype
    ):
        self.net = dataclasses.replace(net, fused=True)
        self.params = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in params.items()}
        self.weights = [tensor for name, tensor in self.params.items() if name.endswith(".weight")]
        self.images, self.y, self.weight = images.to(dtype), y, weight

    @torch.enable_grad()
    def _loss(self, images: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        each = F.cross_entropy(self.net.forward(self.params, None, images), y, reduction="none")
        return (each * weight).sum()

    def weight_gradients(self, groups: int) -> list[Tensor]:
        """As `Pass.weight_gradients`."""
        each = [
            torch.autograd.grad(self._loss(*some), self.weights)
            for some in _each(groups, self.images, self.y, self.weight)
        ]
        return [_wide(torch.stack(layer)) for layer in zip(*each)]

    def gradients(self) -> Params:
        """As `Pass.gradients`; convolution biases get rounding errors instead of 0."""
        found = torch.autograd.grad(self._loss(self.images, self.y, self.weight), list(self.params.values()))
        return {name: _wide(gradient) for name, gradient in zip(self.params, found)}

    def pixel_slope(self, v: Sequence[Tensor]) -> Tensor:
        """As `Pass.pixel_slope`."""
        slopes = []
        for (images, y, weight), *along in zip(_each(len(v[0]), self.images, self.y, self.weight), *v):
            x = images.detach().requires_grad_()
            made = torch.autograd.grad(self._loss(x, y, weight), self.weights, create_graph=True)
            slopes.append(torch.autograd.grad(made, x, [at.to(x.dtype) for at in along])[0])
        return _wide(torch.cat(slopes))
