"""What is trained: networks as pure functions of (params, lambda, inputs)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from hcdc.core.errors import InputError

Params = dict[str, Tensor]
"""theta: parameters by name."""


class Network(ABC):
    """A network as pure functions; parameters are a dict of tensors.

    Attributes:
        takes: The kind of inputs: ``"graph"`` (a `Graph`) or ``"image"`` (images ``[n, c, h, w]``).
    """

    takes: str

    def prepare(self, inputs: Any) -> None:
        """Make what ``forward`` needs of ``inputs``, before any ``torch.func`` transform runs."""
        return

    @abstractmethod
    def init(self, generator: torch.Generator) -> Params:
        """Fresh parameters, drawn from ``generator`` on the CPU."""

    @abstractmethod
    def forward(self, params: Params, lam: Any, inputs: Any) -> Tensor:
        """Logits ``[n, classes]``, one row per node or image, at hyperparameters lambda ``[H]``."""


def check_lam(lam: Tensor, dimension: int) -> None:
    """Refuse a lambda whose last dimension is not H (broadcasting would hide it)."""
    if lam.dim() == 0 or lam.shape[-1] != dimension:
        raise InputError(f"lam has shape {tuple(lam.shape)}; its last dimension must be {dimension}")
