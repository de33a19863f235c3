"""ConvNet-3 forward and backward as convolutions and blocks, and the tangents of both, without autograd.

On CUDA every block is compiled (see `hcdc.networks._convnet_blocks`), so a pass writes a convolution's output
once and reads it twice, and each step can be recorded as one CUDA graph. The tangents along a direction v of
the parameters are written once, in `Tangents`, and give every second derivative: DC and DSA take them after
the pass, since their v depends on its gradients; TM knows v before and computes both together.

Tensors are ``[n, h, w, c]`` inside; images enter and leave as ``[n, c, h, w]``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.networks._base import Params
from hcdc.networks._convnet import ConvNet
from hcdc.networks._convnet_blocks import (
    PARTS,
    WHOLE,
    backward_push,
    forward_push,
    push,
    push_back,
    wide,
)


def pays(device: torch.device) -> bool:
    """Whether hand-written derivatives are faster than autograd, i.e. whether they are compiled."""
    return device.type == "cuda"


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


def _laid_out(w: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight ``[out, in, 3, 3]`` as convolutions read it."""
    return w.to(dtype, memory_format=torch.channels_last)


def _joined(groups: Sequence[Tensor]) -> Tensor:
    """Groups of images one after another; a single one without a copy."""
    return groups[0] if len(groups) == 1 else torch.cat(list(groups))


class Features:
    """The blocks of a ConvNet over images, kept for the backward pass.

    Convolution biases are left out: the norm after them removes them, and their gradient is 0.

    Args:
        net: The network; only its depth is read.
        params: Its parameters, at least float32.
        images: ``[n, c, h, w]``.
        dtype: Type that convolutions compute in.
        fixed: Whether later passes have as many images, see `WHOLE`; any numbers by default, see `PARTS`.
        along: Direction of the parameters whose tangents are computed with the pass, see `Tangents`.

    Attributes:
        values: Embeddings ``[n, features_out]`` in the order of `ConvNet.features`, at least float32.
        tangents: The tangents along ``along``, if given.
    """

    def __init__(
        self,
        net: ConvNet,
        params: Params,
        images: Tensor,
        dtype: torch.dtype,
        fixed: bool = False,
        along: Mapping[str, Tensor] | None = None,
    ):
        self.dtype, self.layers, self.kernels = dtype, range(net.depth), WHOLE if fixed else PARTS
        self.weights = [_laid_out(params[f"{k}.weight"], dtype) for k in self.layers]
        self.inputs: list[Tensor] = []
        self.blocks: list[tuple[Tensor, ...]] = []
        self.tangents = None if along is None else Tangents(self, along)
        x = images.to(dtype, memory_format=torch.channels_last).permute(0, 2, 3, 1).contiguous()
        for k, w in enumerate(self.weights):
            u, affine = _conv(x, w), (params[f"{k}.scale"], params[f"{k}.shift"])
            self.inputs.append(x)
            if self.tangents is None:
                x, mean, r = self.kernels.forward(u, *affine)
            else:
                x, mean, r = self.tangents.forward_with(self, k, u, *affine)
            self.blocks.append((u, mean, r, *affine))
        self.shape = x.shape[1:]
        self.values = self.flat(x)

    def __getitem__(self, images: slice) -> Features:
        """Some of the images, as views."""
        some = object.__new__(Features)
        some.dtype, some.layers, some.kernels = self.dtype, self.layers, self.kernels
        some.weights, some.shape, some.tangents = self.weights, self.shape, None
        some.inputs = [x[images] for x in self.inputs]
        some.blocks = [(*(t[images] for t in kept[:3]), *kept[3:]) for kept in self.blocks]
        some.values = self.values[images]
        return some

    def flat(self, x: Tensor) -> Tensor:
        """Features in the order of `ConvNet`: channels, rows, columns."""
        at_least = torch.promote_types(x.dtype, torch.float32)
        return x.permute(0, 3, 1, 2).to(at_least, memory_format=torch.contiguous_format).flatten(1)

    def unflat(self, features: Tensor) -> Tensor:
        """The transpose of `flat`, in the type of the convolutions."""
        h, w, c = self.shape
        dy = features.view(-1, c, h, w).to(self.dtype, memory_format=torch.channels_last)
        return dy.permute(0, 2, 3, 1).contiguous()

    def back(self, slope: Tensor) -> None:
        """From dL/dvalues, compute dL/dy (``dy``), dL/du (``du``) and `back_sums` (``sums``) per layer."""
        self.dy = [self.unflat(slope)]
        self.du: list[Tensor] = []
        self.sums: list[tuple[Tensor, Tensor]] = []
        for k in reversed(self.layers):
            if self.tangents is None:
                du, *sums = self.kernels.backward(*self.blocks[k], self.dy[0])
            else:
                du, *sums = self.tangents.backward_with(self, k, self.dy[0])
            self.du.insert(0, du)
            self.sums.insert(0, (sums[0], sums[1]))
            if k:
                self.dy.insert(0, _conv_back(du, self.inputs[k], self.weights[k], to_weight=False))

    def pixels(self, slope: Tensor) -> Tensor:
        """From dL/dvalues, compute dL/dimages ``[n, c, h, w]``, at least float32."""
        self.back(slope)
        dx = _conv_back(self.du[0], self.inputs[0], self.weights[0], to_weight=False)
        return wide(dx).permute(0, 3, 1, 2)


