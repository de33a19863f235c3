import pytest
import torch
from plain_gcond import PlainSGC, plain_distance, plain_matching
from tiny_graph import tiny_task
from torch.nn import functional as F

from hcdc.condensers._sgc import (
    ClassBatches,
    Groups,
    init_sgc,
    matching_distance,
    propagated,
    sgc_gradients,
    synthetic_distance,
    with_ones,
)
from hcdc.core.labels import members
from hcdc.datasets import Graph, Nodes, normalise_dense


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("setting", ["transductive", "inductive"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_propagated_rows_equal_the_dense_product(dense, setting, hops):
    nodes = tiny_task(setting, dense=dense, dtype=torch.float64).train
    p = nodes.graph.propagation().to_dense()
    x = nodes.graph.x if dense else nodes.graph.x.to_dense()
    wanted = (torch.linalg.matrix_power(p, hops) @ x)[nodes.positions()]
    torch.testing.assert_close(propagated(nodes, hops), wanted, rtol=0, atol=1e-12)


def test_without_edges_nothing_is_propagated():
    nodes = Nodes(Graph(rand(5, 3), None), torch.tensor([0, 1]), torch.tensor([4, 2]))
    assert torch.equal(propagated(nodes, 2), nodes.graph.x[[4, 2]])


@pytest.mark.parametrize("hidden", [0, 6])
def test_closed_form_gradients_equal_automatic_ones(hidden):
    z, y, weight = with_ones(rand(9, 4)), torch.arange(9) % 3, rand(9, seed=1)
    layers = [w.double().requires_grad_() for w in init_sgc(4, 3, hidden, generator(2))]
    assert [tuple(w.shape) for w in layers] == ([(6, 5), (3, 7)] if hidden else [(3, 5)])
    h = with_ones(torch.relu(z @ layers[0].t())) if hidden else z
    loss = (F.cross_entropy(h @ layers[-1].t(), y, reduction="none") * weight).sum()
    wanted = torch.autograd.grad(loss, layers)
    with torch.no_grad():
        found = sgc_gradients(z, F.one_hot(y, 3).t(), weight, layers)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hidden", [0, 6])
def test_all_classes_at_once_equal_one_class_at_a_time(hidden):
    z, y = with_ones(rand(9, 4)), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    layers = [w.double() for w in init_sgc(4, 3, hidden, generator(2))]
    groups = Groups(members(y, 3), z.device, z.dtype)
    found = sgc_gradients(
        z[groups.index], torch.eye(3, dtype=torch.float64)[:, :, None], groups.weight, layers
    )
    for c in range(3):
        rows = z[y == c]
        target = F.one_hot(torch.full((len(rows),), c), 3).t()
        wanted = sgc_gradients(
            rows, target, torch.full((len(rows),), 1 / len(rows), dtype=torch.float64), layers
        )
        for a, b in zip(found, wanted):
            torch.testing.assert_close(a[c], b, rtol=0, atol=1e-12)


def test_matching_step_equals_per_class_forwards_and_double_backward():
    """Distance and its gradients for X' and A': closed form against two automatic differentiations."""
    task = tiny_task(dtype=torch.float64)
    graph, y = task.data.graph, torch.tensor([0, 0, 0, 1, 1, 2])
    x, adj = rand(6, 12), rand(6, 6, seed=1)
    layers = [w.double() for w in init_sgc(12, 3, 0, generator(2))]

    x1, adj1 = x.clone().requires_grad_(), adj.clone().requires_grad_()
    model = PlainSGC(layers[0], 2)
    original = (graph.x.to_dense(), graph.propagation().to_dense(), task.train.y, task.data.train)
    plain = plain_matching(model, x1, normalise_dense(adj1 + adj1.t()), y, *original)
    wanted = torch.autograd.grad(plain, (x1, adj1))

    x2, adj2 = x.clone().requires_grad_(), adj.clone().requires_grad_()
    p = normalise_dense(adj2 + adj2.t())
    groups, target = Groups(members(y, 3), x.device, x.dtype), torch.eye(3, dtype=torch.float64)[:, :, None]
    real_z, real_weight = ClassBatches(propagated(task.train, 2), task.train.y, 3, 256).draw(generator())
    real = sgc_gradients(real_z, target, real_weight, layers)
    synthetic = sgc_gradients(with_ones(p @ (p @ x2))[groups.index], target, groups.weight, layers)
    class_weight = torch.tensor([1, 2 / 3, 1 / 3], dtype=torch.float64)
    fast = matching_distance(synthetic, real, class_weight)
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-10)
    for a, b in zip(torch.autograd.grad(fast, (x2, adj2)), wanted):
        assert float(b.abs().max()) > 1e-4
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("hidden", [0, 6])
def test_distance_of_features_equals_automatic_differentiation(hidden):
    """Classes of different sizes in mixed order; value and derivative, within 1e-10 in float64."""
    y = torch.tensor([2, 0, 1, 0, 0, 2, 0, 1, 2])
    z, class_weight = with_ones(rand(9, 12)), torch.tensor([1, 0.5, 0.75], dtype=torch.float64)
    layers = [w.double() for w in init_sgc(12, 3, hidden, generator(2))]
    groups, target = Groups(members(y, 3), z.device, z.dtype), torch.eye(3, dtype=torch.float64)[:, :, None]
    real = sgc_gradients(with_ones(rand(3, 5, 12, seed=3)), target, rand(3, 5, seed=4), layers)
    own, other = z.clone().requires_grad_(), z.clone().requires_grad_()
    found = synthetic_distance(own, groups, real, layers, class_weight)
    wanted = matching_distance(
        sgc_gradients(other[groups.index], target, groups.weight, layers), real, class_weight
    )
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    a, b = (torch.autograd.grad(2 * v, t)[0][:, :-1] for v, t in ((found, own), (wanted, other)))
    assert float(b.abs().max()) > 1e-3
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_distance_is_taken_per_output_and_skips_biases():
    a, b = rand(2, 3, 5), rand(2, 3, 5, seed=1)
    wanted = sum(w * plain_distance([a[c, :, :-1].t()], [b[c, :, :-1].t()]) for c, w in enumerate((1.0, 0.5)))
    found = matching_distance([a], [b], torch.tensor([1.0, 0.5], dtype=torch.float64))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    a[..., -1] += 7
    assert matching_distance([a], [b], torch.tensor([1.0, 0.5], dtype=torch.float64)) == found


def test_small_classes_give_all_their_rows_and_large_ones_a_draw():
    z, y = rand(12, 2), torch.tensor([0] * 2 + [1] * 10)
    gathered, weight = ClassBatches(z, y, 2, 4).draw(generator())
    assert gathered.shape == (2, 4, 3)
    assert torch.equal(weight, torch.tensor([[0.5, 0.5, 0, 0], [0.25] * 4], dtype=torch.float64))
    drawn = gathered[1, :, :2]
    assert len({tuple(row) for row in drawn.tolist()} & {tuple(row) for row in z[2:].tolist()}) == 4
    batches = ClassBatches(z, y, 2, 4)
    source = generator()
    assert not torch.equal(batches.draw(source)[0], batches.draw(source)[0])
    assert batches.draw(generator())[0].equal(gathered)
