"""Graph networks whose convolutions are polynomials in a graph matrix."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, Matrix
from hcdc.networks._base import Network, Params
from hcdc.networks._dropout import Dropout


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
    """I (fixed coefficient 1), L and 2/lmax L - I: the plane in the paper's figure of the GNN model space."""
    a = graph.normalised_adjacency()
    scale = 2 / graph.largest_laplacian_eigenvalue()

    def terms(z: Tensor) -> Iterator[Tensor]:
        lz = z if a is None else z - a @ z
        yield lz
        yield scale * lz - z

    return terms


BASES = {"powers": _powers_of_p, "laplacian": _powers_of_l, "chebyshev": _chebyshev, "figure": _figure}


@dataclass(frozen=True)
class FilterNetwork(Network):
    """X <- relu(sum_r C_r X W_r) for each layer, no activation after the last (eq. gnn-multiple).

    Lambda ``[filters * terms]``, shared by all layers, sets C_r. Products run in the order C (X W), so the
    graph matrix multiplies the narrower matrix. Dropout in training acts on the hidden layers.
    """

    basis: str
    order: int
    layers: int
    width: int
    filters: int
    features: int
    classes: int
    dropout: Dropout | None = field(default=None, compare=False, repr=False)

    takes = "graph"

    def with_dropout(self, dropout: Dropout) -> Self:
        return dataclasses.replace(self, dropout=dropout)

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

    def forward(self, params: Params, lam: Tensor, graph: Graph) -> Tensor:
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
            if self.dropout is not None and layer < self.layers - 1:
                hidden = self.dropout(hidden, layer)
        return hidden  # type: ignore[no-any-return]

    def forward_lanes(self, params: Params, lam: Tensor, graph: Graph) -> Tensor | None:
        if self.basis != "powers" or self.filters != 1 or self.dropout is not None:
            return None
        p = graph.propagation()
        hidden: Any = graph.x
        for layer in range(self.layers):
            hidden = _polynomial(p, lam.detach(), hidden @ params[f"W{layer}_0"])
            hidden = torch.relu_(hidden) if layer < self.layers - 1 else hidden
        return hidden  # type: ignore[no-any-return]


def _polynomial(p: Matrix | None, lam: Tensor, z: Tensor) -> Tensor:
    """sum_k lambda_k P^k z for B lanes: lambda ``[B, K + 1]``, z ``[B, n, k]``."""
    if isinstance(p, SparseMatrix):
        return p.polynomial(lam, z)
    first, *others = lam.t()[:, :, None, None].unbind()
    total = first * z
    for factor in others:
        z = z if p is None else p @ z
        total = total + factor * z
    return total


@dataclass(frozen=True)
class GCN(Network):
    """X <- relu(P X W) for each layer, no activation after the last: a `FilterNetwork` with C = P.

    Attributes:
        features: Features of a node.
        classes: Number of classes.
        width: Hidden units.
        depth: Number of layers.
        dropout: The masks of a training step, on the hidden layers; None drops nothing.
    """

    features: int
    classes: int
    width: int = 64
    depth: int = 2
    dropout: Dropout | None = field(default=None, compare=False, repr=False)

    takes = "graph"

    @property
    def _filters(self) -> FilterNetwork:
        return FilterNetwork(
            "powers", 1, self.depth, self.width, 1, self.features, self.classes, self.dropout
        )

    def with_dropout(self, dropout: Dropout) -> Self:
        return dataclasses.replace(self, dropout=dropout)

    def prepare(self, graph: Graph) -> None:
        graph.prepare("P")

    def init(self, generator: torch.Generator) -> Params:
        """Glorot-uniform weights."""
        return self._filters.init(generator)

    def forward(self, params: Params, lam: Any, graph: Graph) -> Tensor:
        """Logits ``[n, classes]``; lambda is not read."""
        first = params["W0_0"]
        return self._filters.forward(params, torch.tensor([0.0, 1.0]).to(first), graph)

    def forward_lanes(self, params: Params, lam: Any, graph: Graph) -> Tensor | None:
        """Logits ``[B, n, classes]`` of B lanes; lambda is not read."""
        first = params["W0_0"]
        fixed = torch.tensor([0.0, 1.0]).to(first).expand(len(first), 2)
        return self._filters.forward_lanes(params, fixed, graph)
