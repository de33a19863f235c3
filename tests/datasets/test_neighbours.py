"""Neighbour sampling: what is drawn, what it keeps of the graph, and that large fanouts lose nothing."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.csgraph import shortest_path

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph
from hcdc.datasets._graph import _draw_entries

N = 60


def dense_adjacency():
    """Weighted and symmetric: two blocks without an edge between them; node 0 is isolated."""
    rng = np.random.default_rng(0)
    upper = np.triu(rng.uniform(0.5, 2.0, (N, N)) * (rng.random((N, N)) < 0.15), 1)
    upper[:40, 40:] = 0
    upper[0] = 0
    return upper + upper.T


def make(kind="sparse"):
    adj = dense_adjacency()
    x = torch.arange(2.0 * N, dtype=torch.float64).reshape(N, 2) + 1
    held = SparseMatrix.from_scipy(sparse.csr_matrix(adj), torch.float64, symmetric=True)
    rows = SparseMatrix.from_scipy(sparse.csr_matrix(x.numpy()), torch.float64)
    return {
        "sparse": Graph(x, held),
        "sparse-x": Graph(rows, held),
        "dense": Graph(x, torch.from_numpy(adj)),
        "none": Graph(x, None),
    }[kind]


def sample(graph, index, fanouts, seed=0):
    return graph.sample_neighbours(torch.as_tensor(index), fanouts, np.random.default_rng(seed))


def original_nodes(graph):
    """Which nodes a sampled graph has, read from its features."""
    x = graph.x.to_dense() if isinstance(graph.x, SparseMatrix) else graph.x
    return ((x[:, 0] - 1) / 2).long()


@pytest.mark.parametrize("kind", ["sparse", "sparse-x", "dense"])
def test_large_fanouts_keep_the_component_whole(kind):
    graph = make(kind)
    small, positions = sample(graph, [45, 50, 41], [N] * 12)
    nodes = original_nodes(small)
    assert nodes.tolist() == list(range(40, N))
    assert nodes[positions].tolist() == [45, 50, 41]
    assert torch.equal(small.adj.to_dense(), torch.from_numpy(dense_adjacency())[nodes][:, nodes])
    assert small.adj.symmetric


@pytest.mark.parametrize("seed", range(3))
def test_what_is_drawn_is_a_part_of_the_graph(seed):
    adj, fanouts = dense_adjacency(), [3, 2]
    small, positions = sample(make(), [7, 3, 44], fanouts, seed)
    nodes = original_nodes(small).numpy()
    assert nodes[positions].tolist() == [7, 3, 44]
    found = small.adj.to_dense().numpy()
    assert np.array_equal(found, found.T)
    assert np.array_equal(found[found > 0], adj[np.ix_(nodes, nodes)][found > 0])
    hops = shortest_path(adj > 0, unweighted=True)[[7, 3, 44]].min(0)
    assert hops[nodes].max() <= len(fanouts)
    drawn_hops = shortest_path(found > 0, unweighted=True)[positions].min(0)
    assert drawn_hops.max() <= len(fanouts)  # everything is joined to a start by what was drawn
    assert len(nodes) <= 3 * (1 + 3 + 3 * 2)
    for start, position in zip([7, 3, 44], positions.tolist()):
        assert (found[position] > 0).sum() >= min(3, int((adj[start] > 0).sum()))


def test_fewer_hops_see_less():
    one, two = sample(make(), [7], [N])[0], sample(make(), [7], [N, N])[0]
    neighbours = {7, *np.flatnonzero(dense_adjacency()[7]).tolist()}
    assert set(original_nodes(one).tolist()) == neighbours
    assert set(original_nodes(two).tolist()) > neighbours


def test_the_generator_decides():
    drawn = [sample(make(), [7, 44], [2, 2], seed)[0].adj.to_dense() for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert drawn[0].shape != drawn[2].shape or not torch.equal(drawn[0], drawn[2])


def test_isolated_nodes_and_graphs_without_edges():
    small, positions = sample(make(), [0], [3])
    assert (small.num_nodes, small.adj.nnz, positions.tolist()) == (1, 0, [0])
    small, positions = sample(make("none"), [5, 2, 5], [3, 3])
    assert original_nodes(small).tolist() == [2, 5]
    assert positions.tolist() == [1, 0, 1]
    assert small.adj.nnz == 0


@pytest.mark.parametrize("fanouts", [[], [3, 0], [-1]])
def test_a_fanout_below_one_is_refused(fanouts):
    with pytest.raises(InputError, match="fanouts"):
        sample(make(), [1], fanouts)


def test_every_entry_of_a_row_has_the_same_chance():
    indptr, rows = np.array([0, 5, 5, 7, 15]), np.array([0, 1, 2, 3])
    rng, count, draws = np.random.default_rng(0), 3, 4000
    seen = np.zeros(15)
    for _ in range(draws):
        row, place = _draw_entries(indptr, rows, count, rng)
        assert np.bincount(row, minlength=4).tolist() == [3, 0, 2, 3]
        assert len(set(place.tolist())) == len(place)
        assert ((indptr[row] <= place) & (place < indptr[row + 1])).all()
        seen[place] += 1
    expected = np.repeat([3 / 5, 1, 3 / 8], [5, 2, 8])
    assert np.abs(seen / draws - expected).max() < 4 * np.sqrt(0.25 / draws)
