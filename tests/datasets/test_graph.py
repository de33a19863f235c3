import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Nodes, data, normalise_dense
from hcdc.datasets._graph import normalise_sparse


def adjacency(n=12, seed=0):
    """Weighted, symmetric, no loops; node 0 is isolated."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
    upper[0] = 0
    return upper + upper.T


def held(matrix):
    return SparseMatrix.from_scipy(sparse.csr_matrix(matrix), torch.float64, symmetric=True)


def graphs(adj):
    x = torch.arange(2.0 * len(adj), dtype=torch.float64).reshape(-1, 2)
    return Graph(x, torch.from_numpy(adj)), Graph(x, held(adj))


def test_normalised_matrices_are_those_of_the_definition():
    adj = adjacency()
    eye = np.eye(len(adj))
    for loops in (True, False):
        a = adj + eye if loops else adj
        degree = a.sum(1)
        root = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
        oracle = torch.from_numpy(np.diag(root) @ a @ np.diag(root))
        torch.testing.assert_close(normalise_dense(torch.from_numpy(adj), loops), oracle)
        torch.testing.assert_close(normalise_sparse(held(adj), loops).to_dense(), oracle)
        for graph in graphs(adj):
            made = graph.propagation() if loops else graph.normalised_adjacency()
            torch.testing.assert_close(made.to_dense(), oracle)


def test_normalisation_is_differentiable_in_a_dense_adjacency():
    adj = torch.from_numpy(adjacency(5) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(normalise_dense, (adj,))


@pytest.mark.parametrize("n", [2, 12, 80])
def test_the_largest_laplacian_eigenvalue(n):
    adj = adjacency(n) if n > 2 else np.array([[0, 1.0], [1, 0]])
    dense, stored = graphs(adj)
    laplacian = np.eye(n) - normalise_dense(torch.from_numpy(adj), False).numpy()
    top = float(np.linalg.eigvalsh(laplacian)[-1])
    assert dense.largest_laplacian_eigenvalue() == pytest.approx(top, abs=1e-8)
    assert stored.largest_laplacian_eigenvalue() == pytest.approx(top, abs=1e-8)


def test_the_largest_laplacian_eigenvalue_of_a_graph_with_many_bipartite_parts():
    """Citeseer has the eigenvalue 2 many times, up to rounding; no digit tells them apart."""
    graph = data("embedded").graph
    assert graph.largest_laplacian_eigenvalue() == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize("n", [1, 5, 80])
def test_without_edges_the_largest_laplacian_eigenvalue_is_two_however_it_is_held(n):
    empty = np.zeros((n, n))
    for graph in (*graphs(empty), Graph(torch.zeros(n, 2), None)):
        assert graph.largest_laplacian_eigenvalue() == 2.0


def test_edges_are_the_entries_that_are_not_zero():
    stored = sparse.csr_matrix(adjacency())
    stored.data[3] = 0.0  # a stored zero is no edge
    row = int(np.searchsorted(stored.indptr, 3, side="right")) - 1
    column = int(stored.indices[3])
    stored[column, row] = 0.0
    dense = torch.from_numpy(stored.toarray())
    for graph in (Graph(dense, dense), Graph(dense, held(stored))):
        index, weight = graph.edges()
        again = torch.zeros_like(dense)
        again[index[0], index[1]] = weight
        torch.testing.assert_close(again, dense)
        assert index.shape[1] == int((dense != 0).sum())
    index, weight = Graph(dense, None).edges()
    assert index.shape == (2, 0)
    assert weight.shape == (0,)


@pytest.mark.parametrize("kind", ["dense", "sparse", "none"])
def test_induced_subgraphs(kind):
    adj = adjacency()
    dense, stored = graphs(adj)
    graph = {"dense": dense, "sparse": stored, "none": Graph(dense.x, None)}[kind]
    index = torch.tensor([7, 2, 5])
    for part in (graph.subgraph(index), graph.sparse_subgraph(index)):
        assert torch.equal(part.x, dense.x[index])
        if kind == "none":
            assert part.adj is None
        else:
            assert torch.equal(part.adj.to_dense(), torch.from_numpy(adj)[index][:, index])
    assert isinstance(graph.sparse_subgraph(index).adj, SparseMatrix) is (kind == "sparse")


def test_a_subgraph_does_not_inherit_what_was_made_of_the_whole():
    _, graph = graphs(adjacency())
    graph.prepare("P", "A", "edges")
    part = graph.sparse_subgraph(torch.arange(4))
    assert part.propagation().shape == (4, 4)
    assert graph.with_x(torch.zeros(12, 1)).propagation() is graph.propagation()


def test_precision_and_device():
    graph = graphs(adjacency())[1].to(dtype=torch.float32)
    assert graph.x.dtype == graph.adj.dtype == graph.propagation().dtype == torch.float32
    assert graph.num_nodes == 12
    assert graph.num_features == 2


def test_positions_of_labelled_nodes():
    graph = graphs(adjacency())[0]
    assert Nodes(graph, torch.zeros(3), torch.tensor([5, 1, 2])).positions().tolist() == [5, 1, 2]
    assert Nodes(graph, torch.zeros(12)).positions().tolist() == list(range(12))


def test_the_fingerprint_is_of_the_content():
    def make(adj):
        graph = Graph(torch.ones(12, 2, dtype=torch.float64), held(adj))
        parts = torch.arange(12).split(4)
        return GraphData("name", "memory", graph, torch.arange(12) % 2, *parts, num_classes=2)

    data = make(adjacency())
    assert data.fingerprint() == dataclasses.replace(make(adjacency()), name="other").fingerprint()
    changed = adjacency()
    changed[3, 4] = changed[4, 3] = changed[3, 4] + 1
    y = data.y.clone()
    y[0] = 1 - y[0]
    others = [
        make(changed),
        dataclasses.replace(data, y=y),
        dataclasses.replace(data, train=data.val, val=data.train),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 4
