"""The parameters of a network's lanes as one vector, and what the network sees of them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hcdc.networks import Network, Params, has_triton

PRECISION = torch.bfloat16
"""Type of convolutions on CUDA; parameters are updated in float32. Not float16: its one-kernel BatchNorm
occupies the whole device, so networks on other streams wait."""


class Layout:
    """The parameters of a network (or R lanes of it) as one vector: matrices and kernels, then vectors.

    Kernels are stored in channels_last order, and the lanes of a parameter one after another. With one
    vector, an optimiser step takes a handful of kernels, regardless of the number of layers.

    Args:
        params: Parameters of one lane by name, for their shapes.
        lanes: R.
    """

    def __init__(self, params: Params, lanes: int = 1):
        names = sorted(params, key=lambda name: params[name].dim() <= 1)  # stable: matrices first
        self.lanes = lanes
        self.shapes = {name: params[name].shape for name in names}
        self.sizes = [params[name].numel() for name in names]
        self.matrices = lanes * sum(params[name].numel() for name in names if params[name].dim() > 1)

    def vector(self, params: Sequence[Params]) -> Tensor:
        """The parameters of all lanes as one vector ``[R P]``."""
        return torch.cat([self.flat(lane[name]) for name in self.shapes for lane in params])

    @staticmethod
    def flat(p: Tensor) -> Tensor:
        """One parameter (or its gradient) as a vector."""
        return p.permute(0, 2, 3, 1).reshape(-1) if p.dim() == 4 else p.reshape(-1)

    def views(self, vector: Tensor, work: Tensor) -> Params:
        """Parameters of all R lanes by name: matrices are views of ``work``, the rest of ``vector``."""
        found: Params = {}
        start = 0
        for (name, shape), size in zip(self.shapes.items(), self.sizes):
            many = self.lanes * size
            part = (work if start < self.matrices else vector)[start : start + many]
            if len(shape) == 4:
                _, channels, height, width = shape
                found[name] = part.view(-1, height, width, channels).permute(0, 3, 1, 2)
            elif len(shape) > 1:
                found[name] = part.view(-1, *shape[1:])
            else:
                found[name] = part.view(shape if self.lanes == 1 else (-1,))
            start += many
        return found

    def owners(self, device: torch.device | str = "cpu") -> Tensor:
        """The lane to which each entry of a vector ``[R P]`` belongs."""
        lane = torch.arange(self.lanes).repeat(len(self.sizes)).to(device)
        counts = torch.tensor(self.sizes).repeat_interleave(self.lanes).to(device)
        return torch.repeat_interleave(lane, counts, output_size=self.lanes * sum(self.sizes))


class Weights:
    """theta ``[R P]`` and its gradient.

    Attributes:
        theta: Parameters in float32.
        gradient: Their gradient, see `collect`.
        params: What the network sees in training: views of ``theta``, on CUDA with matrices in `PRECISION`.
    """

    def __init__(self, layout: Layout, device: torch.device):
        self.layout = layout
        self.theta = torch.zeros(layout.lanes * sum(layout.sizes), device=device)
        self.gradient = torch.zeros_like(self.theta)
        mixed = device.type == "cuda"
        self.work = torch.zeros(layout.matrices, dtype=PRECISION, device=device) if mixed else self.theta
        self.params = layout.views(self.theta, self.work)
        self._prepare(device)

    def _prepare(self, device: torch.device) -> None:
        self.zeros = {name: torch.zeros_like(p) for name, p in self.params.items()}
        if self.layout.lanes > 1:
            self.owners = self.layout.owners(device)
            self.by_lane = self.owners.argsort(stable=True)

    def refresh(self) -> None:
        """Update what the network sees."""
        if self.work is not self.theta:
            self.work.copy_(self.theta[: self.layout.matrices])

    def trained(self) -> Params:
        """The parameters of all lanes."""
        return self.params

    def collect(self, found: dict[str, Tensor | None], decay: float, clip: float) -> None:
        """Join gradients by name; weights on no path from input to output have none.

        Args:
            found: Gradients in ``params``.
            decay: Weight decay to add; 0 means none.
            clip: Largest norm of each lane; 0 means no limit.
        """
        parts = [self.layout.flat(self.zeros[name] if g is None else g) for name, g in found.items()]
        flat = [part for part, p in zip(parts, self.params.values()) if p.dim() > 1]
        self.gradient[: self.layout.matrices].copy_(torch.cat(flat))
        if len(flat) < len(parts):
            torch.cat(parts[len(flat) :], out=self.gradient[self.layout.matrices :])
        if decay:
            self.gradient.add_(self.theta, alpha=decay)
        if clip:
            self.gradient.mul_(self._clipped(clip))

    def _clipped(self, clip: float) -> Tensor:
        """The clipping factor for each entry of the gradient, from its own lane's norm."""
        rows, lanes = self.gradient, self.layout.lanes
        if lanes > 1:
            rows = rows.index_select(0, self.by_lane)
        norm: Tensor = torch.linalg.vector_norm(rows.view(lanes, -1), dim=1)
        factor = (clip / (norm + 1e-6)).clamp_max(1.0)
        return factor if lanes == 1 else factor.index_select(0, self.owners)


@functools.cache
def _triton() -> Any:
    return importlib.import_module("hcdc.training._weights_cuda") if has_triton() else None


def weights(network: Network, layout: Layout, device: torch.device) -> Weights:
    """Weights for lanes of a network; on CUDA in a few kernels, if Triton is there."""
    if device.type == "cuda" and layout.lanes > 1 and _triton() is not None:
        found: Weights = _triton().WideWeights(layout, device, network.wide())
        return found
    return Weights(layout, device)
