"""Images with classes: readers return them, condensers make them, losses receive them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from hcdc.datasets._dataset import CHUNK, Dataset
from hcdc.datasets._labelled import Examples, register_kind


@register_kind
@dataclass(frozen=True, eq=False, repr=False)
class Images(Examples):
    """Labelled images: one of T_train, T_val, S_train, S_val.

    Attributes:
        x: Pixels ``[m, c, h, w]``: uint8 (0 .. 255) or floating point.
        y: Class numbers ``[m]`` (int64).
        weight: Non-negative loss weight of each image; None means equal weights.
    """

    kind = "image"
    noun = "images"
    axes = ("n", "c", "h", "w")

    def pictures(self) -> Tensor:
        return self.x.detach().cpu()

    def details(self, name: str, num_classes: int | None) -> list[tuple[str, str]]:
        counts = self.y.bincount(minlength=num_classes or 1)
        low, high = int(counts.min()), int(counts.max())
        told = f"{low if low == high else f'{low} to {high}'} per class, {self.form} pixels of "
        told += f"{float(self.x.min()):.2f} .. {float(self.x.max()):.2f} (normalised)"
        if self.weight is not None:
            weight = self.weight / self.weight.mean()
            told += (
                f"; weights up to {float(weight.max()):.1f} times the mean, {int((weight == 0).sum())} are 0"
            )
        return [(name, told)]


@dataclass(frozen=True, eq=False, repr=False)
class ImageData(Dataset):
    """A set of images with a split.

    Attributes:
        name, source, num_classes, class_names, origin: As in `Dataset`.
        train, val, test: The images of the split, all of one shape and type.
        mean, std: Per channel over the training images ``[c]``; uint8 images are divided by 255 first, others
            keep their own units. A constant channel has std 1.
        split: How the split was made, in words; also whether images were resized, how many files were
            skipped, and which classes validation or test lacks.
    """

    name: str
    source: str
    train: Images
    val: Images
    test: Images
    num_classes: int
    mean: Tensor
    std: Tensor
    class_names: tuple[str, ...] = ()
    split: str = ""
    origin: dict[str, Any] = field(default_factory=dict)

    kind = "image"
    words = "images"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train.x.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> Self:
        names = ("train", "val", "test", "mean", "std")
        return self._moved(**{name: getattr(self, name).to(device) for name in names})

    def normalised(self, x: Tensor) -> Tensor:
        """Images ``[m, c, h, w]`` as networks see them; see `normalised`."""
        return normalised(x, self.mean, self.std)

    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        """All images and labels, part by part."""
        for images in (self.train, self.val, self.test):
            for tensor in (images.x, images.y):
                yield f"{tuple(tensor.shape)} {tensor.dtype}", tensor

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"mean": self.mean.tolist(), "std": self.std.tolist()}


def normalised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x - mean) / std per channel; uint8 pixels are divided by 255 first.

    Args:
        x: Pixels ``[m, c, h, w]``, uint8 or floating point, on the device of ``mean`` and ``std``.
        mean, std: Per channel ``[c]``.
    """
    values = x.to(mean.dtype) / 255 if x.dtype == torch.uint8 else x
    shape = (-1, 1, 1)
    return (values - mean.to(values.dtype).view(shape)) / std.to(values.dtype).view(shape)


def channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel of ``x [m, c, h, w]``, as in `ImageData`."""
    if x.dtype == torch.uint8:
        counts = torch.zeros(x.shape[1], 256, dtype=torch.float64)
        for chunk in torch.split(x, CHUNK):
            for channel, count in enumerate(counts):
                count += torch.bincount(chunk[:, channel].flatten(), minlength=256)
        levels, share = torch.arange(256, dtype=torch.float64) / 255, counts / counts.sum(1, keepdim=True)
        mean = share @ levels
        variance = (share * (levels - mean[:, None]).square()).sum(1)
    else:
        pixels = x[:, 0].numel()
        chunks = torch.split(x, CHUNK)
        mean = torch.stack([chunk.sum((0, 2, 3), dtype=torch.float64) for chunk in chunks]).sum(0) / pixels
        centre = mean.view(-1, 1, 1)
        squares = [(chunk.double() - centre).square_().sum((0, 2, 3)) for chunk in chunks]
        variance = torch.stack(squares).sum(0) / pixels
    std = variance.sqrt()
    return mean.float(), torch.where(std > 1e-6 * mean.abs(), std, 1.0).float()
