"""Gradient matching with a network: gradients by class, their distance, and that matching brings it down."""

import dataclasses

import pytest
import torch
from torch.func import grad

import hcdc
from hcdc.core.progress import Progress
from hcdc.experiments.reproductions._matching import (
    NetworkMatching,
    adjacency,
    class_gradients,
    gradient_distance,
)
from hcdc.networks import ZooNetwork
from hcdc.tasks import GraphTask


@pytest.fixture(scope="module")
def task():
    plain = GraphTask(hcdc.data("embedded"), weight_decay=0.0)
    return dataclasses.replace(plain, net=ZooNetwork(("gin-0",), (plain.features, 6, plain.num_classes)))


def test_gradients_of_the_classes_add_up_to_the_gradient(task):
    params = task.init(torch.Generator().manual_seed(0))
    whole = grad(task.train_loss)(params, torch.zeros(0), task.train)
    shares = task.train.y.bincount(minlength=task.num_classes) / len(task.train)
    each = class_gradients(task, params, task.train)
    for name, expected in whole.items():
        found = sum(share * gradient[name] for share, gradient in zip(shares, each))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_distance_is_that_of_directions(task):
    each = class_gradients(task, task.init(torch.Generator().manual_seed(0)), task.train)
    longer = [{name: 3 * g for name, g in gradient.items()} for gradient in each]
    turned = [{name: -g for name, g in gradient.items()} for gradient in each]
    rows = sum(int((g.norm(dim=1) > 1e-3).sum()) for one in each for g in one.values() if g.dim() == 2)
    empty = sum(int((g.norm(dim=1) <= 1e-3).sum()) for one in each for g in one.values() if g.dim() == 2)
    assert gradient_distance(each, longer) == pytest.approx(empty, abs=0.05 * rows)
    assert gradient_distance(each, turned) == pytest.approx(2 * rows + empty, rel=0.05)


def test_edges_are_symmetric_without_loops():
    edges = adjacency(torch.randn(5, 5))
    assert torch.equal(edges, edges.T)
    assert not edges.diagonal().any()


def test_matching_brings_the_distance_down(task):
    task = dataclasses.replace(task, net=ZooNetwork(("sgc-2",), (task.features, task.num_classes)))

    def distance(small):
        totals = []
        for seed in range(5):
            params = task.init(torch.Generator().manual_seed(seed))
            totals.append(
                gradient_distance(
                    class_gradients(task, params, small), class_gradients(task, params, task.train)
                )
            )
        return float(sum(totals))

    few = NetworkMatching(epochs=1, outer=1, lr_feat=1e-9, lr_adj=1e-9).reduce(task, 14, 0, Progress())
    many = NetworkMatching(epochs=4, outer=5, inner=1, lr_feat=1e-3).reduce(task, 14, 0, Progress())
    assert len(many) == len(few) == 14
    assert torch.equal(many.y, few.y)
    assert distance(many) < 0.5 * distance(few)
    again = NetworkMatching(epochs=4, outer=5, inner=1, lr_feat=1e-3).reduce(task, 14, 0, Progress())
    assert torch.equal(many.graph.x, again.graph.x)
