"""Augmentation as tensors: drawn for many groups of images at once, applied without host decisions.

Differentiable siamese augmentation (DSA) applies the same operation with the same parameters to every image
of a group. Flip, scale, rotation and crop are one affine map of pixel positions, cutout is a mask, colour is
three numbers. An operation that was not drawn is the identity. Everything can be recorded as a CUDA graph.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hcdc.core.errors import unknown_name
from hcdc.networks import fused

OPERATIONS = ("colour", "crop", "cutout", "flip", "scale", "rotate")
STRATEGY = "_".join(OPERATIONS)
FLIP, SCALE, ROTATE, CROP, CUTOUT = 0.5, 1.2, 15.0, 0.125, 0.5
BRIGHTNESS, SATURATION, CONTRAST = 1.0, 2.0, 0.5
"""DSA's published settings: flip probability, largest scale, degrees, shares of a side, colour."""


@dataclass(frozen=True, eq=False)
class Augmentation:
    """The changes to G groups of images of h x w pixels.

    Attributes:
        theta: Affine map ``[G, 2, 3]`` from an output position (column, row, 1), measured in pixels from the
            centre, to the input position it takes its value from; zero outside the image.
        mask: Factor of each pixel ``[G, 1, h, w]``: 0 if cut out, else 1.
        brightness: Added to all pixels ``[G]``.
        saturation: Scales the distance to the grey image (mean over channels) ``[G]``.
        contrast: Scales the distance to the image's mean ``[G]``.
    """

    theta: Tensor
    mask: Tensor
    brightness: Tensor
    saturation: Tensor
    contrast: Tensor

    @classmethod
    def identity(cls, groups: int, size: tuple[int, int], device: torch.device | str = "cpu") -> Augmentation:
        """No change to ``groups`` groups of images of ``size`` (height, width); a buffer to copy into."""
        return cls(
            theta=torch.eye(2, 3, device=device).repeat(groups, 1, 1),
            mask=torch.ones(groups, 1, *size, device=device),
            brightness=torch.zeros(groups, device=device),
            saturation=torch.ones(groups, device=device),
            contrast=torch.ones(groups, device=device),
        )

    def tensors(self) -> list[Tensor]:
        """The five tensors in order."""
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, groups: slice) -> Augmentation:
        """A range of groups, as views."""
        return Augmentation(*(tensor[groups] for tensor in self.tensors()))

    def copy_from(self, other: Augmentation) -> None:
        """Copy the values of ``other`` in place."""
        for own, new in zip(self.tensors(), other.tensors()):
            own.copy_(new)


def draw_augmentation(
    generator: torch.Generator, groups: int, size: tuple[int, int], strategy: str = STRATEGY
) -> Augmentation:
    """Draw one operation of ``strategy`` with its parameters for each group, on the generator's device.

    A flip mirrors with probability 1/2. A scale has a factor in [1/1.2, 1.2] per axis. A rotation is within
    15 degrees. A crop shifts by whole pixels, at most an eighth of a side. Cutout blanks a square of half a
    side around a random centre. Colour adds a brightness in [-.5, .5], then applies a saturation in [0, 2]
    and a contrast in [.5, 1.5].

    Args:
        generator: Source of the draws.
        groups: G.
        size: Height and width of the images.
        strategy: Names of operations, joined by ``_``.
    """
    device = generator.device
    which = torch.randint(len(_operations(strategy)), (groups,), generator=generator, device=device)
    return _parameters(generator, which, size, strategy)


def draw_each(
    generator: torch.Generator,
    count: int,
    size: tuple[int, int],
    strategy: str = STRATEGY,
    batches: int = 1,
) -> Augmentation:
    """Draw one operation per batch, with separate parameters for each of its images (not siamese).

    Returns:
        ``batches * count`` groups for `augment_each`; batch b starts at group ``b * count``.
    """
    device = generator.device
    which = torch.randint(len(_operations(strategy)), (batches,), generator=generator, device=device)
    return _parameters(generator, which.repeat_interleave(count, output_size=batches * count), size, strategy)


def _operations(strategy: str) -> list[str]:
    names = strategy.split("_")
    for name in names:
        if name not in OPERATIONS:
            raise unknown_name("operation of an augmentation", name, OPERATIONS)
    return names


