"""Edges of a few nodes drawn from a graph: who lies near whom must be told on sparse and on dense graphs."""

import numpy as np
import pytest
import torch
from scipy import sparse

from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph


def blocks(inside, across, nodes=240, classes=4):
    """A random graph of equal blocks, and the block of each node."""
    rng = np.random.default_rng(0)
    y = np.arange(nodes) % classes
    link = np.triu(rng.random((nodes, nodes)) < np.where(y[:, None] == y[None], inside, across), 1)
    adj = sparse.csr_matrix((link | link.T).astype(np.float32))
    x = torch.from_numpy(rng.standard_normal((nodes, 3)).astype(np.float32))
    return Graph(x, SparseMatrix.from_scipy(adj, symmetric=True)), y


def drawn(graph, y):
    """24 nodes joined by reach, and the share of their edges within a block."""
    index = torch.from_numpy(np.random.default_rng(1).permutation(len(y))[:24])
    adj = graph.reach_subgraph(index).adj.numpy()
    same = y[index.numpy()][:, None] == y[index.numpy()][None]
    return adj, float(adj[same].sum() / adj.sum())


def test_a_dense_graph_does_not_join_everyone_with_everyone():
    graph, y = blocks(inside=0.4, across=0.05)
    assert graph.adj.nnz / len(y) > 24 / 4
    adj, inside = drawn(graph, y)
    assert (adj == adj.T).all()
    assert set(np.unique(adj)) == {0, 1}
    assert adj.diagonal().sum() == 0
    assert adj.sum() / 24 == pytest.approx(np.sqrt(24) / 2, abs=0.1)
    assert inside > 0.8


def test_nodes_without_a_walk_between_them_are_not_joined():
    graph, y = blocks(inside=0.5, across=0.0)
    assert drawn(graph, y)[1] == 1


def test_a_sparse_graph_joins_nodes_within_hops():
    graph, y = blocks(inside=0.05, across=0.0)
    adj, inside = drawn(graph, y)
    assert adj.sum() / 24 >= graph.adj.nnz / len(y)
    assert inside == 1
