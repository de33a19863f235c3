"""Graph convolution filters as polynomials of a graph matrix: the paper's continuous space on graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.errors import InputError, unknown_name
from hcdc.datasets._graph import Graph
from hcdc.spaces._base import Config, Params, Space
from hcdc.spaces._check import check_lam
from hcdc.spaces._registry import register


def _powers_of_p(graph: Graph, order: int) -> Callable[[Tensor], Iterator[Tensor]]:
    """I, P, P^2, ... with P = D^-1/2 (A + I) D^-1/2."""
    p = graph.propagation()

    def terms(z: Tensor) -> Iterator[Tensor]:
        yield z
        for _ in range(order):
            z = z if p is None else p @ z
            yield z

    return terms


def _powers_of_l(graph: Graph, order: int) -> Callable[[Tensor], Iterator[Tensor]]:
    """I, L, L^2, ... with L = I - D^-1/2 A D^-1/2."""
    a = graph.normalised_adjacency()

    def terms(z: Tensor) -> Iterator[Tensor]:
        yield z
        for _ in range(order):
            z = z if a is None else z - a @ z
            yield z

    return terms


def _chebyshev(graph: Graph, order: int) -> Callable[[Tensor], Iterator[Tensor]]:
    """T_0, T_1, ... of the scaled Laplacian 2/lmax L - I with lmax = 2, i.e. of -D^-1/2 A D^-1/2."""
    a = graph.normalised_adjacency()

    def scaled(z: Tensor) -> Tensor:
        return torch.zeros_like(z) if a is None else -(a @ z)

    def terms(z: Tensor) -> Iterator[Tensor]:
        before, current = z, scaled(z)
        yield before
        for k in range(1, order + 1):
            yield current
            if k < order:
                before, current = current, 2 * scaled(current) - before

    return terms


def _figure(graph: Graph, order: int) -> Callable[[Tensor], Iterator[Tensor]]:
    """I (fixed coefficient 1), L and 2/lmax L - I: the plane of the paper's figure of the GNN model space."""
    a = graph.normalised_adjacency()
    scale = 2 / graph.largest_laplacian_eigenvalue()

    def terms(z: Tensor) -> Iterator[Tensor]:
        lz = z if a is None else z - a @ z
        yield lz
        yield scale * lz - z

    return terms


BASES = {"powers": _powers_of_p, "laplacian": _powers_of_l, "chebyshev": _chebyshev, "figure": _figure}


@dataclass(frozen=True)
class FilterNetwork:
    """X <- relu(sum_r C_r X W_r) for each layer, no activation after the last (eq. gnn-multiple).

    C_r is set by lambda ``[filters * terms]``, which the layers share. Products run in the order C (X W): the
    graph matrix meets the narrow side.
    """

    basis: str
    order: int
    layers: int
    width: int
    filters: int
    features: int
    classes: int

    def prepare(self, graph: Graph) -> None:
        graph.prepare("P" if self.basis == "powers" else "A")
        if self.basis == "figure":
            graph.largest_laplacian_eigenvalue()

    def init(self, generator: torch.Generator) -> Params:
        """Glorot-uniform weights ``W{layer}_{filter}``."""
        sizes = [self.features, *[self.width] * (self.layers - 1), self.classes]
        params = {}
        for layer in range(self.layers):
            rows, columns = sizes[layer], sizes[layer + 1]
            bound = math.sqrt(6 / (rows + columns))
            for r in range(self.filters):
                draw = torch.rand(rows, columns, generator=generator)
                params[f"W{layer}_{r}"] = (2 * draw - 1) * bound
        return params

    def forward(self, params: Params, lam: Tensor, graph: Graph, index: Tensor | None = None) -> Tensor:
        terms = BASES[self.basis](graph, self.order)
        coefficients = lam.reshape(self.filters, -1)
        hidden: Any = graph.x
        for layer in range(self.layers):
            total: Tensor | None = None
            for r in range(self.filters):
                z = hidden @ params[f"W{layer}_{r}"]
                if self.basis == "figure":
                    total = z if total is None else total + z
                for k, term in enumerate(terms(z)):
                    part = coefficients[r, k] * term
                    total = part if total is None else total + part
            assert total is not None
            hidden = torch.relu(total) if layer < self.layers - 1 else total
        return hidden if index is None else hidden[index]  # type: ignore[no-any-return]


@register
@dataclass(frozen=True)
class PolynomialFilter(Space):
    """Filters C(lambda) = sum_k lambda_k M_k with lambda uniform in a box.

    Attributes:
        order: Highest power (``"figure"`` has two terms whatever the order).
        basis: ``"powers"`` of P, ``"laplacian"`` powers, ``"chebyshev"`` polynomials, or ``"figure"``:
            I + l1 L + l2 (2/lmax L - I).
        filters: Filters a layer (eq. gnn-multiple).
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

    def _names(self) -> list[str]:
        return [f"lambda_{k}" for k in range(self.dimension)]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        draws = rng.uniform(-self.bound, self.bound, (count, self.dimension))
        return [dict(zip(self._names(), map(float, row))) for row in draws]

    def encode(self, config: Config) -> Tensor:
        if set(config) != set(self._names()):
            raise InputError(
                f"a {self.name} configuration has exactly {', '.join(self._names())}; "
                f"got {', '.join(map(str, config))}"
            )
        for name, value in config.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"{name}: {value!r} is not a number")
            if not -self.bound <= value <= self.bound:
                raise InputError(f"{name}: {value:g} lies outside [{-self.bound:g}, {self.bound:g}]")
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
        return FilterNetwork(self.basis, self.order, self.layers, self.width, self.filters, features, classes)
