"""The layers of the GNN zoo: PyG's modules on weighted graphs, sparse and constant or dense and learned.

Constructors, parameters and their names are PyG's own. Message passing is computed here, because PyG's SAGE,
GAT, GIN and transformer layers take no edge weights, and because a product with the graph's matrix is faster
on a CPU than gathering and scattering along edges. At weight 1 every layer equals PyG's; weight 0 is no edge.

Except in SAGE-Max, whose maximum is not linear, layers transform features before sending them over edges. So
sparse features are multiplied by the weights directly, and edges carry ``out`` instead of ``in`` numbers.
This module imports PyG, so it is imported only on first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.special import ive
from torch import Tensor, nn
from torch_geometric.nn import (
    ChebConv,
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    SGConv,
    TransformerConv,
)

from hcdc.core.sparse import SparseMatrix, matmul
from hcdc.datasets import Graph, Matrix
from hcdc.networks._dropout import Dropout

DIFFUSION_ORDER = 16
"""Chebyshev terms of the graph diffusions; truncation errors stay below 2e-4."""

SPARSE_BELOW = 1 / 16
"""Share of nonzeros below which a matrix made from sparse features stays sparse."""

BLOCK = 2**24
"""Numbers held at once while aggregating constant features over edges."""


def linear(module: Any, x: Matrix, bias: bool = True) -> Tensor:
    """x W^T (+ b) of a linear module for dense or sparse ``x`` ``[n, in]``: ``[n, out]``."""
    out = matmul(x, module.weight.t())
    return out + module.bias if bias and module.bias is not None else out


def chebyshev(operator: Callable[[Tensor], Tensor], terms: list[Tensor]) -> Tensor:
    """sum_k T_k(M) Y_k for terms Y_0, Y_1, ... by Clenshaw's recurrence, one product with M per degree."""
    later, last = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
    for k in range(len(terms) - 1, 0, -1):
        product = operator(last) if k < len(terms) - 1 else last
        later, last = last, terms[k] + 2 * product - later
    return terms[0] + operator(last) - later


# --- what a node receives from its neighbours -----------------------------------------------------


def propagate(graph: Graph, x: Tensor) -> Tensor:
    """P x with P = D^-1/2 (A + I) D^-1/2."""
    p = graph.propagation()
    return x if p is None else matmul(p, x)


def scaled_laplacian(graph: Graph, x: Tensor) -> Tensor:
    """(2 L / lmax - I) x with lmax = 2, which is -D^-1/2 A D^-1/2 x."""
    a = graph.normalised_adjacency()
    return torch.zeros_like(x) if a is None else -matmul(a, x)


def total(graph: Graph, x: Tensor) -> Tensor:
    """A x: the weighted sum over neighbours."""
    return torch.zeros_like(x) if graph.adj is None else matmul(graph.adj, x)


def mean(graph: Graph, x: Tensor) -> Tensor:
    """D^-1 A x: the weighted mean over neighbours, 0 for a node without any."""
    if graph.adj is None:
        return torch.zeros_like(x)
    degree = matmul(graph.adj, torch.ones(graph.num_nodes, dtype=graph.adj.dtype, device=graph.device))
    return matmul(graph.adj, x) / degree.clamp_min(1e-12)[:, None]


def maximum(graph: Graph, x: Matrix) -> Matrix:
    """max_j A_ij x_j over the neighbours j of each node, feature by feature; 0 for a node without any.

    Costs ``in`` numbers per edge; `prepare_maximum` does it once for constant features.
    """
    known = _kept_maximum(graph, x)
    if known is not None:
        return known
    if isinstance(x, SparseMatrix):
        return _constant_maximum(graph, x)
    if graph.adj is None:
        return torch.zeros_like(x)
    if isinstance(graph.adj, Tensor):
        linked = graph.adj > 0
        messages = graph.adj[:, :, None] * x[None]
        best = messages.masked_fill(~linked[:, :, None], -torch.inf).amax(1)
        return best.masked_fill(~linked.any(1)[:, None], 0.0)
    (source, target), weight = graph.edges()
    messages = weight[:, None] * x.index_select(0, source)
    places = target[:, None].expand(-1, x.shape[1])
    best = torch.zeros_like(x).scatter_reduce(0, places, messages.detach(), "amax", include_self=False)
    wins = (messages.detach() == best.index_select(0, target)).to(x.dtype)
    ties = torch.zeros_like(x).index_add(0, target, wins)
    share = wins / ties.index_select(0, target)  # ties share equally, as in the gradient of amax
    return torch.zeros_like(x).index_add(0, target, share * messages)


