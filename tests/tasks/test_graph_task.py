import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Nodes
from hcdc.networks import GCN
from hcdc.spaces import Box, PolynomialFilter
from hcdc.tasks import GraphTask
from hcdc.tasks._soft import soft_accuracy
from hcdc.testing import TaskConformance

N, FEATURES, CLASSES = 40, 6, 3
SPACE = PolynomialFilter(order=2, width=5)


def make_data(change=(), amount=1.0, dense=True, dtype=torch.float64) -> GraphData:
    """40 nodes, four of them unlabelled; the features of ``change`` are moved by ``amount``."""
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((N, N)) < 0.2, 1)
    x = rng.standard_normal((N, FEATURES))
    x[list(change)] += amount
    y = torch.from_numpy(rng.permutation(np.arange(N) % CLASSES))
    y[torch.tensor([3, 9, 21, 33])] = -1
    labelled = torch.from_numpy(rng.permutation(np.flatnonzero(y.numpy() >= 0)))
    train, val, test = labelled[:14], labelled[14:26], labelled[26:]
    adj = SparseMatrix.from_scipy(sparse.csr_matrix((upper | upper.T).astype(float)), dtype, symmetric=True)
    features = (
        torch.from_numpy(x).to(dtype) if dense else SparseMatrix.from_scipy(sparse.csr_matrix(x), dtype)
    )
    return GraphData("random", "memory", Graph(features, adj), y, train, val, test, CLASSES)


def make_task(setting="transductive", change=(), amount=1.0, **options) -> GraphTask:
    return GraphTask(make_data(change, amount), setting, **options).bind(SPACE)


class TestConformance(TaskConformance):
    def make(self):
        return GraphTask(make_data(dtype=torch.float32), "inductive"), SPACE


@pytest.mark.parametrize("given", [None, "cora", (torch.zeros(4, 1, 4, 4), torch.zeros(4))], ids=str)
def test_what_is_no_graph_is_refused(given):
    with pytest.raises(
        InputError, match=rf"data is {type(given).__name__}, not a graph; pass what hcdc.data"
    ):
        GraphTask(given)


def start(task, seed=0):
    params = {k: v.double() for k, v in task.init(torch.Generator().manual_seed(seed)).items()}
    lam = torch.tensor([0.3, 0.8, -0.4], dtype=torch.float64)
    return params, lam


def loss_on(task, part):
    nodes = task.part(part)
    task.prepare(nodes)
    params, lam = start(task)
    return task.train_loss(params, lam, nodes) if part == "train" else task.val_loss(params, lam, nodes)


# --- what each setting sees ---------------------------------------------------------------------------------


def test_the_loss_is_cross_entropy_plus_weight_decay():
    task = make_task(weight_decay=0.3)
    params, lam = start(task)
    logits = task.net.forward(params, lam, task.data.graph)
    for part in ("train", "val"):
        index = getattr(task.data, part)
        plain = F.cross_entropy(logits[index], task.data.y[index])
        decay = 0.15 * sum((p**2).sum() for p in params.values()) if part == "train" else 0
        torch.testing.assert_close(loss_on(task, part), plain + decay)


def test_transductive_training_sees_the_whole_graph():
    data = make_data()
    other = [int(i) for i in data.val]
    assert loss_on(make_task(), "train") != loss_on(make_task(change=other), "train")


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_inductive_parts_never_see_other_nodes(part):
    data = make_data()
    mine = set(getattr(data, part).tolist())
    others = [i for i in range(N) if i not in mine]
    assert loss_on(make_task("inductive"), part) == loss_on(
        make_task("inductive", change=others, amount=1e3), part
    )
    assert loss_on(make_task("inductive"), part) != loss_on(make_task("inductive", change=[min(mine)]), part)


def test_inductive_training_is_training_on_the_induced_subgraph():
    task = make_task("inductive")
    params, lam = start(task)
    index = task.data.train
    alone = task.data.graph.subgraph(index)
    logits = task.net.forward(params, lam, alone)
    oracle = F.cross_entropy(logits, task.data.y[index]) + task.penalty(params, lam)
    torch.testing.assert_close(loss_on(task, "train"), oracle)


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_sparse_features_give_the_same_loss(setting):
    dense = GraphTask(make_data(), setting).bind(SPACE)
    stored = GraphTask(make_data(dense=False), setting).bind(SPACE)
    for part in ("train", "val"):
        torch.testing.assert_close(loss_on(dense, part), loss_on(stored, part))


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_unlabelled_nodes_are_in_no_loss(setting):
    task = make_task(setting)
    for part in ("train", "val", "test"):
        nodes = task.part(part)
        assert int(nodes.y.min()) >= 0
        assert set(getattr(task.data, part).tolist()) & {3, 9, 21, 33} == set()
        assert len(nodes) == len(getattr(task.data, part))


