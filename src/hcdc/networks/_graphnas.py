"""Networks of GraphNAS: layers with an attention, an aggregator, an activation and several heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.sparse import matmul
from hcdc.datasets import Graph, Matrix
from hcdc.networks._base import Network, Params

ATTENTIONS = ("gat", "gcn", "cos", "const", "gat_sym", "linear", "generalized_linear")
AGGREGATORS = ("sum", "mean", "max", "mlp")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "linear": lambda x: x,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "relu6": F.relu6,
    "elu": F.elu,
}
POOL = 128
"""Width of the transform that every aggregator but ``sum`` applies to messages."""

SLOPE = 0.2
"""Negative slope of LeakyReLU in attentions."""


class GraphNASLayer(NamedTuple):
    """The choices of one layer; ``hidden`` is the number of outputs per head."""

    attention: str
    aggregator: str
    activation: str
    heads: int
    hidden: int


class _Edges:
    """The edges of a graph, with a loop of weight 1 at each node.

    Attributes:
        source, target: Nodes at both ends ``[E]``.
        weight: Weights ``[E]``.
        nodes: n.
    """

    def __init__(self, graph: Graph):
        (source, target), weight = graph.edges()
        self.nodes = graph.num_nodes
        own = torch.arange(self.nodes, device=graph.device)
        self.source, self.target = torch.cat([source, own]), torch.cat([target, own])
        self.weight = torch.cat([weight, torch.ones(self.nodes, dtype=graph.x.dtype, device=graph.device)])

    def total(self, each: Tensor, like: Tensor) -> Tensor:
        """Sum of ``each`` ``[E, ...]`` over the edges into each node: the shape of ``like`` ``[n, ...]``."""
        return torch.zeros_like(like).index_add(0, self.target, each)

    def largest(self, each: Tensor, like: Tensor) -> Tensor:
        """Maximum instead of the sum, without derivatives."""
        places = self.target.view(-1, *[1] * (each.dim() - 1)).expand(each.shape)
        found = torch.zeros_like(like).scatter_reduce(0, places, each.detach(), "amax", include_self=False)
        return found.index_select(0, self.target)

    def degree(self) -> Tensor:
        """Sum of weights at each node ``[n]``; at least 1, because of its loop."""
        return self.total(self.weight, self.weight[: self.nodes])


@dataclass(frozen=True)
class GraphNASNetwork(Network):
    """Layers of GraphNAS (Gao et al., 2020), with weighted edges; no dropout, no normalisation.

    A layer multiplies features by W, one block of ``hidden`` outputs per head. Head by head, node i receives
    messages a_ij z_j from itself and its neighbours j with z = x W and, with q = l . z and k = r . z,

    - ``const``: a_ij = 1; ``gcn``: a_ij = 1 / sqrt(d_i d_j); the others are softmaxes over j of
    - ``gat``: leaky(q_i + k_j); ``gat_sym``: leaky(q_i + k_j) + leaky(q_j + k_i); ``linear``: tanh(k_j);
    - ``cos``: <l z_i, r z_j>; ``generalized_linear``: g . tanh(l z_i + r z_j), products by feature.

    Aggregators other than ``sum`` first apply a linear map through `POOL` units to each message; ``mlp`` then
    sums. Heads are concatenated, in the last layer averaged. The activation follows in every layer. An edge
    of weight w counts as w edges, so weight 0 is no edge.

    Attributes:
        layers: The choices, from the input; the last ``hidden`` is the number of classes.
        features: Features per node.
    """

    layers: tuple[GraphNASLayer, ...]
    features: int

    takes = "graph"

    def prepare(self, graph: Graph) -> None:
        graph.prepare("edges")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        inputs = self.features
        for k, (attention, aggregator, _, heads, hidden) in enumerate(self.layers):
            mine: dict[str, tuple[int, ...]] = {"weight": (inputs, heads * hidden)}
            if attention not in ("const", "gcn"):
                mine["right"] = (heads, hidden)
            if attention not in ("const", "gcn", "linear"):
                mine["left"] = (heads, hidden)
            if attention == "generalized_linear":
                mine["general"] = (hidden, 1)
            if aggregator != "sum":
                mine |= {"pool.0.weight": (hidden, POOL), "pool.0.bias": (POOL,)}
                mine |= {"pool.1.weight": (POOL, hidden), "pool.1.bias": (hidden,)}
            inputs = heads * hidden
            mine["bias"] = (hidden if k == len(self.layers) - 1 else inputs,)
            found |= {f"layers.{k}.{name}": shape for name, shape in mine.items()}
        return found

    def init(self, generator: torch.Generator) -> Params:
        """Glorot-uniform matrices and attention vectors; biases 0; layer by layer."""
        params = {}
        for name, shape in self.shapes().items():
            bound = math.sqrt(6 / sum(shape)) if len(shape) == 2 else 0.0
            params[name] = (2 * torch.rand(shape, generator=generator) - 1) * bound
        return params

    def forward(self, params: Params, lam: Any, graph: Graph) -> Tensor:
        """Logits ``[n, classes]``; ``lam`` is not read."""
        edges = _Edges(graph)
        x: Matrix = graph.x
        for k, layer in enumerate(self.layers):
            mine = f"layers.{k}."
            own = {name.removeprefix(mine): p for name, p in params.items() if name.startswith(mine)}
            z = matmul(x, own["weight"]).reshape(graph.num_nodes, layer.heads, layer.hidden)
            heads = _aggregate(layer, own, z, _shares(layer, own, z, edges), edges)
            out = heads.mean(1) if k == len(self.layers) - 1 else heads.flatten(1)
            x = ACTIVATIONS[layer.activation](out + own["bias"])
        assert isinstance(x, Tensor), "a network has at least one layer"
        return x


def _shares(layer: GraphNASLayer, own: Params, z: Tensor, edges: _Edges) -> Tensor:
    """a_ij with the weight of the edge, ``[E, heads]`` or ``[E, 1]``."""
    weight = edges.weight[:, None]
    if layer.attention == "const":
        return weight
    if layer.attention == "gcn":
        root = edges.degree().rsqrt()
        return weight * (root[edges.source] * root[edges.target])[:, None]
    scores = _scores(layer.attention, own, z, edges)
    shares = weight * (scores - edges.largest(scores, z[..., 0])).exp()
    return shares / edges.total(shares, z[..., 0]).index_select(0, edges.target)


def _scores(attention: str, own: Params, z: Tensor, edges: _Edges) -> Tensor:
    """The logits of the softmax, ``[E, heads]``."""

    def ends(at_target: Tensor, at_source: Tensor) -> tuple[Tensor, Tensor]:
        return at_target.index_select(0, edges.target), at_source.index_select(0, edges.source)

    right = z * own["right"]
    if attention == "linear":
        return torch.tanh(right.sum(-1)).index_select(0, edges.source)
    left = z * own["left"]
    if attention == "cos":
        a, b = ends(left, right)
        return (a * b).sum(-1)
    if attention == "generalized_linear":
        a, b = ends(left, right)
        return (torch.tanh(a + b) @ own["general"]).squeeze(-1)
    q, k = left.sum(-1), right.sum(-1)
    a, b = ends(q, k)
    scores = F.leaky_relu(a + b, SLOPE)
    if attention == "gat_sym":
        a, b = ends(k, q)
        scores = scores + F.leaky_relu(a + b, SLOPE)
    return scores


def _aggregate(layer: GraphNASLayer, own: Params, z: Tensor, shares: Tensor, edges: _Edges) -> Tensor:
    """What each node receives, ``[n, heads, hidden]``.

    The transform of messages is affine, so its linear part is applied to nodes and its constant afterwards.
    """
    constant = z.new_zeros(())
    if layer.aggregator != "sum":
        z = z @ own["pool.0.weight"] @ own["pool.1.weight"]
        constant = own["pool.0.bias"] @ own["pool.1.weight"] + own["pool.1.bias"]
    messages = shares[..., None] * z.index_select(0, edges.source)
    if layer.aggregator == "max":
        wins = (messages.detach() == edges.largest(messages, z)).to(z.dtype)
        ties = edges.total(wins, z).index_select(0, edges.target)
        return edges.total(wins / ties * messages, z) + constant  # ties share equally, as in amax
    degree = edges.degree()[:, None, None]
    received = edges.total(messages, z) + degree * constant
    return received / degree if layer.aggregator == "mean" else received
