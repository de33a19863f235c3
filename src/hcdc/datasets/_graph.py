"""Graphs and labelled nodes: readers return them, condensers make them, losses receive them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hcdc.core.errors import InputError, require
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets._dataset import Dataset
from hcdc.datasets._labelled import LabelledSet, register_kind

Matrix = Tensor | SparseMatrix


@dataclass(eq=False)
class Graph:
    """A graph with node features.

    Attributes:
        x: Node features ``[n, d]``, dense (synthetic graphs) or sparse (most originals).
        adj: Weighted symmetric adjacency ``[n, n]`` without self-loops, sparse (``symmetric=True``) or dense
            (synthetic); None means no edges, so every node sees only itself.
    """

    x: Matrix
    adj: Matrix | None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Graph:
        return Graph(self.x.to(device, dtype), None if self.adj is None else self.adj.to(device, dtype))

    def with_x(self, x: Tensor) -> Graph:
        """The same structure with other features; shares the cached propagation matrix."""
        return Graph(x, self.adj, self._cache)

    def subgraph(self, index: Tensor) -> Graph:
        """The subgraph induced by the nodes ``index``, as dense tensors (for small sets)."""
        x = self.x.rows(index).to_dense() if isinstance(self.x, SparseMatrix) else self.x[index]
        if isinstance(self.adj, SparseMatrix):
            return Graph(x, self.adj.submatrix(index).to_dense())
        return Graph(x, None if self.adj is None else self.adj[index][:, index])

    def reach_subgraph(self, index: Tensor) -> Graph:
        """The nodes ``index`` as dense tensors, with an edge between nodes that lie near each other.

        A few nodes drawn from a large graph share hardly any edges, so every filter would treat them alike.
        Nodes within r hops are joined, r being the smallest number of hops (at most 6) at which their mean
        degree reaches that of the whole graph. This keeps the information about which nodes lie near each
        other. If their mean degree exceeds n / 4 for n >= 16 nodes, that joins most of them. Then the pairs
        with the most walks of at most 4 hops (weighted as in P) are joined, sqrt(n) / 2 edges per node.
        """
        chosen = self.subgraph(index)
        if not isinstance(self.adj, SparseMatrix):
            return chosen
        keep = index.cpu().numpy()
        few = math.sqrt(len(keep)) / 2
        if few >= 2 and 4 * self.adj.nnz > len(keep) * self.num_nodes:
            among = self._walked(keep, few)
        else:
            among = self._within_reach(keep)
        adj = torch.from_numpy(among.astype(np.float32)).to(device=self.device, dtype=chosen.x.dtype)
        return Graph(chosen.x, adj)

    def _within_reach(self, keep: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the nodes ``keep`` lie within r hops of each other."""
        assert isinstance(self.adj, SparseMatrix)
        adjacency = self.adj.to_scipy()
        adjacency.data = np.ones_like(adjacency.data)
        reached = adjacency[keep]
        for _ in range(6):
            among: NDArray[np.bool_] = (reached[:, keep] > 0).toarray()
            np.fill_diagonal(among, False)
            if among.sum() * adjacency.shape[0] >= adjacency.nnz * len(keep):
                break
            reached = reached @ adjacency + reached
            reached.data = np.ones_like(reached.data)
        return among

    def _walked(self, keep: NDArray[np.int64], degree: float) -> NDArray[np.bool_]:
        """Which of the nodes ``keep`` have the most walks between them: so many pairs that ``degree`` is the
        mean degree, or all pairs with a walk."""
        p, count = self.propagation(), len(keep)
        assert isinstance(p, SparseMatrix)
        matrix = p.to_scipy()
        walk = np.zeros((self.num_nodes, count), np.float32)
        walk[keep, np.arange(count)] = 1
        near = np.zeros((count, count))
        for _ in range(4):
            walk = matrix @ walk
            near += walk[keep]
        first, second = np.triu_indices(count, 1)
        weight = (near + near.T)[first, second]
        best = np.argsort(-weight, kind="stable")[: round(degree * count / 2)]
        best = best[weight[best] > 0]
        among = np.zeros((count, count), bool)
        among[first[best], second[best]] = among[second[best], first[best]] = True
        return among

    def sparse_subgraph(self, index: Tensor) -> Graph:
        """The induced subgraph, kept sparse (for training in the inductive setting)."""
        x = self.x.rows(index) if isinstance(self.x, SparseMatrix) else self.x[index]
        if isinstance(self.adj, SparseMatrix):
            return Graph(x, self.adj.submatrix(index))
        return Graph(x, None if self.adj is None else self.adj[index][:, index])

    def sample_neighbours(
        self, index: Tensor, fanouts: Sequence[int], rng: np.random.Generator
    ) -> tuple[Graph, Tensor]:
        """Sample a smaller graph around the nodes ``index``, hop by hop.

        At hop k, every node first reached at hop k - 1 (``index`` at hop 0) keeps ``fanouts[k - 1]`` of its
        neighbours, drawn uniformly without repeats, or all of them if it has fewer. The sample holds the
        nodes reached and the edges drawn, in both directions and with their weights. Time and memory are
        linear in the nodes and in the edges drawn, whatever the number of edges.

        Args:
            index: Start nodes ``[m]``.
            fanouts: Neighbours kept at each hop, at least 1 each.
            rng: Random stream.

        Returns:
            The sparse sampled graph, with its nodes in the original order, and the positions ``[m]`` of
            ``index`` in it.
        """
        from scipy import sparse

        if not fanouts or min(fanouts) < 1:
            raise InputError(f"fanouts {list(fanouts)}: give one number of at least 1 per hop, e.g. [10, 5]")
        start = index.cpu().numpy()
        reached = np.zeros(self.num_nodes, bool)
        reached[start] = True
        frontier = np.flatnonzero(reached)
        indptr, indices, values = self._csr_arrays()
        rows, places = [], []
        for fanout in fanouts:
            row, place = _draw_entries(indptr, frontier, fanout, rng)
            rows.append(row)
            places.append(place)
            found = np.zeros_like(reached)
            found[indices[place]] = True
            frontier = np.flatnonzero(found & ~reached)
            reached[frontier] = True
        nodes = np.flatnonzero(reached)
        number = np.cumsum(reached) - 1
        row, place = np.concatenate(rows), np.concatenate(places)
        drawn = sparse.csr_matrix(
            (values[place], (number[row], number[indices[place]])), (len(nodes), len(nodes))
        )
        dtype = self.x.dtype if self.adj is None else self.adj.dtype
        adj = SparseMatrix.from_scipy(drawn.maximum(drawn.T), dtype, symmetric=True).to(self.device)
        keep = torch.from_numpy(nodes).to(self.device)
        x = self.x.rows(keep) if isinstance(self.x, SparseMatrix) else self.x[keep]
        return Graph(x, adj), torch.from_numpy(number[start]).to(self.device)

    def _csr_arrays(self) -> tuple[Any, Any, Any]:
        """``(indptr, indices, values)`` of the adjacency as numpy arrays."""
        from scipy import sparse

        if isinstance(self.adj, SparseMatrix):
            parts = (self.adj.indptr, self.adj.indices, self.adj.values)
            indptr, indices, values = (part.detach().cpu().numpy() for part in parts)
            return indptr, indices, values
        shape = (self.num_nodes, self.num_nodes)
        dense = (
            sparse.csr_matrix(shape)
            if self.adj is None
            else sparse.csr_matrix(self.adj.detach().cpu().numpy())
        )
        return dense.indptr, dense.indices, dense.data

    def stored(self) -> list[Tensor]:
        """The tensors behind features and adjacency; three for a sparse matrix."""
        parts: list[Tensor] = []
        for matrix in (self.x, self.adj):
            if isinstance(matrix, SparseMatrix):
                parts += [matrix.indptr, matrix.indices, matrix.values]
            elif matrix is not None:
                parts.append(matrix)
        return parts

    def propagation(self) -> Matrix | None:
        """P = D^-1/2 (A + I) D^-1/2, the GCN-normalised adjacency; None means the identity."""
        return self._normalised("P", loops=True)

    def normalised_adjacency(self) -> Matrix | None:
        """D^-1/2 A D^-1/2 without self-loops (rows of isolated nodes are 0); None means no edges."""
        return self._normalised("A", loops=False)

    def prepare(self, *matrices: str) -> None:
        """Cache ``"P"``, ``"A"`` or ``"edges"`` before a ``torch.func`` transform, which cannot make them."""
        for name in matrices:
            if name == "edges":
                self.edges()
            elif self.adj is not None and not (isinstance(self.adj, Tensor) and self.adj.requires_grad):
                self._cache[name] = self._normalised(name, loops=name == "P")

    def _normalised(self, name: str, loops: bool) -> Matrix | None:
        if self.adj is None or name in self._cache:
            return self._cache.get(name)
        if isinstance(self.adj, Tensor):  # cheap and differentiable; cached only by prepare
            return normalise_dense(self.adj, loops)
        self._cache[name] = normalise_sparse(self.adj, loops)
        return self._cache[name]  # type: ignore[no-any-return]

    def largest_laplacian_eigenvalue(self) -> float:
        """lambda_max of L = I - D^-1/2 A D^-1/2, at most 2; 2 for a graph without edges."""
        if self.adj is None:
            return 2.0
        if "lmax" not in self._cache:
            a = self.normalised_adjacency()
            assert a is not None
            if isinstance(a, SparseMatrix) and a.nnz and a.shape[0] > 64:
                from scipy.sparse.linalg import eigsh

                matrix, start = a.to_scipy().astype(np.float64), 1.0 + np.arange(a.shape[0]) % 7
                low = float(eigsh(matrix, 1, which="SA", v0=start, tol=1e-6, return_eigenvectors=False)[0])
            elif isinstance(a, SparseMatrix):
                low = float(torch.linalg.eigvalsh(a.to_dense().double())[0]) if a.nnz else 0.0
            else:
                low = float(torch.linalg.eigvalsh(a.detach().double())[0])
            # the trace is 0, so a single edge gives a negative eigenvalue
            self._cache["lmax"] = 1.0 - low if low < -1e-6 else 2.0
        return self._cache["lmax"]  # type: ignore[no-any-return]

    def edges(self) -> tuple[Tensor, Tensor]:
        """``(edge_index [2, E], edge_weight [E])`` for PyG layers, without entries of weight 0."""
        if self.adj is None:
            return torch.zeros(2, 0, dtype=torch.long, device=self.device), torch.zeros(0, device=self.device)
        if isinstance(self.adj, Tensor):
            index = self.adj.detach().nonzero().t()
            return index, self.adj[index[0], index[1]]
        if "edges" not in self._cache:
            counts = self.adj.indptr.diff()
            rows = torch.repeat_interleave(torch.arange(self.num_nodes, device=self.device), counts)
            self._cache["edges"] = (torch.stack([self.adj.indices, rows]), self.adj.values)
        return self._cache["edges"]  # type: ignore[no-any-return]


