"""Graph convolution filters as polynomials in a graph matrix: the paper's continuous space on graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.networks import BASES, FilterNetwork, check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import Dimension
from hcdc.spaces._registry import register


@register
@dataclass(frozen=True)
class PolynomialFilter(Space):
    """Filters C(lambda) = sum_k lambda_k M_k with lambda uniform in a box.

    Attributes:
        order: Highest power (``"figure"`` always has two terms).
        basis: ``"powers"`` of P, ``"laplacian"`` powers, ``"chebyshev"`` polynomials, or ``"figure"``:
            I + l1 L + l2 (2/lmax L - I).
        filters: Filters per layer (eq. gnn-multiple).
        layers, width: Depth and hidden width of the network.
        bound: lambda lies in ``[-bound, bound]`` in each dimension.
    """

    order: int = 3
    basis: str = "powers"
    filters: int = 1
    layers: int = 2
    width: int = 64
    bound: float = 1.0

    name = "polynomial-filter"
    batched = True

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise unknown_name("basis", self.basis, BASES)
        if min(self.order, self.filters, self.layers, self.width) < 1 or not self.bound > 0:
            raise InputError(
                "PolynomialFilter needs order, filters, layers and width of at least 1 and bound > 0, "
                f"got {self.order}, {self.filters}, {self.layers}, {self.width}, {self.bound}"
            )

    @property
    def dimension(self) -> int:
        return self.filters * (2 if self.basis == "figure" else self.order + 1)

    @property
    def even(self) -> bool:
        """With -lambda all filters change sign; networks with opposite weights, equally likely, undo it."""
        return self.basis != "figure"

    def _names(self) -> list[str]:
        return [f"lambda_{k}" for k in range(self.dimension)]

    def dimensions(self) -> tuple[Dimension, ...]:
        return tuple(
            Dimension(name, "uniform", -self.bound, self.bound, read_by="network") for name in self._names()
        )

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        draws = rng.uniform(-self.bound, self.bound, (count, self.dimension))
        return [dict(zip(self._names(), map(float, row))) for row in draws]

    def encode(self, config: Config) -> Tensor:
        self.check(config)
        return torch.tensor([float(config[name]) for name in self._names()], dtype=torch.float64)

    def decode(self, lam: Tensor) -> Config:
        return dict(zip(self._names(), self.project(lam.detach().cpu().double()).tolist()))

    def project(self, lam: Tensor) -> Tensor:
        check_lam(lam, self.dimension)
        return lam.clamp(-self.bound, self.bound)

    def spec(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "order": self.order,
            "basis": self.basis,
            "filters": self.filters,
            "layers": self.layers,
            "width": self.width,
            "bound": self.bound,
        }

    def network(self, features: int, classes: int, config: Config | None = None) -> FilterNetwork:
        if config is not None:
            self.check(config)
        return FilterNetwork(self.basis, self.order, self.layers, self.width, self.filters, features, classes)
