"""Graphs and labelled nodes: what readers return, condensers make and losses receive."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.sparse import SparseMatrix

Matrix = Tensor | SparseMatrix


@dataclass(eq=False)
class Graph:
    """A graph with node features.

    Attributes:
        x: Node features ``[n, d]``, dense (synthetic graphs) or sparse (most originals).
        adj: Weighted symmetric adjacency ``[n, n]`` without self-loops; sparse (``symmetric=True``) or dense (synthetic);
            None is the identity structure (no edges: every node sees itself only).
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
        """The same structure with other features; the cached propagation matrix is shared."""
        return Graph(x, self.adj, self._cache)

    def subgraph(self, index: Tensor) -> Graph:
        """The induced subgraph of the nodes ``index``, as dense tensors (for small sets)."""
        x = self.x.rows(index).to_dense() if isinstance(self.x, SparseMatrix) else self.x[index]
        if isinstance(self.adj, SparseMatrix):
            return Graph(x, self.adj.submatrix(index).to_dense())
        return Graph(x, None if self.adj is None else self.adj[index][:, index])

    def sparse_subgraph(self, index: Tensor) -> Graph:
        """The induced subgraph, kept sparse (for the training subgraph of the inductive setting)."""
        x = self.x.rows(index) if isinstance(self.x, SparseMatrix) else self.x[index]
        return Graph(x, self.adj.submatrix(index) if isinstance(self.adj, SparseMatrix) else self.adj)

    def propagation(self) -> Matrix | None:
        """P = D^-1/2 (A + I) D^-1/2, the GCN-normalised adjacency; None stands for the identity.

        Differentiable for a dense adjacency that requires a gradient; cached otherwise.
        """
        if self.adj is None:
            return None
        if isinstance(self.adj, Tensor):
            if self.adj.requires_grad:
                return normalise_dense(self.adj)
            if "P" not in self._cache:
                self._cache["P"] = normalise_dense(self.adj)
            return self._cache["P"]  # type: ignore[no-any-return]
        if "P" not in self._cache:
            self._cache["P"] = normalise_sparse(self.adj)
        return self._cache["P"]  # type: ignore[no-any-return]

    def edges(self) -> tuple[Tensor, Tensor]:
        """``(edge_index [2, E], edge_weight [E])`` for PyG layers, without self-loops; entries of weight 0 are left out."""
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


def normalise_dense(adj: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 of a dense adjacency ``[n, n]``, differentiable."""
    loops = adj + torch.eye(adj.shape[0], dtype=adj.dtype, device=adj.device)
    scale = loops.sum(1).clamp_min(1e-12).rsqrt()
    return scale[:, None] * loops * scale[None, :]


def normalise_sparse(adj: SparseMatrix) -> SparseMatrix:
    """D^-1/2 (A + I) D^-1/2 of a constant sparse adjacency."""
    from scipy import sparse

    loops = adj.to_scipy() + sparse.eye(adj.shape[0], format="csr")
    scale = sparse.diags(1.0 / np.sqrt(np.asarray(loops.sum(1)).ravel()))
    return SparseMatrix.from_scipy(scale @ loops @ scale, adj.dtype, symmetric=adj.symmetric).to(adj.device)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Labelled nodes of a graph: one of T_train, T_val, S_train, S_val.

    Attributes:
        graph: The graph that models see.
        y: Labels ``[m]`` of the labelled nodes, all >= 0.
        index: Which nodes carry these labels ``[m]``; None means all nodes in order.
        weight: Non-negative weight of each labelled node ``[m]`` in the loss; None means equal weights.
    """

    graph: Graph
    y: Tensor
    index: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return int(self.y.shape[0])

    def to(self, device: torch.device | str) -> Nodes:
        return Nodes(
            self.graph.to(device),
            self.y.to(device),
            None if self.index is None else self.index.to(device),
            None if self.weight is None else self.weight.to(device),
        )

    def positions(self) -> Tensor:
        """The labelled nodes' indices, also where all nodes are labelled."""
        return torch.arange(len(self), device=self.y.device) if self.index is None else self.index


@dataclass(frozen=True, eq=False)
class GraphData:
    """A node-classification data set: one graph, labels and a split.

    Attributes:
        name: What the user calls it (``"cora"``, a file name).
        source: Where it came from (``"planetoid"``, a path, ``"memory"``).
        graph: The whole graph, sparse.
        y: Labels ``[n]``; -1 marks unlabelled nodes, which are in no split.
        train, val, test: Node indices of the split.
        num_classes: Number of classes; labels are 0 .. num_classes - 1.
        normalisation: What was done to the features: ``"row"`` (divided by row sum), ``"standard"`` or ``"none"``.
        split: How the split came about, in words (printed and stored).
        class_names: One name a class.
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

    kind = "graph"

    def to(self, device: torch.device | str) -> GraphData:
        return dataclasses.replace(
            self,
            graph=self.graph.to(device),
            y=self.y.to(device),
            train=self.train.to(device),
            val=self.val.to(device),
            test=self.test.to(device),
        )

    def fingerprint(self) -> str:
        """A hash of features, structure, labels and split: equal data has an equal fingerprint wherever it came from."""
        digest = hashlib.sha256()
        parts: list[Tensor] = []
        for matrix in (self.graph.x, self.graph.adj):
            if isinstance(matrix, SparseMatrix):
                parts += [matrix.indptr, matrix.indices, matrix.values]
            elif matrix is not None:
                parts.append(matrix)
        for tensor in [*parts, self.y, self.train, self.val, self.test]:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        return digest.hexdigest()[:32]
