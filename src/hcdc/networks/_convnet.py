"""ConvNet-3, the standard network for measuring image condensation, as pure functions."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.networks._base import Network, Params
from hcdc.networks._cells import linear_lanes
from hcdc.networks._dropout import Dropout


def instance_norm(x: Tensor, scale: Tensor, shift: Tensor, fused: bool) -> Tensor:
    """Normalise each channel of each image ``[n, c, h, w]``, then scale and shift ``[c]``.

    This is GroupNorm with one channel per group. ``fused`` uses torch's kernel, whose derivatives are correct
    only in reverse mode; the composed form is correct in any mode.
    """
    if fused:
        return F.group_norm(x, x.shape[1], scale, shift)
    variance, mean = torch.var_mean(x, (-2, -1), correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * scale[:, None, None] + shift[:, None, None]


@dataclass(frozen=True)
class ConvNet(Network):
    """Blocks of 3x3 convolution, instance norm, ReLU and 2x2 average pool; then one linear layer.

    With 3 blocks of width 128 on 32 x 32 colour images: 320,010 parameters at 10 classes, 504,420 at 100.

    Attributes:
        inputs: Channels of the images.
        classes: Number of classes.
        size: Height and width of the images.
        width: Channels of each block.
        depth: Number of blocks.
        fused: Use torch's own GroupNorm, see `instance_norm`; faster.
        dropout: The masks of a training step, on the features before the linear layer; None drops nothing.
    """

    inputs: int
    classes: int
    size: tuple[int, int] = (32, 32)
    width: int = 128
    depth: int = 3
    fused: bool = False
    dropout: Dropout | None = field(default=None, compare=False, repr=False)

    takes = "image"

    def __post_init__(self) -> None:
        if min(self.size) < 2**self.depth:
            raise InputError(
                f"images of {self.size[0]} x {self.size[1]} pixels are too small for a ConvNet of depth "
                f"{self.depth}; at least {2**self.depth} pixels are needed"
            )

    @property
    def features_out(self) -> int:
        """Length of the embedding before the linear layer."""
        return self.width * math.prod(side >> self.depth for side in self.size)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, from the first block to the classifier."""
        shapes: dict[str, tuple[int, ...]] = {}
        for k in range(self.depth):
            below = self.inputs if k == 0 else self.width
            shapes[f"{k}.weight"] = (self.width, below, 3, 3)
            shapes |= {f"{k}.{name}": (self.width,) for name in ("bias", "scale", "shift")}
        return shapes | {
            "linear.weight": (self.classes, self.features_out),
            "linear.bias": (self.classes,),
        }

    def fan_in(self, name: str) -> int:
        """Inputs of the layer that a weight or bias belongs to."""
        layer = name.split(".")[0]
        return math.prod(self.shapes()[f"{layer}.weight"][1:])

    def init(self, generator: torch.Generator) -> Params:
        """Weights and biases uniform within 1 / sqrt(fan-in), scales 1, shifts 0, as in torch's layers."""
        device = generator.device
        params: Params = {}
        for name, shape in self.shapes().items():
            if name.endswith(".scale"):
                params[name] = torch.ones(shape, device=device)
            elif name.endswith(".shift"):
                params[name] = torch.zeros(shape, device=device)
            else:
                bound = 1 / math.sqrt(self.fan_in(name))
                params[name] = (2 * torch.rand(shape, generator=generator, device=device) - 1) * bound
        return params

    def features(self, params: Params, images: Tensor) -> Tensor:
        """Embeddings ``[n, features_out]`` of images ``[n, inputs, h, w]``."""
        if images.dim() != 4 or tuple(images.shape[1:]) != (self.inputs, *self.size):
            raise InputError(
                f"images have shape {tuple(images.shape)}; this network needs "
                f"[n, {self.inputs}, {self.size[0]}, {self.size[1]}]"
            )
        x = images
        for k in range(self.depth):
            x = F.conv2d(x, params[f"{k}.weight"], params[f"{k}.bias"], padding=1)
            x = F.relu(instance_norm(x, params[f"{k}.scale"], params[f"{k}.shift"], self.fused))
            x = F.avg_pool2d(x, 2)
        return x.flatten(1)

    def forward_with_reference(
        self, params: Params, lam: Tensor | None, images: Tensor, reference: Tensor
    ) -> Tensor:
        """Logits of ``images``; each image is normalised by itself, so the reference is not used."""
        return self.forward(params, lam, images)

    def with_dropout(self, dropout: Dropout) -> Self:
        return dataclasses.replace(self, dropout=dropout)

    def forward(self, params: Params, lam: Tensor | None, images: Tensor) -> Tensor:
        """Logits ``[n, classes]``; lambda is not read."""
        features = self.features(params, images)
        return linear_lanes(params, features, 1, self.dropout)

    # --- parameters as one vector, and the fast forms of training -------------------------------------------

    def views(self, vector: Tensor) -> Params:
        """Views of the parameters in ``vector`` ``[P]``, in the order of `shapes`."""
        shapes = self.shapes()
        parts = torch.split(vector, [math.prod(shape) for shape in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts)}

    def flatten(self, params: Params) -> Tensor:
        """Parameters as one vector ``[P]``."""
        return torch.cat([params[name].reshape(-1) for name in self.shapes()])

    def embed(self, params: Params, images: Tensor) -> Tensor:
        """The embeddings of `features`, in the type of the parameters; reverse mode only.

        Convolution biases are left out, since instance norm removes each channel's mean. On CUDA,
        convolutions run in channels_last order.
        """
        order = torch.channels_last if images.is_cuda else torch.contiguous_format
        x = images.to(params["0.weight"].dtype, memory_format=order)
        for k in range(self.depth):
            x = F.conv2d(x, params[f"{k}.weight"].contiguous(memory_format=order), padding=1)
            x = F.group_norm(x, self.width, params[f"{k}.scale"], params[f"{k}.shift"])
            x = F.avg_pool2d(F.relu(x, inplace=True), 2)
        return x.flatten(1)

    def logits(self, params: Params, images: Tensor) -> Tensor:
        """`forward` through `embed`, with the linear layer in at least float32."""
        features = self.embed(params, images)
        wide = torch.promote_types(features.dtype, torch.float32)
        return F.linear(features.to(wide), params["linear.weight"].to(wide), params["linear.bias"].to(wide))
