"""What is trained: networks as pure functions of (params, lambda, inputs)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.networks._dropout import Dropout

Params = dict[str, Tensor]
"""theta: parameters by name."""


class Network(ABC):
    """A network as pure functions; parameters are a dict of tensors.

    Attributes:
        takes: The kind of inputs: ``"graph"`` (a `Graph`) or ``"image"`` (images ``[n, c, h, w]``).
        lanes: R networks of equal shape, each with its own parameters, run as one.
        can_run_side_by_side: Whether several lanes are possible.
        drops: Whether it has dropout of its own, which every training step must switch on.
    """

    takes: str
    lanes: int = 1
    can_run_side_by_side: ClassVar[bool] = False
    drops: bool = False

    def prepare(self, inputs: Any) -> None:
        """Prepare what ``forward`` needs from ``inputs``, before any ``torch.func`` transform."""
        return

    @abstractmethod
    def init(self, generator: torch.Generator) -> Params:
        """Fresh parameters, drawn from ``generator`` on the CPU."""

    @abstractmethod
    def forward(self, params: Params, lam: Any, inputs: Any) -> Tensor:
        """Logits ``[n, classes]``, one row per node or image, at hyperparameters lambda ``[H]``."""

    def forward_lanes(self, params: Params, lam: Tensor, inputs: Any) -> Tensor | None:
        """Logits ``[B, n, classes]`` of B lanes, for plain reverse mode in the parameters; None if there is
        no such form.

        It is what ``vmap`` makes of `forward`, with fewer operations.

        Args:
            params: theta ``[B, ...]``.
            lam: lambda ``[B, H]``, a constant.
            inputs: Shared by the lanes.
        """
        return None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""
        start = self.init(torch.Generator().manual_seed(0))
        return {name: tuple(p.shape) for name, p in start.items()}

    def parameter_count(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes().values())

    def family(self) -> Network:
        """A network with the layers of all its kin; layers with equal names and shapes start alike."""
        return self

    def fast(self) -> Self:
        """The form for plain training; its derivatives may be correct only in reverse mode."""
        return self

    def side_by_side(self, lanes: int) -> Self:
        """A network that runs this many lanes of this one."""
        if lanes != 1:
            raise InputError(f"{type(self).__name__} runs alone, not {lanes} side by side")
        return self

    def with_dropout(self, dropout: Dropout) -> Self:
        """The network as one training step sees it: units are dropped by these masks."""
        raise InputError(f"recipe setting 'dropout': {type(self).__name__} has no dropout; leave it at 0")

    def wide(self) -> frozenset[str]:
        """Names of the kernels that, side by side on CUDA, are fastest as one block-diagonal kernel."""
        return frozenset()

    def forward_with_reference(self, params: Params, lam: Any, inputs: Any, reference: Any) -> Tensor:
        """Logits of ``inputs``, with normalisation statistics taken only from ``reference``."""
        raise InputError(
            "recipe setting 'statistics' 'train': modules of your own are scored with the statistics of the "
            "images that are scored; choose 'batch'"
        )

    def drawn(self, tau: float) -> Self:
        """The relaxed network with operations drawn (GDAS) at temperature ``tau``."""
        raise InputError(
            "relaxation 'gdas' draws the operations of cells, and this network has none; leave it out, or "
            "take images and NASBench201"
        )


def check_lam(lam: Tensor, dimension: int) -> None:
    """Refuse a lambda whose last dimension is not H (broadcasting would hide the error)."""
    if lam.dim() == 0 or lam.shape[-1] != dimension:
        raise InputError(f"lam has shape {tuple(lam.shape)}; its last dimension must be {dimension}")