def _parameters(
    generator: torch.Generator, which: Tensor, size: tuple[int, int], strategy: str
) -> Augmentation:
    """Parameters of the operations ``which`` ``[G]``, numbered as in ``strategy``."""
    names, device, (height, width) = _operations(strategy), which.device, size
    u = torch.rand(11, len(which), generator=generator, device=device)

    def drawn(name: str, value: Tensor, otherwise: float) -> Tensor:
        if name not in names:
            return torch.full_like(value, otherwise)
        return torch.where(which == names.index(name), value, otherwise)

    def whole(share: Tensor, count: int) -> Tensor:
        """A whole number from 0 to count - 1."""
        return (share * count).floor().clamp_max(count - 1)

    def axis(share: Tensor, side: int) -> Tensor:
        """Whether each position 0 .. side - 1 lies in the blanked square ``[G, side]``."""
        length = int(side * CUTOUT + 0.5)
        first = whole(share, side + 1 - length % 2) - length // 2
        position = torch.arange(side, device=device)
        return (position >= first[:, None]) & (position < first[:, None] + length)

    def shift(share: Tensor, side: int) -> Tensor:
        most = int(side * CROP + 0.5)
        return whole(share, 2 * most + 1) - most

    angle = drawn("rotate", (2 * u[0] - 1) * math.radians(ROTATE), 0.0)
    mirror = drawn("flip", torch.where(u[1] < FLIP, -1.0, 1.0), 1.0)
    across, down = (drawn("scale", 1 / SCALE + u[k] * (SCALE - 1 / SCALE), 1.0) for k in (2, 3))
    right, below = drawn("crop", shift(u[4], width), 0.0), drawn("crop", shift(u[5], height), 0.0)
    cos, sin = angle.cos(), angle.sin()
    rows = [
        mirror * across * cos,
        -sin,
        right,
        sin,
        down * cos,
        below,
    ]  # only one operation is drawn, so there are no mixed terms
    blank = axis(u[6], height)[:, :, None] & axis(u[7], width)[:, None, :]
    is_cutout = drawn("cutout", torch.ones_like(angle), 0.0)
    return Augmentation(
        theta=torch.stack(rows, 1).view(-1, 2, 3),
        mask=(1 - blank.to(angle) * is_cutout[:, None, None])[:, None],
        brightness=drawn("colour", (u[8] - 0.5) * BRIGHTNESS, 0.0),
        saturation=drawn("colour", u[9] * SATURATION, 1.0),
        contrast=drawn("colour", u[10] + CONTRAST, 1.0),
    )


def _samples(theta: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """For each output pixel, the four input pixels around its source position and their bilinear weights.

    Args:
        theta, mask: Fields of an `Augmentation`.

    Returns:
        Input pixel numbers (row by row) ``[G, 4, h * w]``, and weights of the same shape, 0 outside.
    """
    height, width = mask.shape[2:]
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    x = torch.arange(width, device=theta.device, dtype=theta.dtype) - middle_x
    y = (torch.arange(height, device=theta.device, dtype=theta.dtype) - middle_y)[:, None]
    a, b, c, d, e, f = (theta[:, i, j, None, None] for i in (0, 1) for j in (0, 1, 2))
    across, down = (a * x + b * y + c + middle_x)[:, None], (d * x + e * y + f + middle_y)[:, None]
    corner = torch.arange(4, device=theta.device)[:, None, None]
    row, column = down.floor() + corner // 2, across.floor() + corner % 2
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    weight = (1 - (across - column).abs()) * (1 - (down - row).abs()) * inside
    index = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
    return index.long().flatten(2), weight.flatten(2)


def augment(x: Tensor, a: Augmentation) -> Tensor:
    """Apply ``a`` to images ``[G, n, c, h, w]``, group by group; differentiable in x any number of times.

    Flips and shifts by whole pixels move values without changing them.
    """
    return _augmented(x, *_samples(a.theta, a.mask), a.mask, a.brightness, a.saturation, a.contrast)


def _each_group(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like.dtype).view(-1, 1, 1, 1, 1)


def _augmented(
    x: Tensor,
    index: Tensor,
    weight: Tensor,
    mask: Tensor,
    brightness: Tensor,
    saturation: Tensor,
    contrast: Tensor,
) -> Tensor:
    """`augment`, given the result of `_samples`."""
    groups, count, channels, height, width = x.shape
    flat = x.reshape(groups, count * channels, height * width)
    taps = [
        flat.gather(2, index[:, k, None].expand_as(flat)) * weight[:, k, None].to(x.dtype) for k in range(4)
    ]
    out = (taps[0] + taps[1] + taps[2] + taps[3]).view(x.shape) + _each_group(brightness, x)
    mean = out.mean((2, 3, 4), keepdim=True)  # saturation does not change the mean
    out = out + _each_group(saturation - 1, x) * (out - out.mean(2, keepdim=True))
    out = out + _each_group(contrast - 1, x) * (out - mean)
    return out * mask.to(x.dtype)[:, None]


def augment_back(dy: Tensor, a: Augmentation) -> Tensor:
    """Backward pass of `augment`: from dL/daugment(x) ``[G, n, c, h, w]`` to dL/dx."""
    index, weight = fused(_samples, a.theta, a.mask)
    d = dy * a.mask.to(dy.dtype)[:, None]
    d = d + _each_group(a.contrast - 1, dy) * (d - d.mean((2, 3, 4), keepdim=True))
    d = d + _each_group(a.saturation - 1, dy) * (d - d.mean(2, keepdim=True))
    flat = d.flatten(3).flatten(1, 2)
    dx = torch.zeros_like(flat)
    for k in range(4):
        dx.scatter_add_(2, index[:, k, None].expand_as(flat), flat * weight[:, k, None].to(dy.dtype))
    return dx.view(dy.shape)


def shown(x: Tensor, a: Augmentation, dtype: torch.dtype) -> Tensor:
    """`augment` as network input: ``[G * n, c, h, w]`` in ``dtype``; fused and channels last on CUDA."""
    samples = fused(_samples, a.theta, a.mask)
    out: Tensor = fused(_cast, x, *samples, a.mask, a.brightness, a.saturation, a.contrast, dtype)
    order = torch.channels_last if x.is_cuda else torch.contiguous_format
    return out.flatten(0, 1).contiguous(memory_format=order)


def _cast(*given: Any) -> Tensor:
    """`_augmented`, cast to the type given last."""
    return _augmented(*given[:-1]).to(given[-1])


def augment_each(x: Tensor, a: Augmentation) -> Tensor:
    """Augment images ``[n, c, h, w]``, image i by group i of ``a``."""
    return augment(x[:, None], a)[:, 0]
