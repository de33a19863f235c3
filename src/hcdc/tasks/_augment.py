"""Augmentation of training images by shifts and mirroring."""

from __future__ import annotations

import torch
from torch import Tensor


def flip_crop_settings(augment: str, side: int) -> tuple[int, bool]:
    """Largest shift in pixels and whether to mirror, for a recipe's ``augment`` and images of this width."""
    return (max(1, side // 8) if "crop" in augment else 0), "flip" in augment


def draw_flip_crop(
    generator: torch.Generator, count: int, pad: int = 4, mirror: bool = True
) -> tuple[Tensor, Tensor]:
    """Draw which images to mirror ``[count]`` (bool; none without ``mirror``) and shifts ``[count, 2]``
    (rows, columns) in -pad .. pad."""
    device = generator.device
    flip = torch.rand(count, generator=generator, device=device) < (0.5 if mirror else 0.0)
    return flip, torch.randint(-pad, pad + 1, (count, 2), generator=generator, device=device)


def flip_crop(x: Tensor, flip: Tensor, shift: Tensor) -> Tensor:
    """CIFAR's usual augmentation: crop the zero-padded image, then mirror it.

    Args:
        x: Images ``[n, c, h, w]``.
        flip: Which to mirror ``[n]`` (bool).
        shift: Rows down and columns to the right by which to move the crop ``[n, 2]`` (int64).
    """
    count, channels, height, width = x.shape
    column = torch.arange(width, device=x.device)
    column = torch.where(flip[:, None], width - 1 - column, column) + shift[:, 1:]
    row = torch.arange(height, device=x.device) + shift[:, :1]
    inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None, :]
    index = row.clamp(0, height - 1)[:, :, None] * width + column.clamp(0, width - 1)[:, None, :]
    moved = x.flatten(2).gather(2, index.view(count, 1, -1).expand(-1, channels, -1)).view(x.shape)
    return torch.where(inside[:, None], moved, 0)
