"""Dropout as a function of a key, so that masks need no generator.

A mask is a hash of (key, layer, position). It is the same on every device, alone or in a batch of lanes under
``vmap``, and a recorded CUDA graph draws a new one when its key tensor changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
GOLDEN = 0x9E3779B9


def mixed(number: Tensor) -> Tensor:
    """A 32-bit hash of whole numbers (int64, kept within 32 bits): two rounds of multiply and xor-shift."""
    number = number & WORD
    number = (number ^ (number >> 16)) * 0x7FEB352D & WORD
    number = (number ^ (number >> 15)) * 0x846CA68B & WORD
    return number ^ (number >> 16)


@dataclass(frozen=True, eq=False)
class Dropout:
    """The masks of one training step.

    Attributes:
        rate: Share of units to drop.
        key: int64, of which 32 bits count; a number for one network, ``[R]`` for R lanes side by side.
    """

    rate: float | Tensor
    key: Tensor

    def at(self, step: Tensor) -> Dropout:
        """The masks of a step, given its number (int64)."""
        return Dropout(self.rate, mixed(self.key + GOLDEN * (mixed(step) + 1)))

    def __call__(self, x: Tensor, layer: int = 0, whole_channels: bool = False) -> Tensor:
        """Drop units of ``x`` and scale the others by ``1 / (1 - rate)``.

        Args:
            x: ``[n, ...]``, or ``[R, n, ...]`` for a key of R lanes.
            layer: Number of the layer: each has its own mask.
            whole_channels: Drop channels of each example ``[n, c, ...]`` instead of units.
        """
        lanes = self.key.dim()
        shape = (
            x.shape[lanes : lanes + 2] + (1,) * (x.dim() - lanes - 2) if whole_channels else x.shape[lanes:]
        )
        place = torch.arange(shape.numel(), device=x.device).view(shape)
        key = self.key.view(*self.key.shape, *[1] * len(shape))
        uniform = mixed(mixed(place + GOLDEN * (layer + 1)) ^ mixed(key)) / 2**32
        return x * ((uniform >= self.rate) / (1 - self.rate)).to(x.dtype)