def _draw_entries(indptr: Any, rows: Any, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """At most ``count`` stored entries of each row, without repeats, as (row, place in the arrays).

    Rows with more entries are drawn together by Floyd's algorithm: for j = size - count .. size - 1, take a
    random number up to j, or j itself if that number is taken. Every subset is equally likely.
    """
    sizes = indptr[rows + 1] - indptr[rows]
    few, many = rows[sizes <= count], rows[sizes > count]
    size = sizes[sizes <= count]
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    whole = np.repeat(indptr[few], size) + within
    chosen = np.full((len(many), count), -1, np.int64)
    first = indptr[many + 1] - indptr[many] - count
    for k in range(count):
        drawn = rng.integers(0, first + k + 1)
        taken = (chosen[:, :k] == drawn[:, None]).any(1)
        chosen[:, k] = np.where(taken, first + k, drawn)
    places = (indptr[many][:, None] + chosen).ravel()
    return np.concatenate([np.repeat(few, size), np.repeat(many, count)]), np.concatenate([whole, places])


def normalise_dense(adj: Tensor, loops: bool = True) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 of a dense adjacency ``[n, n]`` (A alone without ``loops``), differentiable."""
    a = adj + torch.eye(adj.shape[0], dtype=adj.dtype, device=adj.device) if loops else adj
    degree = a.sum(1)
    scale = torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), torch.zeros_like(degree))
    return scale[:, None] * a * scale[None, :]


def normalise_sparse(adj: SparseMatrix, loops: bool = True) -> SparseMatrix:
    """D^-1/2 (A + I) D^-1/2 of a constant sparse adjacency (A alone without ``loops``)."""
    from scipy import sparse

    a = adj.to_scipy()
    if loops:
        a = a + sparse.eye(adj.shape[0], format="csr")
    degree = np.asarray(a.sum(1), np.float64).ravel()
    scale = sparse.diags(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return SparseMatrix.from_scipy(scale @ a @ scale, adj.dtype, symmetric=adj.symmetric).to(adj.device)


@register_kind
@dataclass(frozen=True, eq=False, repr=False)
class Nodes(LabelledSet):
    """Labelled nodes of a graph: one of T_train, T_val, S_train, S_val.

    Attributes:
        graph: The graph that models see.
        y: Labels ``[m]`` of the labelled nodes: class numbers, or values (floating point).
        index: Which nodes carry these labels ``[m]``; None means all nodes in order.
        weight: Non-negative weight of each labelled node ``[m]`` in the loss; None means equal weights.
    """

    graph: Graph
    y: Tensor
    index: Tensor | None = None
    weight: Tensor | None = None

    kind = "graph"
    regression = True

    def __repr__(self) -> str:
        weighted = "" if self.weight is None else ", weighted"
        return f"<{len(self):,} of {self.graph.num_nodes:,} nodes, {self.form} features{weighted}>"

    @property
    def form(self) -> str:
        return str(self.graph.num_features)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors by name; a large sparse matrix is three: ``x.values``, ``x.places``, ``x.shape``."""
        found = {"x": self.graph.x, "y": self.y, "adj": self.graph.adj}
        found |= {"index": self.index, "weight": self.weight}
        given = {key: value for key, value in found.items() if value is not None}
        return {name: tensor for key, value in given.items() for name, tensor in _stored(key, value).items()}

    def dense(self) -> dict[str, Tensor]:
        found = {"x": _dense(self.graph.x)}
        if self.graph.adj is not None:
            found["adj"] = _dense(self.graph.adj)
        return found | {name: t for name, t in self.tensors().items() if name.split(".")[0] not in found}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        graph = Graph(_read(tensors, "x"), _read(tensors, "adj") if _has(tensors, "adj") else None)
        return cls(graph, tensors["y"], tensors.get("index"), tensors.get("weight"))

    def subset(self, index: Tensor) -> Self:
        """The labelled nodes ``index`` ``[b]``; models still see the whole graph, the loss only these."""
        weight = None if self.weight is None else self.weight[index]
        return dataclasses.replace(self, y=self.y[index], index=self.positions()[index], weight=weight)

    def to(self, device: torch.device | str) -> Self:
        return dataclasses.replace(
            self,
            graph=self.graph.to(device),
            y=self.y.to(device),
            index=None if self.index is None else self.index.to(device),
            weight=None if self.weight is None else self.weight.to(device),
        )

    def positions(self) -> Tensor:
        """Indices of the labelled nodes, even if all nodes are labelled."""
        return torch.arange(len(self), device=self.y.device) if self.index is None else self.index

    def describe(self) -> str:
        edges = self.graph.edges()[0].shape[1]
        structure = (
            "no edges (every node by itself)" if self.graph.adj is None else f"{edges} directed edge weights"
        )
        inside = f" of {self.graph.num_nodes}" if self.index is not None else ""
        return f"{len(self)}{inside} nodes, {structure}" + ("" if self.weight is None else ", weighted")

    def check_shapes(self, name: str) -> None:
        x, adj, y, index = self.graph.x, self.graph.adj, self.y, self.index
        shapes = f"{name}/x has shape {tuple(x.shape)} and {name}/y {tuple(y.shape)}"
        if len(x.shape) != 2 or y.dim() != 1 or len(y) == 0:
            raise InputError(f"{shapes}; [n, d] and [m] are needed")
        nodes = x.shape[0]
        if adj is not None and tuple(adj.shape) != (nodes, nodes):
            raise InputError(f"{name}/adj has shape {tuple(adj.shape)} for {nodes} nodes")
        if index is None and nodes != len(y):
            raise InputError(f"{name} has {nodes} nodes and {len(y)} labels")
        if index is not None and (
            index.shape != y.shape or int(index.min()) < 0 or int(index.max()) >= nodes
        ):
            raise InputError(f"{name}/index does not name one of {nodes} nodes for each of {len(y)} labels")

    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        for tensor in (*self.graph.stored(), self.y, self.index, self.weight):
            if tensor is not None:
                yield str(tuple(tensor.shape)), tensor

    def floats(self) -> dict[str, Tensor]:
        found = {"x": self.graph.x} if self.graph.adj is None else {"x": self.graph.x, "adj": self.graph.adj}
        return {
            key: value.values if isinstance(value, SparseMatrix) else value for key, value in found.items()
        }

    def as_passed(self, part: str) -> Any:
        return self.to_pyg(part)

    def to_pyg(self, part: str) -> Any:
        """PyG ``Data``; ``part`` names the mask of labelled nodes, others have label -1 (values: NaN)."""
        count, positions = self.graph.num_nodes, self.positions().cpu()
        graph = self.graph.to("cpu")
        edge_index, edge_weight = graph.edges()
        values = self.y.cpu() if self.y.is_floating_point() else self.y.cpu().long()
        y = torch.full((count,), math.nan if values.is_floating_point() else -1, dtype=values.dtype)
        y[positions] = values
        x = _dense(graph.x).detach().clone(memory_format=torch.contiguous_format)
        data = require("torch_geometric.data", "graph").Data(
            x=x, edge_index=edge_index, edge_weight=edge_weight.detach(), y=y
        )
        for mask in ("train", "val", "test"):
            marked = torch.zeros(count, dtype=torch.bool)
            if mask == part:
                marked[positions] = True
            data[f"{mask}_mask"] = marked
        if self.weight is not None:
            data.node_weight = torch.zeros(count, dtype=self.weight.dtype)
            data.node_weight[positions] = self.weight.detach().cpu()
        return data


SPARSE_FROM = 2**16
"""Numbers from which on a sparse matrix is stored as one."""


def _stored(name: str, value: Matrix) -> dict[str, Tensor]:
    """The tensors that hold a matrix in a file."""
    if isinstance(value, Tensor) or value.shape[0] * value.shape[1] < SPARSE_FROM:
        return {name: _dense(value)}
    coo = value.to_scipy().tocoo()
    places = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int32))
    return {
        f"{name}.values": value.values,
        f"{name}.places": places,
        f"{name}.shape": torch.tensor(value.shape),
    }


