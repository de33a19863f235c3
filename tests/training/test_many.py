import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse

from hcdc.core.errors import NumericalError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData
from hcdc.spaces import PolynomialFilter, stack
from hcdc.tasks import GraphTask
from hcdc.training import Scores, init_many, score_many, train_many

SPACE = PolynomialFilter(order=2, width=6)
RECIPE = Recipe(steps=40, lr=0.05)
DECAY = 0.02


def make_task() -> GraphTask:
    rng = np.random.default_rng(0)
    n = 30
    upper = np.triu(rng.random((n, n)) < 0.2, 1)
    adj = SparseMatrix.from_scipy(
        sparse.csr_matrix((upper | upper.T).astype(float)), torch.float64, symmetric=True
    )
    x = SparseMatrix.from_scipy(sparse.random(n, 8, 0.5, random_state=0), torch.float64)
    y = torch.arange(n) % 3
    data = GraphData("random", "memory", Graph(x, adj), y, *torch.arange(n).split(10), num_classes=3)
    return GraphTask(data, weight_decay=DECAY).bind(SPACE)


def lanes(task, count=4, seed=0):
    """Parameters ``[B, ...]`` and lambda ``[B, H]`` in double precision."""
    configs = SPACE.sample(count, np.random.default_rng(seed))
    params = init_many(task, [(k,) for k in range(count)], seed, "init", "cpu")
    return {name: tensor.double() for name, tensor in params.items()}, stack(SPACE, configs).double()


def one(params, lane):
    return {name: tensor[lane] for name, tensor in params.items()}


def close(a, b, tolerance=1e-8):
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=tolerance, atol=tolerance)


def test_lanes_are_what_torch_trains_one_by_one():
    """torch.optim.Adam with its own weight decay, on the cross-entropy alone."""
    task = make_task()
    params, lam = lanes(task)
    before = {name: tensor.clone() for name, tensor in params.items()}
    trained = train_many(task, params, lam, task.train, RECIPE)
    for lane in range(len(lam)):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in one(params, lane).items()}
        optimiser = torch.optim.Adam(leaves.values(), lr=RECIPE.lr, weight_decay=DECAY)
        for _ in range(RECIPE.steps):
            optimiser.zero_grad()
            task.val_loss(leaves, lam[lane], task.train).backward()
            optimiser.step()
        close(one(trained, lane), {name: leaf.detach() for name, leaf in leaves.items()})
    close(params, before, 0)  # what was handed over is not changed


def test_every_step_tells_its_training_losses():
    task = make_task()
    params, lam = lanes(task)
    told = []
    train_many(task, params, lam, task.train, dataclasses.replace(RECIPE, steps=3), watch=told.append)
    assert len(told) == 3
    for step, losses in enumerate(told):
        now = params
        if step:
            now = train_many(task, params, lam, task.train, dataclasses.replace(RECIPE, steps=step))
        for lane in range(len(lam)):
            expected = task.train_loss(one(now, lane), lam[lane], task.train)
            assert float(losses[lane]) == pytest.approx(float(expected))


def test_training_lowers_the_training_loss():
    task = make_task()
    params, lam = lanes(task)
    trained = train_many(task, params, lam, task.train, RECIPE)
    for lane in range(len(lam)):
        before, after = (task.train_loss(one(p, lane), lam[lane], task.train) for p in (params, trained))
        assert after < before


def test_a_lane_does_not_depend_on_the_batch_it_is_in():
    task = make_task()
    params, lam = lanes(task, 5)
    together = train_many(task, params, lam, task.train, RECIPE)
    order = torch.tensor([3, 0])
    apart = train_many(task, {k: v[order] for k, v in params.items()}, lam[order], task.train, RECIPE)
    close(apart, {k: v[order] for k, v in together.items()}, 1e-10)


def test_initial_parameters_belong_to_their_keys():
    task = make_task()
    keys = [("a", 0), ("b", 0), ("a", 1)]
    many = init_many(task, keys, 5, "judge", "cpu")
    for lane, key in enumerate(keys):
        close(one(many, lane), task.init(stream(5, "judge", *key)), 0)
    close(one(init_many(task, keys[::-1], 5, "judge", "cpu"), 2), one(many, 0), 0)
    first = {
        (seed, role): init_many(task, [("a", 0)], seed, role, "cpu")["W0_0"]
        for seed, role in [(5, "judge"), (6, "judge"), (5, "trajectory")]
    }
    values = list(first.values())
    assert not any(torch.equal(a, b) for i, a in enumerate(values) for b in values[:i])


def test_scores_are_those_of_each_lane():
    task = make_task()
    params, lam = lanes(task)
    scores = score_many(task, params, lam, task.val)
    assert isinstance(scores, Scores)
    for lane in range(len(lam)):
        outputs = task.predict(one(params, lane), lam[lane], task.val)
        torch.testing.assert_close(scores.loss[lane], task.loss(outputs, task.val))
        torch.testing.assert_close(scores.score[lane], task.score(outputs, task.val))
    assert not scores.loss.requires_grad


def test_a_lane_that_diverged_is_named():
    task = make_task()
    params, lam = lanes(task)
    params["W0_0"][2] = torch.inf
    with pytest.raises(
        NumericalError, match=r"candidate 2 of 4 has a non-finite loss after training at lambda = \["
    ):
        score_many(task, params, lam, task.val)


def test_weights_of_the_data_are_used():
    task = make_task()
    params, lam = lanes(task, 2)
    weight = torch.zeros(10, dtype=torch.float64)
    weight[:4] = 1
    weighted = dataclasses.replace(task.train, weight=weight)
    few = dataclasses.replace(task.train, y=task.train.y[:4], index=task.train.index[:4])
    close(train_many(task, params, lam, weighted, RECIPE), train_many(task, params, lam, few, RECIPE))


@pytest.mark.parametrize(
    ("nodes", "cpu", "gpu"),
    [(30, 16, 256), (34_493, 16, 256), (232_965, 16, 38), (1_000_000, 4, 9), (50_000_000, 1, 1)],
)
def test_lanes_follow_the_size_of_the_graph(nodes, cpu, gpu):
    task = make_task()
    large = dataclasses.replace(task.train, graph=Graph(torch.zeros(1, 1).expand(nodes, 1), None))
    assert task.lanes(large, "cpu") == cpu
    assert task.lanes(large, "cuda") == gpu
