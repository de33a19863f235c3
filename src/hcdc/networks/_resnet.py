"""A small residual network for images, whose width and depth can be searched."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.networks._base import Network, Params
from hcdc.networks._cells import Shapes, _layer, _uniform, batch_norm, convolve, linear_lanes
from hcdc.networks._dropout import Dropout

STAGES = 3


@dataclass(frozen=True)
class ResNet(Network):
    """A residual network for small images (He et al., 2016, section 4.2), without a stem that shrinks them.

    - Stem: 3x3 convolution, BatchNorm, ReLU.
    - Three stages of ``depth`` basic blocks with ``width``, 2 ``width`` and 4 ``width`` channels. A block is
      3x3 convolution, BatchNorm, ReLU, 3x3 convolution, BatchNorm, plus a shortcut, then ReLU. The first
      block of the second and third stage halves the image; its shortcut is a 1x1 convolution and BatchNorm.
    - End: mean over the image, dropout in training, linear layer.

    Depth 3 and width 16 is ResNet-20 with projections: 272,474 parameters for 10 classes. BatchNorm uses the
    statistics of the given batch, as in `CellNetwork`.

    Attributes:
        inputs: Channels of the images: 1 grey, 3 colour.
        classes: Number of classes.
        width: Channels of the first stage.
        depth: Blocks per stage.
        fused, lanes, reference: As in `CellNetwork`.
        dropout: The masks of a training step, on the features before the linear layer; None drops nothing.
    """

    inputs: int
    classes: int
    width: int = 16
    depth: int = 1
    fused: bool = False
    lanes: int = 1
    reference: int = 0
    dropout: Dropout | None = field(default=None, compare=False, repr=False)

    takes = "image"
    can_run_side_by_side = True

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 1:
            raise InputError(f"a ResNet has width and depth of at least 1, got {self.width} and {self.depth}")

    def fast(self) -> Self:
        return dataclasses.replace(self, fused=True)

    def side_by_side(self, lanes: int) -> Self:
        return self if lanes == 1 else dataclasses.replace(self, lanes=lanes)

    def with_dropout(self, dropout: Dropout) -> Self:
        return dataclasses.replace(self, dropout=dropout)

    def forward_with_reference(self, params: Params, lam: Any, images: Tensor, reference: Tensor) -> Tensor:
        """Logits of ``images``, with BatchNorm statistics from the images ``reference`` ``[r, c, h, w]``."""
        behind = dataclasses.replace(self, reference=len(reference))
        return behind.forward(params, lam, torch.cat([reference, images]))[..., len(reference) :, :]

    def _blocks(self) -> list[tuple[str, int, int]]:
        """Name, input channels and output channels of each block; more channels also halve the image."""
        widths = [self.width * 2**stage for stage in range(STAGES)]
        outputs = [width for width in widths for _ in range(self.depth)]
        return [
            (f"blocks.{k}", below, above)
            for k, (below, above) in enumerate(zip([self.width, *outputs], outputs))
        ]

    def shapes(self) -> Shapes:
        """The shape of each parameter, from the stem to the classifier."""
        shapes = _layer("stem", self.width, self.inputs, 3)
        for name, below, above in self._blocks():
            shapes |= _layer(f"{name}.first", above, below, 3)
            shapes |= _layer(f"{name}.second", above, above, 3)
            shapes |= _layer(f"{name}.shortcut", above, below, 1) if above > below else {}
        features = self.width * 2 ** (STAGES - 1)
        return shapes | {"linear.weight": (self.classes, features), "linear.bias": (self.classes,)}

    def init(self, generator: torch.Generator) -> Params:
        """Convolutions uniform with variance 2 / fan-in (He et al., 2015), the linear layer within
        1 / sqrt(fan-in); BatchNorm 1 and 0. A layer's draw depends on the generator and its name."""
        seed = int(torch.randint(2**62, (1,), generator=generator))
        params: Params = {}
        for name, shape in self.shapes().items():
            if name.endswith((".scale", ".shift")):
                params[name] = torch.full(shape, float(name.endswith(".scale")))
            else:
                linear = name.startswith("linear")
                fan_in = self.width * 2 ** (STAGES - 1) if linear else math.prod(shape[1:])
                bound = math.sqrt((1 if linear else 6) / fan_in)
                params[name] = (2 * _uniform(seed, name, tuple(shape)) - 1) * bound
        return params

    def forward(self, params: Params, lam: Any, images: Tensor) -> Tensor:
        """Logits ``[n, classes]`` of images ``[n, inputs, h, w]``; for R lanes ``[R, n, classes]``.

        Lambda is not read. Lanes may have their own images, as ``[n, R inputs, h, w]``.
        """
        if images.dim() != 4 or images.shape[1] not in (self.inputs, self.lanes * self.inputs):
            raise InputError(
                f"images have shape {tuple(images.shape)}; this network needs [n, {self.inputs}, h, w]"
            )
        x = F.relu(self._convolve(params, "stem", images, groups=images.shape[1] // self.inputs))
        for name, below, above in self._blocks():
            stride = 2 if above > below else 1
            inner = F.relu(self._convolve(params, f"{name}.first", x, stride))
            inner = self._convolve(params, f"{name}.second", inner)
            x = F.relu(inner + (x if stride == 1 else self._convolve(params, f"{name}.shortcut", x, stride)))
        return linear_lanes(params, x.mean((-2, -1)), self.lanes, self.dropout)

    def _convolve(
        self, params: Params, name: str, x: Tensor, stride: int = 1, groups: int | None = None
    ) -> Tensor:
        """Convolution without bias, then BatchNorm."""
        x = convolve(x, params[f"{name}.weight"], stride, self.lanes if groups is None else groups)
        return batch_norm(x, params[f"{name}.scale"], params[f"{name}.shift"], self.fused, self.reference)
