"""Images grouped by class: random batches of original images, and synthetic images side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from hcdc.core.labels import members
from hcdc.datasets import Images
from hcdc.networks import ConvNet
from hcdc.tasks import ImageTask


def convnet(task: ImageTask, width: int, depth: int) -> ConvNet:
    """A ConvNet for the task's images."""
    channels, height, side = task.data.shape
    return ConvNet(channels, task.num_classes, (height, side), width, depth)


def class_groups(y: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Positions of each class as one padded index.

    Returns:
        ``index`` ``[classes, m]``, padded with the class's first position, and ``valid`` (bool) of that
        shape; on the device of ``y``.
    """
    own = members(y, num_classes)
    index = torch.nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=-1)
    valid = index >= 0
    return torch.where(valid, index, index[:, :1]).to(y.device), valid.to(y.device)


class RealBatches:
    """Original images of each class, drawn without repeats.

    Args:
        task: The task.
        part: ``"train"`` or ``"val"``.
        batch: Images drawn per class; a smaller class gives all its images.

    Attributes:
        weight: ``[classes, b]``, 1 / images drawn from the class, and 0 for padding.
    """

    def __init__(self, task: ImageTask, part: str, batch: int):
        self.task, self.images = task, task.part(part)
        self.index, self.valid = class_groups(self.images.y, task.num_classes)
        self.batch = min(batch, self.index.shape[1])
        drawn = self.valid[:, : self.batch].to(torch.float32)
        self.weight = drawn / drawn.sum(1, keepdim=True)

    def draw(self, generator: torch.Generator, times: int) -> Tensor:
        """Positions in the part ``[times, classes, b]``, padding last."""
        device = self.index.device
        keys = torch.rand(times, *self.index.shape, generator=generator, device=device)
        keys = keys.masked_fill(~self.valid, 2.0)
        first = keys.topk(self.batch, largest=False).indices
        return self.index.expand(times, -1, -1).gather(2, first)

    def images_at(self, index: Tensor) -> Tensor:
        """Normalised images ``[..., c, h, w]`` at positions ``[...]``."""
        return self.task.inputs(self.images.x[index])


class Grouped:
    """Synthetic images by class: ``x`` ``[classes, m, c, h, w]``, with padding for small classes.

    Args:
        small: Labelled images; on their device.
        num_classes: Number of classes.

    Attributes:
        weight: ``[classes, m]``, 1 / images of the class, and 0 for padding.
    """

    def __init__(self, small: Images, num_classes: int):
        self.y, (self.index, self.valid) = small.y, class_groups(small.y, num_classes)
        self.x = small.x[self.index].contiguous()
        self.weight = self.valid.to(self.x.dtype) / self.valid.sum(1, keepdim=True)

    def images(self) -> Images:
        """The images in their original order."""
        x = torch.empty(len(self.y), *self.x.shape[2:], dtype=self.x.dtype, device=self.x.device)
        x[self.index[self.valid]] = self.x.detach()[self.valid]
        return Images(x, self.y)
