"""Sampled sets of a graph task, and mini-batches of synthetic sets."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Nodes, Rows, TableData
from hcdc.hypergrad import batched_hypergradient, conjugate_gradient
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask, TableTask

N = 50
EVERYTHING = (N,) * 12
SPACE = PolynomialFilter(order=2, width=4)


def make_task(setting="transductive"):
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((N, N)) < 0.12, 1)
    adj = SparseMatrix.from_scipy(
        sparse.csr_matrix((upper | upper.T).astype(float)), torch.float64, symmetric=True
    )
    y = torch.from_numpy(np.arange(N) % 3)
    x = torch.from_numpy(rng.normal(size=(N, 5)))
    parts = torch.from_numpy(rng.permutation(N)).split([20, 18, 12])
    return GraphTask(GraphData("random", "memory", Graph(x, adj), y, *parts, 3), setting)


def lanes(task, count=3):
    """Parameters ``[B, ...]`` and lambdas ``[B, H]`` in float64."""
    drawn = [task.init(torch.Generator().manual_seed(b)) for b in range(count)]
    params = {name: torch.stack([d[name] for d in drawn]).double() for name in drawn[0]}
    return params, torch.rand(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_with_everything_kept_hypergradients_are_those_of_the_whole_graph(setting):
    task = make_task(setting).bind(SPACE).target()
    params, lam = lanes(task)
    solver = conjugate_gradient(8, damping=1e-2)
    whole = (task.train, task.val)
    sampled = tuple(task.sampled_part(part, 0, EVERYTHING, seed=3) for part in ("train", "val"))
    found = []
    for train, val in (whole, sampled):
        task.prepare(train)
        task.prepare(val)
        found.append(batched_hypergradient(task, params, lam, train, val, solver))
    assert found[0].implicit.abs().max() > 1e-6
    torch.testing.assert_close(found[1].total, found[0].total, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_sampled_nodes_carry_their_own_labels_and_features(setting):
    task = make_task(setting)
    drawn = task.sampled_part("val", 7, (2, 2), seed=0)
    whole = task.val
    rows = {tuple(row): int(label) for row, label in zip(whole.graph.x[whole.positions()].tolist(), whole.y)}
    assert len(drawn) == len(set(drawn.index.tolist())) == 7
    for row, label in zip(drawn.graph.x[drawn.index].tolist(), drawn.y):
        assert rows[tuple(row)] == int(label)


def test_sampled_sets_depend_on_the_seed_and_the_part():
    task = make_task()
    one = task.sampled_part("train", 6, (2,), 0)
    again, other = task.sampled_part("train", 6, (2,), 0), task.sampled_part("train", 6, (2,), 1)
    assert torch.equal(one.graph.x, again.graph.x)
    assert one.graph.x.shape != other.graph.x.shape or not torch.equal(one.graph.x, other.graph.x)
    assert len(task.sampled_part("val", 6, (2,), 0)) == 6


def test_zero_or_too_many_nodes_are_all_and_no_fanout_is_the_whole_graph():
    task = make_task()
    assert len(task.sampled_part("train", 0, (1,), 0)) == len(task.sampled_part("train", 99, (1,), 0)) == 20
    few = task.sampled_part("train", 4, (), 0)
    assert few.graph is task.data.graph
    assert set(few.index.tolist()) < set(task.data.train.tolist())
    assert torch.equal(few.y, task.data.y[few.index])


# --- mini-batches -------------------------------------------------------------------------------------------


def test_a_subset_of_nodes_sees_the_same_graph():
    task = make_task().bind(SPACE)
    small = task.sample("val", 9, 0)
    task.prepare(small)
    params, lam = lanes(task, 1)
    one = {name: tensor[0] for name, tensor in params.items()}
    index = torch.tensor([6, 1, 2])
    part = task.subset(dataclasses.replace(small, weight=torch.arange(9.0)), index)
    assert torch.equal(part.weight, torch.tensor([6.0, 1, 2]))
    assert torch.equal(part.y, small.y[index])
    torch.testing.assert_close(
        task.predict(one, lam[0], part), task.predict(one, lam[0], small)[index], rtol=0, atol=0
    )
    assert task.tensors(part)["x"].shape == small.graph.x.shape
    assert torch.equal(task.subset(part, torch.tensor([1])).index, torch.tensor([1]))


def test_a_subset_of_a_part_with_an_index_keeps_its_places():
    task = make_task()
    part = task.subset(task.train, torch.tensor([3, 0]))
    assert part.index.tolist() == task.data.train[[3, 0]].tolist()
    assert isinstance(part, Nodes)


def test_adjacency_of_a_subset_has_all_nodes():
    task = dataclasses.replace(make_task(), learn_adjacency=True)
    part = task.subset(Nodes(Graph(torch.ones(5, 2), None), torch.arange(5) % 3), torch.tensor([0, 3]))
    assert task.tensors(part)["adj"].shape == (5, 5)


def test_a_subset_of_rows():
    rows = Rows(torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2, torch.arange(6.0))
    task = TableTask(TableData("t", "memory", rows, rows, rows, 2))
    part = task.subset(rows, torch.tensor([4, 1]))
    assert torch.equal(part.x, rows.x[[4, 1]])
    assert torch.equal(part.y, rows.y[[4, 1]])
    assert torch.equal(part.weight, rows.weight[[4, 1]])
    assert task.subset(dataclasses.replace(rows, weight=None), torch.tensor([2])).weight is None