def _has(tensors: Mapping[str, Tensor], name: str) -> bool:
    return name in tensors or f"{name}.values" in tensors


def _read(tensors: Mapping[str, Tensor], name: str) -> Matrix:
    """The matrix that `_stored` wrote."""
    if f"{name}.values" not in tensors:
        return tensors[name]
    from scipy import sparse

    values, shape = tensors[f"{name}.values"], tuple(tensors[f"{name}.shape"].tolist())
    places = tensors[f"{name}.places"].cpu().numpy()
    matrix = sparse.coo_matrix((values.cpu().numpy(), places), shape)
    same = shape[0] == shape[1] and (matrix != matrix.T).nnz == 0
    return SparseMatrix.from_scipy(matrix, values.dtype, symmetric=same).to(values.device)


def _dense(value: Matrix) -> Tensor:
    return value.to_dense() if isinstance(value, SparseMatrix) else value


@dataclass(frozen=True, eq=False, repr=False)
class GraphData(Dataset):
    """A node-classification data set: one graph, labels and a split.

    Attributes:
        name, source, num_classes, normalisation, split, class_names, origin: As in `Dataset`.
        graph: The whole graph, sparse.
        y: Labels ``[n]``; -1 marks unlabelled nodes, which are in no part of the split.
        train, val, test: Node indices of the split.
    """

    name: str
    source: str
    graph: Graph
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int
    normalisation: str = "none"
    split: str = "public"
    class_names: tuple[str, ...] = ()
    origin: dict[str, Any] = field(default_factory=dict)

    kind = "graph"
    words = "a graph"

    def contents(self) -> str:
        return f"of {self.graph.num_nodes:,} nodes with {self.graph.num_features:,} features"

    def to(self, device: torch.device | str) -> Self:
        names = ("graph", "y", "train", "val", "test")
        return self._moved(**{name: getattr(self, name).to(device) for name in names})

    def pieces(self) -> Iterator[tuple[str, Tensor]]:
        """Features, structure, labels and split."""
        for tensor in [*self.graph.stored(), self.y, self.train, self.val, self.test]:
            yield str(tuple(tensor.shape)), tensor
