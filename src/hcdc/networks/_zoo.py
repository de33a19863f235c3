"""Networks of graph layers: one filter, or a mixture of several."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.func import functional_call

from hcdc.core.errors import require
from hcdc.datasets import Graph
from hcdc.networks._base import Network, Params
from hcdc.networks._dropout import Dropout

if TYPE_CHECKING:
    from hcdc.networks._gnn_layers import LayerStack, WiredStack


@dataclass(frozen=True)
class ZooNetwork(Network):
    """Graph layers with ReLU between them, no normalisation; lambda mixes the filters of a layer.

    Parameters are named ``layers.{depth}.{filter}.{name in PyG}`` in relaxed and single-filter networks, so
    one filter's parameters can be taken from the relaxed network.

    Attributes:
        filters: One filter, or all filters of the space.
        sizes: Numbers of features from the input through the hidden layers to the classes.
        dropout: The masks of a training step, on the hidden layers; None drops nothing.
    """

    filters: tuple[str, ...]
    sizes: tuple[int, ...]
    dropout: Dropout | None = field(default=None, compare=False, repr=False)

    takes = "graph"

    def with_dropout(self, dropout: Dropout) -> Self:
        dropping = copy.copy(self)  # with the layers that are already built
        object.__setattr__(dropping, "dropout", dropout)
        return dropping

    @cached_property
    def _stack(self) -> LayerStack | WiredStack:
        require("torch_geometric", "graph")
        from hcdc.networks._gnn_layers import LayerStack

        with torch.device("meta"):  # shapes only: `functional_call` supplies the values
            return LayerStack(self.filters, self.sizes)

    def prepare(self, graph: Graph) -> None:
        """Prepare what the filters need from ``graph``; aggregate constant features for SAGE-Max once."""
        self._stack.prepare(graph)

    def init(self, generator: torch.Generator) -> Params:
        """Glorot-uniform matrices and attention vectors; biases and GIN's epsilon 0; layer by layer."""
        params = {}
        for name, shape in self.shapes().items():
            if len(shape) < 2:
                params[name] = torch.zeros(shape)
            else:
                bound = math.sqrt(6 / (shape[-2] + shape[-1]))
                params[name] = (2 * torch.rand(shape, generator=generator) - 1) * bound
        return params

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""
        return {name: tuple(parameter.shape) for name, parameter in self._stack.named_parameters()}

    def forward(self, params: Params, lam: Tensor, graph: Graph) -> Tensor:
        """Logits ``[n, classes]``; a network of one filter does not read ``lam`` ``[H]``."""
        logits: Tensor = functional_call(self._stack, params, (lam, graph, self.dropout))
        return logits


@dataclass(frozen=True)
class WiredNetwork(ZooNetwork):
    """Layers joined as in NAS-Bench-Graph: each reads an earlier one, and the ends are classified together.

    Attributes:
        filters: The layers, ``"skip"`` among them.
        sizes: Numbers of features, hidden units and classes.
        wiring: For each layer, the number of the one it reads; 0 is a linear layer on the features.
    """

    wiring: tuple[int, ...] = (0,)

    @cached_property
    def _stack(self) -> WiredStack:
        require("torch_geometric", "graph")
        from hcdc.networks._gnn_layers import WiredStack

        features, width, classes = self.sizes
        with torch.device("meta"):
            return WiredStack(self.wiring, self.filters, (features, width, classes))