def prepare_maximum(graph: Graph) -> None:
    """Aggregate the features of ``graph`` by `maximum`, and keep the result while it is unchanged."""
    learned = [t for t in (graph.x, graph.adj) if isinstance(t, Tensor) and t.requires_grad]
    if graph.adj is not None and not learned and _kept_maximum(graph, graph.x) is None:
        graph._cache["maximum"] = (graph.x, graph.adj, _writes(graph), _constant_maximum(graph, graph.x))


def _kept_maximum(graph: Graph, x: Matrix) -> Matrix | None:
    """What `prepare_maximum` kept, if it was for these exact tensors, unchanged since.

    The check is needed because `Graph.with_x` shares the cache between graphs with different features.
    """
    known_x, known_adj, writes, result = graph._cache.get("maximum", (None, None, None, None))
    return result if known_x is x and known_adj is graph.adj and writes == _writes(graph) else None


def _writes(graph: Graph) -> tuple[int, ...]:
    """Write counters of the dense tensors of a graph."""
    return tuple(t._version for t in (graph.x, graph.adj) if isinstance(t, Tensor))


def _constant_maximum(graph: Graph, x: Matrix) -> Matrix:
    """`maximum` of constant features, in blocks of edges; sparse if ``x`` is and few entries are nonzero."""
    if not isinstance(graph.adj, SparseMatrix):
        return maximum(Graph(graph.x, graph.adj), x.to_dense() if isinstance(x, SparseMatrix) else x)
    adj = graph.adj.to_scipy().copy()
    rows = x.to_scipy() if isinstance(x, SparseMatrix) else x.detach().cpu().numpy()
    adj.eliminate_zeros()
    features = rows.shape[1]
    edges = max(BLOCK // features, 1)
    blocks, start = [], 0
    while start < adj.shape[0]:
        stop = int(np.searchsorted(adj.indptr, adj.indptr[start] + edges, "right")) - 1
        stop = min(max(stop, start + 1), adj.shape[0])
        first, last = adj.indptr[start], adj.indptr[stop]
        sent = rows[adj.indices[first:last]]
        messages = (sent.toarray() if isinstance(x, SparseMatrix) else sent) * adj.data[first:last, None]
        best = np.zeros((stop - start, features), rows.dtype)
        begins = adj.indptr[start:stop] - first
        some = np.diff(adj.indptr[start : stop + 1]) > 0
        if some.any():
            best[some] = np.maximum.reduceat(messages, begins[some], axis=0)
        blocks.append(sparse.csr_matrix(best) if isinstance(x, SparseMatrix) else best)
        start = stop
    if not isinstance(x, SparseMatrix):
        return torch.from_numpy(np.concatenate(blocks)).to(x.device)
    result = sparse.vstack(blocks, format="csr")
    if result.nnz < SPARSE_BELOW * result.shape[0] * features:
        return SparseMatrix.from_scipy(result, x.dtype).to(x.device)
    return torch.from_numpy(result.toarray()).to(x.device, x.dtype)


def attend(
    graph: Graph,
    score: Callable[[Tensor, Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    loops: bool,
) -> Tensor:
    """sum_j a_ij v_j with a_ij = A_ij exp(s_ij) / sum_k A_ik exp(s_ik): the softmax of s_ij + log A_ij.

    Args:
        graph: The graph with n nodes.
        score: s_ij from ``query`` of i and ``key`` of j, for tensors of pairs of any shape.
        query: Of the receiving nodes, ``[n, ...]``.
        key: Of the sending nodes, ``[n, ...]``.
        value: What is averaged, ``[n, out]``.
        loops: Make each node its own neighbour, with weight 1.
    """
    n = graph.num_nodes
    if isinstance(graph.adj, SparseMatrix):
        (source, target), weight = graph.edges()
        if loops:
            self_index = torch.arange(n, device=graph.device)
            source, target = torch.cat([source, self_index]), torch.cat([target, self_index])
            weight = torch.cat([weight, torch.ones(n, dtype=weight.dtype, device=graph.device)])
        scores = score(query.index_select(0, target), key.index_select(0, source))
        top = torch.zeros_like(value[:, 0]).scatter_reduce(
            0, target, scores.detach(), "amax", include_self=False
        )
        share = weight * (scores - top.index_select(0, target)).exp()
        mass = torch.zeros_like(value[:, 0]).index_add(0, target, share)
        received = torch.zeros_like(value).index_add(
            0, target, share[:, None] * value.index_select(0, source)
        )
        return received / (mass + 1e-16)[:, None]
    weights = torch.zeros(n, n, dtype=value.dtype, device=graph.device) if graph.adj is None else graph.adj
    if loops:
        weights = weights + torch.eye(n, dtype=value.dtype, device=graph.device)
    masked = score(query[:, None], key[None]).masked_fill(weights <= 0, -torch.inf)
    highest = masked.detach().amax(1, keepdim=True)
    shares = weights * (masked - highest.masked_fill(highest == -torch.inf, 0.0)).exp()
    return (shares @ value) / (shares.sum(1) + 1e-16)[:, None]


# --- the layers -----------------------------------------------------------------------------------


def _gcn(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    return torch.add(propagate(graph, linear(conv.lin, x)), conv.bias)


def _sage_mean(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    own = torch.add(linear(conv.lin_r, x), conv.lin_l.bias)
    return own + mean(graph, linear(conv.lin_l, x, bias=False))


def _sage_max(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    return linear(conv.lin_l, maximum(graph, x)) + linear(conv.lin_r, x)


def _gat(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    value = linear(conv.lin, x)
    query, key = value @ conv.att_dst.flatten(), value @ conv.att_src.flatten()

    def score(q: Tensor, k: Tensor) -> Tensor:
        return nn.functional.leaky_relu(q + k, conv.negative_slope)

    return torch.add(attend(graph, score, query, key, value, loops=True), conv.bias)


def _gin(conv: Any, x: Matrix, graph: Graph, learned: bool) -> Tensor:
    first, _, second = conv.nn
    z = linear(first, x, bias=False)
    own = (1 + conv.eps) * z if learned else z
    return linear(second, torch.relu(own + total(graph, z) + first.bias))


def _sgc(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    z = linear(conv.lin, x, bias=False)
    for _ in range(conv.K):
        z = propagate(graph, z)
    return torch.add(z, conv.lin.bias)


def _cheb(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    terms = [linear(lin, x) for lin in conv.lins]
    return torch.add(chebyshev(partial(scaled_laplacian, graph), terms), conv.bias)


def _diffusion(conv: Any, x: Matrix, graph: Graph, coefficients: list[float]) -> Tensor:
    z = linear(conv.lin, x)
    return torch.add(chebyshev(partial(propagate, graph), [c * z for c in coefficients]), conv.bias)


def _transformer(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    query, key, value = linear(conv.lin_query, x), linear(conv.lin_key, x), linear(conv.lin_value, x)

    def score(q: Tensor, k: Tensor) -> Tensor:
        return (q * k).sum(-1) / math.sqrt(q.shape[-1])

    return attend(graph, score, query, key, value, loops=False) + linear(conv.lin_skip, x)


def _graph(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    """The k-GNN: W_1 x + W_2 A x."""
    sent = total(graph, linear(conv.lin_rel, x, bias=False))
    return torch.add(linear(conv.lin_root, x) + sent, conv.lin_rel.bias)


def _arma(conv: Any, x: Matrix, graph: Graph) -> Tensor:
    """PyG's ARMAConv with one stack and one layer: relu(V x + D^-1/2 A D^-1/2 W x + b)."""
    sent = scaled_laplacian(graph, linear(conv.lin_rel, x, bias=False))
    return torch.relu(linear(conv.lin_root, x) - sent + conv.lin_rel.bias)


def _fc(lin: Any, x: Matrix, graph: Graph) -> Tensor:
    return linear(lin, x)


def pagerank_coefficients(restart: float, order: int = DIFFUSION_ORDER) -> list[float]:
    """Chebyshev coefficients of t -> a / (1 - (1 - a) t): personalised PageRank a (I - (1 - a) P)^-1."""
    follow = 1 - restart
    root = (1 - follow**2) ** 0.5
    ratio = follow / (1 + root)
    return [(1 if k == 0 else 2) * restart / root * ratio**k for k in range(order + 1)]


def heat_coefficients(time: float, order: int = DIFFUSION_ORDER) -> list[float]:
    """Chebyshev coefficients of t -> exp(-s (1 - t)): the heat kernel exp(-s (I - P))."""
    return [float((1 if k == 0 else 2) * ive(k, time)) for k in range(order + 1)]


def _mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))


def _make_gin(inputs: int, outputs: int, learned: bool) -> nn.Module:
    module: nn.Module = GINConv(_mlp(inputs, outputs), train_eps=learned)
    return module


@dataclass(frozen=True)
class Filter:
    """One kind of layer.

    Attributes:
        make: PyG's module, from the numbers of input and output features.
        apply: Output ``[n, out]`` of the module for features ``[n, in]`` on a weighted graph.
        needs: What `Graph.prepare` must prepare.
    """

    make: Callable[[int, int], nn.Module]
    apply: Callable[[Any, Matrix, Graph], Tensor]
    needs: tuple[str, ...] = ()


LAYERS: dict[str, Filter] = {
    "gcn": Filter(GCNConv, _gcn, ("P",)),
    "sage-mean": Filter(partial(SAGEConv, aggr="mean"), _sage_mean),
    "sage-max": Filter(partial(SAGEConv, aggr="max"), _sage_max, ("edges",)),
    "gat": Filter(GATConv, _gat, ("edges",)),
    "gin-eps": Filter(partial(_make_gin, learned=True), partial(_gin, learned=True)),
    "gin-0": Filter(partial(_make_gin, learned=False), partial(_gin, learned=False)),
    "sgc-2": Filter(partial(SGConv, K=2), _sgc, ("P",)),
    "sgc-3": Filter(partial(SGConv, K=3), _sgc, ("P",)),
    "cheb-2": Filter(partial(ChebConv, K=2), _cheb, ("A",)),
    "cheb-3": Filter(partial(ChebConv, K=3), _cheb, ("A",)),
    "gdc-ppr": Filter(GCNConv, partial(_diffusion, coefficients=pagerank_coefficients(0.15)), ("P",)),
    "gdc-heat": Filter(GCNConv, partial(_diffusion, coefficients=heat_coefficients(5.0)), ("P",)),
    "transformer": Filter(TransformerConv, _transformer, ("edges",)),
    "graph": Filter(GraphConv, _graph),
    "arma": Filter(GraphConv, _arma, ("A",)),
    "fc": Filter(nn.Linear, _fc),
}
"""PageRank restarts with probability 0.15, and heat flows for time 5 (within the ranges of the GDC paper)."""


class LayerStack(nn.Module):
    """Layers of one or several filters, with ReLU between them and no normalisation.

    With several filters, a layer outputs sum_f lambda_f f(X); each filter has its own parameters.

    Args:
        filters: Names in `LAYERS`; if there are several, lambda mixes them in this order.
        sizes: Numbers of features from the input to the classes.
    """

    def __init__(self, filters: tuple[str, ...], sizes: tuple[int, ...]):
        super().__init__()
        self.filters = filters
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: LAYERS[name].make(i, o) for name in filters}) for i, o in pairwise(sizes)
        )

    def prepare(self, graph: Graph) -> None:
        """Prepare what the filters need from ``graph``; aggregate constant features for SAGE-Max once."""
        graph.prepare(*sorted({need for name in self.filters for need in LAYERS[name].needs}))
        if "sage-max" in self.filters:
            prepare_maximum(graph)

    def forward(self, lam: Tensor, graph: Graph, dropout: Dropout | None = None) -> Tensor:
        x: Any = graph.x
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, nn.ModuleDict)
            x = torch.relu(x) if depth else x
            x = dropout(x, depth) if depth and dropout is not None else x
            outputs = [LAYERS[name].apply(module, x, graph) for name, module in layer.items()]
            x = outputs[0] if len(outputs) == 1 else sum(lam[f] * output for f, output in enumerate(outputs))
        return x  # type: ignore[no-any-return]


class WiredStack(nn.Module):
    """Layers joined as in NAS-Bench-Graph, between a linear layer on the features and a linear classifier.

    Args:
        wiring: For each layer, the number of the one it reads; 0 is the first linear layer.
        filters: Names in `LAYERS`, or ``"skip"``, which passes its input on.
        sizes: Numbers of features, of hidden units and of classes.
    """

    def __init__(self, wiring: tuple[int, ...], filters: tuple[str, ...], sizes: tuple[int, int, int]):
        super().__init__()
        features, width, classes = sizes
        self.wiring, self.filters = wiring, filters
        self.ends = [k for k in range(1, len(wiring) + 1) if k not in wiring]
        self.first = nn.Linear(features, width)
        made = {str(k): LAYERS[name].make(width, width) for k, name in enumerate(filters) if name != "skip"}
        self.layers = nn.ModuleDict(made)
        self.last = nn.Linear(width * len(self.ends), classes)

    def prepare(self, graph: Graph) -> None:
        """Prepare what the filters need from ``graph``."""
        graph.prepare(
            *sorted({need for name in self.filters if name != "skip" for need in LAYERS[name].needs})
        )

    def forward(self, lam: Tensor, graph: Graph, dropout: Dropout | None = None) -> Tensor:
        found: list[Tensor] = [torch.relu(linear(self.first, graph.x))]
        for k, (source, name) in enumerate(zip(self.wiring, self.filters)):
            x = found[source]
            if name != "skip":
                x = x if dropout is None else dropout(x, k)
                x = torch.relu(LAYERS[name].apply(self.layers[str(k)], x, graph))
            found.append(x)
        return linear(self.last, torch.cat([found[k] for k in self.ends], 1))