def test_a_label_outside_a_part_does_not_matter():
    task = make_task()
    y = task.data.y.clone()
    outside = [i for i in range(N) if i not in set(task.data.train.tolist())]
    y[outside] = -1
    other = dataclasses.replace(task, data=dataclasses.replace(task.data, y=y), _parts={})
    assert torch.equal(loss_on(other, "train"), loss_on(task, "train"))


def test_parts_are_made_once_and_not_shared_between_tasks():
    task = make_task("inductive")
    assert task.train is task.part("train")
    assert task.to("cpu").train is not task.train


# --- losses and scores --------------------------------------------------------------------------------------


def test_weights():
    task = make_task()
    outputs = torch.randn(14, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nodes = task.train
    weight = torch.rand(14, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight[2] = 0
    oracle = (
        sum(w * F.cross_entropy(o[None], c[None]) for w, o, c in zip(weight, outputs, nodes.y)) / weight.sum()
    )
    weighted = dataclasses.replace(nodes, weight=weight)
    torch.testing.assert_close(task.loss(outputs, weighted), oracle)
    torch.testing.assert_close(task.loss(outputs, dataclasses.replace(nodes, weight=3 * weight)), oracle)
    equal = dataclasses.replace(nodes, weight=torch.full((14,), 0.7, dtype=torch.float64))
    torch.testing.assert_close(task.loss(outputs, equal), task.loss(outputs, nodes))


def test_score_is_accuracy():
    task = make_task()
    outputs = F.one_hot(task.train.y, CLASSES).double()
    assert float(task.score(outputs, task.train)) == 1
    outputs[:7] = -outputs[:7]
    assert float(task.score(outputs, task.train)) == pytest.approx(0.5)


# --- synthetic sets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
@pytest.mark.parametrize(("part", "size"), [("train", 3), ("train", 14), ("val", 7)])
def test_sample(setting, part, size):
    task = make_task(setting)
    small = task.sample(part, size, seed=1)
    assert len(small) == small.graph.num_nodes == size
    assert set(small.y.tolist()) == set(range(CLASSES))
    assert bool((small.y.diff() >= 0).all())
    assert isinstance(small.graph.x, torch.Tensor)
    # every sampled node is a node of the part, with its own features, label and the edges between them
    members = getattr(task.data, part)
    same = (small.graph.x[:, None] == task.data.graph.x[members][None]).all(-1)
    assert same.sum(1).tolist() == [1] * size
    picked = members[same.long().argmax(1)]
    assert len(set(picked.tolist())) == size
    assert torch.equal(task.data.y[picked], small.y)
    assert torch.equal(small.graph.adj, task.data.graph.adj.to_dense()[picked][:, picked])


def test_sample_is_seeded():
    task = make_task()
    first, again, other = (task.sample("train", 6, seed).graph.x for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("size", "words"), [(2, "val_size 2: there are 3 classes"), (13, "only 12 labelled")]
)
def test_sample_refuses_impossible_sizes(size, words):
    with pytest.raises(InputError, match=words):
        make_task().sample("val", size, 0)


def test_synthetic_features_can_be_replaced_and_differentiated():
    task = make_task()
    small = task.sample("val", 6, 0)
    tensors = task.tensors(small)
    assert list(tensors) == ["x"]
    moved = task.replace(small, {"x": tensors["x"] + 1})
    assert isinstance(moved, Nodes)
    assert torch.equal(moved.graph.x, small.graph.x + 1)
    assert torch.equal(moved.y, small.y)
    assert torch.equal(small.graph.x, tensors["x"])
    params, lam = start(task)
    task.prepare(small)

    def loss(x):
        return task.val_loss(params, lam, task.replace(small, {"x": x}))

    assert torch.autograd.gradcheck(loss, (tensors["x"].clone().requires_grad_(),))


def test_balanced_samples_have_equal_classes():
    task = make_task()
    y = task.data.y.clone()
    train = task.data.train
    y[train] = torch.tensor([0] * 8 + [1] * 3 + [2] * 3)
    task = dataclasses.replace(task, data=dataclasses.replace(task.data, y=y), _parts={})
    assert task.sample("train", 6, 0).y.bincount().tolist() == [4, 1, 1]
    assert task.sample("train", 6, 0, balanced=True).y.bincount().tolist() == [2, 2, 2]


def test_a_learned_adjacency_is_symmetric_non_negative_and_without_loops():
    task = dataclasses.replace(make_task(), learn_adjacency=True)
    small = task.sample("val", 6, 0)
    tensors = task.tensors(small)
    assert torch.equal(task.replace(small, tensors).graph.adj, small.graph.adj)
    raw = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    learned = task.replace(small, {"x": tensors["x"], "adj": raw}).graph.adj
    off = 1 - torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(learned, ((raw + raw.t()) / 2).clamp_min(0) * off)
    params, lam = start(task)

    def loss(adj):
        return task.val_loss(params, lam, task.replace(small, {"x": tensors["x"], "adj": adj}))

    assert torch.autograd.gradcheck(loss, (raw.requires_grad_(),))


def test_an_edgeless_synthetic_graph_has_an_adjacency_to_learn():
    task = dataclasses.replace(make_task(), learn_adjacency=True)
    small = task.sample("val", 6, 0)
    bare = dataclasses.replace(small, graph=Graph(small.graph.x, None))
    assert torch.equal(task.tensors(bare)["adj"], torch.zeros(6, 6, dtype=torch.float64))


# --- the smooth stand-in of accuracy ------------------------------------------------------------------------


def test_the_target_loss_is_minus_a_soft_accuracy():
    task = make_task()
    params, lam = start(task)
    outputs = task.predict(params, lam, task.val)
    smooth = task.target()
    torch.testing.assert_close(smooth.val_loss(params, lam, smooth.val), -soft_accuracy(outputs, task.val.y))
    assert torch.equal(smooth.train_loss(params, lam, smooth.train), task.train_loss(params, lam, task.train))


def test_soft_accuracy_does_not_see_the_scale_and_becomes_accuracy_when_sharp():
    outputs = torch.randn(50, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(50) % CLASSES
    value = soft_accuracy(outputs, y)
    torch.testing.assert_close(soft_accuracy(7 * outputs + 3, y), value)
    accuracy = (outputs.argmax(1) == y).double().mean()
    torch.testing.assert_close(soft_accuracy(outputs, y, 1e6), accuracy)
    assert torch.autograd.gradcheck(lambda o: soft_accuracy(o, y), (outputs.requires_grad_(),))


# --- binding, refusing, describing --------------------------------------------------------------------------


def test_bind():
    task = GraphTask(make_data())
    with pytest.raises(InputError, match="has no network yet"):
        task.init(torch.Generator())
    with pytest.raises(InputError, match="space 'box' builds no graph network"):
        task.bind(Box(["a"], 0.0, 1.0))
    assert set(task.bind(SPACE).init(torch.Generator())) == {"W0_0", "W1_0"}


def test_an_unknown_setting_is_refused():
    with pytest.raises(InputError, match="did you mean 'inductive'"):
        GraphTask(make_data(), "inductiv")


def test_spec_is_what_the_task_is_made_of():
    task = GraphTask(make_data(), "inductive", 0.01)
    assert task.spec() == {"name": "graph", "setting": "inductive", "weight_decay": 0.01}


def test_the_fingerprint_of_the_data_sees_every_feature():
    assert make_data().fingerprint() == make_data().fingerprint()
    assert make_data().fingerprint() != make_data(change=[5], amount=1e-9).fingerprint()


# --- gradients of all lanes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
@pytest.mark.parametrize("data", ["sparse", "dense", "no edges", "weighted"])
@pytest.mark.parametrize("net", ["powers", "chebyshev", "gcn"])
def test_gradients_of_all_lanes_are_those_of_each(setting, data, net):
    basis = "powers" if net == "gcn" else net
    space = PolynomialFilter(order=2, width=5, basis=basis)
    task = GraphTask(make_data(dense=data != "sparse"), setting).bind(space)
    task = dataclasses.replace(task, net=GCN(FEATURES, CLASSES, 4)) if net == "gcn" else task
    nodes = task.train if data == "sparse" else task.sample("train", 8, 0)
    if data == "no edges":
        nodes = dataclasses.replace(nodes, graph=Graph(nodes.graph.x, None))
    if data == "weighted":
        nodes = dataclasses.replace(nodes, weight=torch.arange(1.0, len(nodes.y) + 1, dtype=torch.float64))
    task.prepare(nodes)
    lanes = [start(task, seed)[0] for seed in range(3)]
    params = {name: torch.stack([lane[name] for lane in lanes]) for name in lanes[0]}
    lam = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found, losses = task.train_gradients(params, lam, nodes)
    for k, lane in enumerate(lanes):
        gradient, loss = torch.func.grad_and_value(task.train_loss)(lane, lam[k], nodes)
        torch.testing.assert_close(losses[k], loss, rtol=1e-12, atol=1e-12)
        for name, wanted in gradient.items():
            torch.testing.assert_close(found[name][k], wanted, rtol=1e-10, atol=1e-12)


def test_filters_run_all_lanes_at_once():
    task = make_task()
    params = {name: p[None] for name, p in start(task)[0].items()}
    logits = task.net.forward_lanes(params, start(task)[1][None], task.train.graph)
    torch.testing.assert_close(logits[0], task.net.forward(*start(task), task.train.graph))
