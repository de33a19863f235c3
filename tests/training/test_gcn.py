import math

import pytest
import torch
from scipy import sparse
from torch.nn import functional as F

from hcdc.core.errors import InputError, NumericalError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Nodes
from hcdc.tasks import GraphTask
from hcdc.training import GCNRecipe, gcn_accuracy, gcn_inputs, gcn_logits, train_gcn

QUICK = GCNRecipe(steps=30, hidden=8, lr=0.05)


def data(dense=False, dtype=torch.float64):
    """60 nodes in two blocks with noisy features."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    link = torch.rand(60, 60, generator=generator) < torch.where(y[:, None] == y, 0.12, 0.02)
    adj = (link.triu(1) | link.triu(1).t()).to(dtype)
    x = (torch.rand(60, 6, generator=generator) < 0.1 + 0.6 * (y[:, None] == torch.arange(6) % 2)).to(dtype)
    matrix = x if dense else SparseMatrix.from_scipy(sparse.csr_matrix(x.numpy()), dtype)
    graph = Graph(matrix, SparseMatrix.from_scipy(sparse.csr_matrix(adj.numpy()), dtype, symmetric=True))
    index = torch.randperm(60, generator=generator)
    return GraphData("blocks", "memory", graph, y, index[:14], index[14:34], index[34:], 2)


def parts(dense):
    """Labelled nodes of every kind: original, inductive, small dense graph, small graph without edges."""
    d = data(dense)
    small = GraphTask(d).sample("train", 6, 0)
    some = torch.tensor([4, 1])
    return [
        GraphTask(d).val,
        GraphTask(d, setting="inductive").test,
        small,
        Nodes(small.graph, small.y[some], some),
        Nodes(Graph(small.graph.x, None), small.y),
        Nodes(Graph(d.graph.x, None), d.y[some], some),
    ]


def plain_logits(params, nodes, s):
    """P relu(P X W1 + b1) W2 + b2 with dense matrices."""
    x = nodes.graph.x if isinstance(nodes.graph.x, torch.Tensor) else nodes.graph.x.to_dense()
    p = nodes.graph.propagation()
    p = torch.eye(len(x), dtype=x.dtype) if p is None else p if isinstance(p, torch.Tensor) else p.to_dense()
    hidden = torch.relu(p @ x @ params["w1"][:, s] + params["b1"][s])
    return (p @ hidden @ params["w2"][s] + params["b2"][s])[nodes.positions()]


def random_params(generator, networks=3):
    shapes = {"w1": (6, networks, 5), "b1": (networks, 5), "w2": (networks, 5, 2), "b2": (networks, 2)}
    return {k: torch.randn(s, generator=generator, dtype=torch.float64) for k, s in shapes.items()}


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kind", range(6))
def test_logits_equal_the_dense_formula(dense, kind):
    nodes = parts(dense)[kind]
    params = random_params(torch.Generator().manual_seed(1))
    found = gcn_logits(params, gcn_inputs(nodes))
    assert found.shape == (len(nodes), 3, 2)
    for s in range(3):
        torch.testing.assert_close(found[:, s], plain_logits(params, nodes, s), rtol=0, atol=1e-12)


def test_training_equals_a_plain_loop():
    """Adam, weight decay, a tenth of the learning rate and a fresh optimiser halfway; no dropout."""
    d = data()
    nodes, recipe = GraphTask(d).train, GCNRecipe(steps=21, hidden=5, lr=0.05, weight_decay=0.01, dropout=0.0)
    start = train_gcn(nodes, 2, [7], GCNRecipe(steps=1, hidden=5, lr=1e-30, weight_decay=0.0)).last
    tensors = {k: v.clone().requires_grad_() for k, v in start.items()}
    for step in range(21):
        if step in (0, 10):
            lr = 0.05 if step == 0 else 0.005
            optimiser = torch.optim.Adam(tensors.values(), lr=lr, weight_decay=0.01)
        optimiser.zero_grad()
        F.cross_entropy(plain_logits(tensors, nodes, 0), nodes.y).backward()
        optimiser.step()
    found = train_gcn(nodes, 2, [7], recipe).last
    for name, tensor in tensors.items():
        torch.testing.assert_close(found[name], tensor.detach(), rtol=0, atol=1e-9)
    assert float((found["w1"] - start["w1"]).abs().max()) > 0.1


def test_a_network_does_not_depend_on_its_neighbours():
    d = data()
    nodes = GraphTask(d).train
    together = train_gcn(nodes, 2, [1, 2, 3], QUICK, val=GraphTask(d).val)
    alone = train_gcn(nodes, 2, [2], QUICK, val=GraphTask(d).val)
    torch.testing.assert_close(together.last["w1"][:, 1], alone.last["w1"][:, 0])
    torch.testing.assert_close(together.best["w2"][1], alone.best["w2"][0])
    assert together.best_step[1] == alone.best_step[0]
    assert not torch.allclose(together.last["w1"][:, 0], together.last["w1"][:, 1])


def test_best_step_has_the_best_validation_accuracy(monkeypatch):
    """The kept parameters are those of the first step with the best accuracy on the validation nodes."""
    import hcdc.training._gcn as module

    task, seen = GraphTask(data()), []
    plain = module._accuracy

    def noted(params, inputs, y):
        seen.append(plain(params, inputs, y))
        return seen[-1]

    monkeypatch.setattr(module, "_accuracy", noted)
    run = train_gcn(task.sample("train", 4, 1), 2, [5, 6, 7], QUICK, val=task.val)
    history = torch.stack(seen)
    assert history.shape == (30, 3)
    assert run.best_step == [int(steps.argmax()) + 1 for steps in history.t()]
    assert run.val_accuracy == history.max(0).values.tolist()
    assert plain(run.best, gcn_inputs(task.val), task.val.y).tolist() == run.val_accuracy
    assert plain(run.last, gcn_inputs(task.val), task.val.y).tolist() == history[-1].tolist()
    assert any(step < 30 for step in run.best_step)


def test_weights_of_nodes_count():
    d = data()
    nodes = GraphTask(d).sample("train", 6, 0)
    weight = torch.tensor([1.0, 1.0, 0.0, 2.0, 0.0, 1.0], dtype=torch.float64)
    recipe = GCNRecipe(steps=5, hidden=4, dropout=0.0)
    weighted = train_gcn(Nodes(nodes.graph, nodes.y, None, weight), 2, [0], recipe).last
    index = torch.tensor([0, 1, 3, 3, 5])
    repeated = train_gcn(Nodes(nodes.graph, nodes.y[index], index), 2, [0], recipe).last
    torch.testing.assert_close(weighted["w1"], repeated["w1"])


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_accuracy_on_the_original_test_nodes(setting):
    d = data(dtype=torch.float32)
    small = GraphTask(d).sample("train", 12, 0)
    found = gcn_accuracy(small, d, seeds=3, setting=setting, recipe=QUICK)
    assert (
        len(found["test_accuracies"])
        == len(found["last_step_test_accuracies"])
        == len(found["best_steps"])
        == 3
    )
    assert found["test_accuracy"] == pytest.approx(sum(found["test_accuracies"]) / 3)
    assert 0.6 < found["test_accuracy"] <= 1
    assert found == gcn_accuracy(small, d, seeds=3, setting=setting, recipe=QUICK)
    assert (
        found["test_accuracies"]
        != gcn_accuracy(small, d, seeds=3, seed=1, setting=setting, recipe=QUICK)["test_accuracies"]
    )


def test_without_validation_the_last_step_is_the_best():
    run = train_gcn(GraphTask(data()).train, 2, [0], QUICK)
    assert run.best is run.last
    assert run.best_step == [30]
    assert math.isnan(run.val_accuracy[0])


def test_steps_are_reported():
    seen = []
    train_gcn(GraphTask(data()).train, 2, [0], GCNRecipe(steps=3, hidden=2), on_step=seen.append)
    assert seen == [1, 2, 3]


def test_divergence_is_a_diagnosis():
    d = data(dense=True)
    d.graph.x[:] = float("nan")
    with pytest.raises(NumericalError, match=r"diverged at learning rate 0.05"):
        train_gcn(GraphTask(d).train, 2, [0], QUICK)


@pytest.mark.parametrize("settings", [{"steps": 0}, {"lr": 0.0}, {"dropout": 1.0}, {"weight_decay": -1.0}])
def test_refuses_senseless_settings(settings):
    with pytest.raises(InputError, match=str(next(iter(settings.values())))):
        GCNRecipe(**settings)


def test_refuses_no_networks():
    with pytest.raises(InputError, match="seeds 0: at least 1"):
        gcn_accuracy(GraphTask(data()).sample("train", 4, 0), data(), seeds=0)