class Tangents:
    """Derivatives of everything in a pass along a direction v of its parameters.

    With g = dL/dtheta, the derivative of dL/dX along v is d<g, v>/dX, and that of g is H v. Norms act on each
    image alone, so groups of images with separate v share every block, and only products with v are computed
    group by group.

    Args:
        made: The pass, given to every method; its blocks exist, or are computed with their tangents.
        v: Weights ``[groups, *shape]``; scales, shifts ``[width]`` and bias ``[classes]``, 0 where left out.
    """

    def __init__(self, made: Features, v: Mapping[str, Tensor]):
        self.classifier, self.bias = v["linear.weight"], v.get("linear.bias")
        self.weights = [[_laid_out(w, made.dtype) for w in v[f"{k}.weight"]] for k in made.layers]
        self.affine = [(v.get(f"{k}.scale"), v.get(f"{k}.shift")) for k in made.layers]
        self.inputs: list[Tensor] = []  # of layers 1, 2, ...; the images stay
        self.blocks: list[tuple[Tensor, ...]] = []

    def _reached(self, made: Features, k: int) -> Tensor:
        """The tangent of the output of convolution k."""
        pairs = zip(_each(len(self.classifier), made.inputs[k]), self.weights[k])
        u_dot = _joined([_conv(x, w) for (x,), w in pairs])
        return u_dot + _conv(self.inputs[-1], made.weights[k]) if k else u_dot

    def forward(self, made: Features, k: int) -> None:
        """Block k of a pass that exists."""
        u_dot = self._reached(made, k)
        x_dot, *means = push(*made.blocks[k], u_dot, *self.affine[k])
        self.inputs.append(x_dot)
        self.blocks.append((u_dot, *means))

    def forward_with(
        self, made: Features, k: int, u: Tensor, scale: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Block k and its tangent together; returns the block's output and statistics."""
        u_dot = self._reached(made, k)
        given = (u, scale, shift, u_dot, *self.affine[k])
        x, mean, r, x_dot, *means = forward_push(*given)
        self.inputs.append(x_dot)
        self.blocks.append((u_dot, *means))
        return x, mean, r

    def classify(self, made: Pass) -> None:
        """The classifier, and dL/dlogits: the tangents of the logits, of ``slope`` and of ``dy``."""
        groups, p = len(self.classifier), made.probabilities
        features, slope = _grouped(made.values, groups), _grouped(made.slope, groups)
        self.values = made.flat(self.inputs[-1])
        self.logits = self.values @ made.classifier.mT + (features @ self.classifier.mT).flatten(0, 1)
        if self.bias is not None:
            self.logits = self.logits + self.bias
        self.slope = made.weight * p * (self.logits - (p * self.logits).sum(-1, keepdim=True))
        self.dy = made.unflat(self.slope @ made.classifier + (slope @ self.classifier).flatten(0, 1))
        self.du: list[Tensor] = []
        self.sums: list[tuple[Tensor, Tensor]] = []

    def backward(self, made: Features, k: int) -> None:
        """Block k, and convolution k, of a pass that went back."""
        read = *made.blocks[k], *self.blocks[k], made.dy[k], self.dy
        self._below(made, k, made.du[k], *push_back(*read, *made.sums[k], self.affine[k][0]))

    def backward_with(self, made: Features, k: int, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Block k and its tangent together, from the block's dy; returns the block's du and sums."""
        read = *made.blocks[k], *self.blocks[k], dy, self.dy
        du, s0, s1, *tangents = backward_push(*read, self.affine[k][0])
        self._below(made, k, du, *tangents)
        return du, s0, s1

    def _below(
        self, made: Features, k: int, du: Tensor, du_dot: Tensor, s0_dot: Tensor, s1_dot: Tensor
    ) -> None:
        """Keep the tangents of block k, and go back through convolution k."""
        self.du.insert(0, du_dot)
        self.sums.insert(0, (s0_dot, s1_dot))
        x, w = made.inputs[k], made.weights[k]
        pairs = zip(_each(len(self.classifier), du, x), self.weights[k])
        along = _joined([_conv_back(d, of, at, to_weight=False) for (d, of), at in pairs])
        self.dy = _conv_back(du_dot, x, w, to_weight=False) + along

    def pixels(self) -> Tensor:
        """d<g, v>/dX ``[n, c, h, w]``, at least float32."""
        return wide(self.dy).permute(0, 3, 1, 2)


class Pass(Features):
    """A forward and backward pass of a ConvNet, kept for gradients by group and their derivative.

    Args:
        net: The network; only depth and classes are read.
        params: Its parameters, at least float32.
        images: ``[n, c, h, w]``.
        y: Labels ``[n]``.
        weight: Loss weight of each image's cross-entropy ``[n]``.
        dtype: Type that convolutions compute in.
        fixed, along: As in `Features`.
    """

    def __init__(
        self,
        net: ConvNet,
        params: Params,
        images: Tensor,
        y: Tensor,
        weight: Tensor,
        dtype: torch.dtype,
        fixed: bool = False,
        along: Mapping[str, Tensor] | None = None,
    ):
        super().__init__(net, params, images, dtype, fixed, along)
        self.classifier, self.weight = params["linear.weight"], weight[:, None]
        logits = F.linear(self.values, self.classifier, params["linear.bias"])
        self.probabilities = logits.softmax(-1)
        wanted = (y[:, None] == torch.arange(net.classes, device=y.device)).to(logits.dtype)
        self.slope = (self.probabilities - wanted) * self.weight  # dL/dlogits
        if self.tangents is not None:
            self.tangents.classify(self)
        self.back(self.slope @ self.classifier)

    def weight_gradients(self, groups: int) -> list[Tensor]:
        """dL/dweight per layer and group of consecutive images: ``[groups, *shape of the weight]`` each."""
        found = [
            torch.stack([_conv_back(d, x, w, to_weight=True) for d, x in _each(groups, du, inputs)])
            for du, inputs, w in zip(self.du, self.inputs, self.weights)
        ]
        slope, features = _grouped(self.slope, groups), _grouped(self.values, groups)
        return [wide(g) for g in found] + [slope.mT @ features]

    def _by_name(self, weights: Sequence[Tensor], sums: Sequence[tuple[Tensor, Tensor]]) -> Params:
        """Derivatives of the blocks' parameters from those of the weights and sums over pixels."""
        total = torch.cat([each.flatten(1) for pair in sums for each in pair], 1).sum(0)
        by_layer = total.view(len(self.layers), 2, -1)
        zeros = torch.zeros_like(by_layer[0, 0])
        found: Params = {}
        for k, (shift, scale) in enumerate(by_layer):
            found[f"{k}.weight"] = weights[k].to(shift.dtype, memory_format=torch.contiguous_format)
            found |= {f"{k}.bias": zeros, f"{k}.scale": scale, f"{k}.shift": shift}
        return found

    def gradients(self) -> Params:
        """dL/dtheta over all images, in the order of `ConvNet.shapes`; 0 for convolution biases."""
        weights = [
            _conv_back(du, x, w, to_weight=True) for du, x, w in zip(self.du, self.inputs, self.weights)
        ]
        found = self._by_name(weights, self.sums)
        return found | {"linear.weight": self.slope.mT @ self.values, "linear.bias": self.slope.sum(0)}

    def products(self) -> tuple[Tensor, Params, Tensor]:
        """<g, v>, H v and d<g, v>/dX ``[n, c, h, w]`` for the direction v of a pass with ``along``."""
        if (tangents := self.tangents) is None:
            raise ValueError("this pass has no direction; give it along=")
        weights = []
        for k, (x, w) in enumerate(zip(self.inputs, self.weights)):
            weights.append(_conv_back(tangents.du[k], x, w, to_weight=True))
            if k:
                weights[k] = weights[k] + _conv_back(self.du[k], tangents.inputs[k - 1], w, to_weight=True)
        curved = self._by_name(weights, tangents.sums) | {
            "linear.weight": tangents.slope.mT @ self.values + self.slope.mT @ tangents.values,
            "linear.bias": tangents.slope.sum(0),
        }
        return (self.slope * tangents.logits).sum(), curved, tangents.pixels()

    def pixel_slope(self, v: Sequence[Tensor]) -> Tensor:
        """d/dX of the sum over groups and layers of <v, dL/dweight>, with v fixed, see `Tangents`.

        Args:
            v: Per layer, ``[groups, *shape of the weight]``.

        Returns:
            ``[n, c, h, w]``.
        """
        names = [*(f"{k}.weight" for k in self.layers), "linear.weight"]
        tangents = Tangents(self, dict(zip(names, v)))
        for k in self.layers:
            tangents.forward(self, k)
        tangents.classify(self)
        for k in reversed(self.layers):
            tangents.backward(self, k)
        return tangents.pixels()


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
        return [wide(torch.stack(layer)) for layer in zip(*each)]

    def gradients(self) -> Params:
        """As `Pass.gradients`; convolution biases get rounding errors instead of 0."""
        found = torch.autograd.grad(self._loss(self.images, self.y, self.weight), list(self.params.values()))
        return {name: wide(gradient) for name, gradient in zip(self.params, found)}

    def pixel_slope(self, v: Sequence[Tensor]) -> Tensor:
        """As `Pass.pixel_slope`."""
        slopes = []
        for (images, y, weight), *along in zip(_each(len(v[0]), self.images, self.y, self.weight), *v):
            x = images.detach().requires_grad_()
            made = torch.autograd.grad(self._loss(x, y, weight), self.weights, create_graph=True)
            slopes.append(torch.autograd.grad(made, x, [at.to(x.dtype) for at in along])[0])
        return wide(torch.cat(slopes))
