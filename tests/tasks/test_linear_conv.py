import numpy as np
import pytest
import torch
from scipy import sparse
from torch.func import grad, jacrev, vmap

import hcdc
from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, Nodes
from hcdc.hypergrad import conjugate_gradient, exact, hypergradient
from hcdc.spaces import Box
from hcdc.tasks import LinearConvTask
from hcdc.testing import TaskConformance

N, D, K = 12, 3, 2


def adjacency():
    a = (np.random.default_rng(0).random((N, N)) < 0.3).astype(float)
    a = np.triu(a, 1)
    return a + a.T


def labelled(form, sparse_graph=False):
    """Training and validation nodes of one graph (GNN), or two signals (CNN)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randn(N, generator=generator, dtype=torch.float64)
    if form == "cnn":
        other = torch.randn(N, D, generator=generator, dtype=torch.float64)
        return Nodes(Graph(x, None), y), Nodes(Graph(other, None), y.flip(0))
    a = sparse.csr_matrix(adjacency())
    matrix = (
        SparseMatrix.from_scipy(a, torch.float64, symmetric=True)
        if sparse_graph
        else torch.tensor(adjacency())
    )
    graph = Graph(x, matrix)
    train, val = torch.tensor([0, 2, 3, 5, 8, 9, 11]), torch.tensor([1, 4, 6])
    return Nodes(graph, y[train], train), Nodes(graph, y[val], val)


def make(form, sparse_graph=False, **settings):
    task = LinearConvTask(*labelled(form, sparse_graph), order=K, form=form, **settings)
    task.prepare(task.train)
    task.prepare(task.val)
    return task


def point(task, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lam = 2 * torch.rand(task.dimension, generator=generator, dtype=torch.float64) - 1
    return task.init(generator), lam


class TestConformanceOfGraphs(TaskConformance):
    def make(self):
        x, y, a = (torch.randn(30, k, generator=torch.Generator().manual_seed(k)) for k in (D, 1, 30))
        graph = Graph(x, ((a + a.t()) > 1.5).float().fill_diagonal_(0))
        parts = [Nodes(graph, y[some, 0], some) for some in torch.arange(30).split([12, 10, 8])]
        task = LinearConvTask(*parts, order=K, ridge=0.1)
        return task, task.space()


class TestConformanceOfSignals(TaskConformance):
    """Without a test set."""

    def make(self):
        task = make("cnn", learn_alpha=True)
        return task, task.space()


def dense_filter(form, lam):
    """C as a matrix, written down directly."""
    if form == "cnn":
        shift = np.zeros((N, N))
        for i in range(N):
            shift[i, (i - 1) % N] = 1
        return sum(
            l * np.linalg.matrix_power(shift if k >= 0 else shift.T, abs(k))
            for k, l in zip(range(-K, K + 1), lam)
        )
    loops = adjacency() + np.eye(N)
    scale = np.diag(loops.sum(1) ** -0.5)
    p = scale @ loops @ scale
    return sum(l * np.linalg.matrix_power(p, k) for k, l in enumerate(lam))


FORMS = [("gnn", False), ("gnn", True), ("cnn", False)]


@pytest.mark.parametrize(("form", "sparse_graph"), FORMS)
@pytest.mark.parametrize("learn_alpha", [False, True])
def test_the_loss_against_the_dense_convolution(form, sparse_graph, learn_alpha):
    task = make(form, sparse_graph, learn_alpha=learn_alpha, ridge=0.1)
    params, lam = point(task)
    filters = lam * params["alpha"] if learn_alpha else lam
    w, rows = params["W"].numpy(), task.train.positions().numpy()
    outputs = (dense_filter(form, filters.numpy()) @ task.train.graph.x.numpy() @ w)[rows]
    np.testing.assert_allclose(
        task.predict(params, lam, task.train)[:, 0].numpy(), outputs, rtol=1e-12, atol=1e-13
    )
    loss = ((outputs - task.train.y.numpy()) ** 2).sum()
    strength = 0.1 * sum(float((value**2).sum()) for value in params.values())
    assert float(task.val_loss(params, lam, task.train)) == pytest.approx(loss)
    assert float(task.train_loss(params, lam, task.train)) == pytest.approx(loss + strength)


@pytest.mark.parametrize(("form", "sparse_graph"), FORMS)
def test_the_closed_form_is_the_optimum(form, sparse_graph):
    task = make(form, sparse_graph)
    _, lam = point(task)
    params = task.solve(lam, task.train)
    assert float(grad(task.train_loss)(params, lam, task.train)["W"].abs().max()) < 1e-10
    z = dense_filter(form, lam.numpy())[task.train.positions().numpy()] @ task.train.graph.x.numpy()
    least_squares = np.linalg.lstsq(z, task.train.y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(params["W"].numpy(), least_squares, rtol=1e-3)


@pytest.mark.parametrize(("form", "sparse_graph"), FORMS)
def test_the_hypergradient_three_ways(form, sparse_graph):
    task = make(form, sparse_graph)
    _, lam = point(task)

    def outer(at):
        return task.val_loss(task.solve(at, task.train), at, task.val)

    through = grad(outer)(lam)
    steps = 1e-5 * torch.eye(task.dimension, dtype=torch.float64)
    differences = torch.stack([(outer(lam + row) - outer(lam - row)) / 2e-5 for row in steps])
    torch.testing.assert_close(through, differences, rtol=1e-6, atol=1e-7)
    params = task.solve(lam, task.train)
    for solver in (exact(), conjugate_gradient(iterations=20, tolerance=1e-13)):
        implicit = hypergradient(task, params, lam, task.train, task.val, solver)
        torch.testing.assert_close(implicit.total, through, rtol=1e-7, atol=1e-8)
        assert float(implicit.direct.abs().max()) > 1e-3


@pytest.mark.parametrize(("form", "sparse_graph"), FORMS)
@pytest.mark.parametrize("learn_alpha", [False, True])
def test_a_batch_is_its_members(form, sparse_graph, learn_alpha):
    task = make(form, sparse_graph, learn_alpha=learn_alpha)
    points = [point(task, seed) for seed in range(4)]
    params = {name: torch.stack([p[name] for p, _ in points]) for name in points[0][0]}
    lams = torch.stack([lam for _, lam in points])
    slopes = vmap(grad(task.train_loss, argnums=(0, 1)), in_dims=(0, 0, None))(params, lams, task.train)
    for i, (p, lam) in enumerate(points):
        of_params, of_lam = grad(task.train_loss, argnums=(0, 1))(p, lam, task.train)
        torch.testing.assert_close(slopes[1][i], of_lam)
        for name in p:
            torch.testing.assert_close(slopes[0][name][i], of_params[name])
    if not learn_alpha:
        solved = vmap(task.solve, in_dims=(0, None))(lams, task.train)["W"]
        torch.testing.assert_close(solved, torch.stack([task.solve(lam, task.train)["W"] for lam in lams]))


def test_the_gradient_with_alpha_against_finite_differences():
    task = make("cnn", learn_alpha=True, ridge=0.1)
    params, lam = point(task)
    inputs = tuple(t.clone().requires_grad_() for t in (params["W"], params["alpha"], lam))

    def loss(w, alpha, at):
        return task.train_loss({"W": w, "alpha": alpha}, at, task.train)

    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


def test_zeros_in_lambda_give_the_smaller_kernel():
    """The 1D-CNN of kernel size 2K+1 contains that of size 2K'+1 for K' < K."""
    large, small = make("cnn"), LinearConvTask(*labelled("cnn"), order=1, form="cnn")
    lam = torch.tensor([0.0, 0.4, -0.7, 0.2, 0.0], dtype=torch.float64)
    torch.testing.assert_close(large.solve(lam, large.train)["W"], small.solve(lam[1:4], small.train)["W"])


def test_the_shift_moves_a_signal_by_one():
    task = LinearConvTask(*labelled("cnn"), order=1, form="cnn")
    x = task.train.graph.x
    for lam, moved in (([1.0, 0, 0], -1), ([0, 1.0, 0], 0), ([0, 0, 1.0], 1)):
        found = task.convolve(torch.tensor(lam, dtype=torch.float64), task.train.graph, x)
        assert torch.equal(found, x.roll(moved, 0))


def test_weights_count_as_repeats():
    task = make("gnn", ridge=0.1)
    params, lam = point(task)
    weight = torch.ones(len(task.train), dtype=torch.float64)
    weight[2] = 3
    train = task.train
    weighted = Nodes(train.graph, train.y, train.index, weight)
    repeat = torch.tensor([0, 1, 2, 2, 2, 3, 4, 5, 6])
    repeated = Nodes(train.graph, train.y[repeat], train.index[repeat])
    torch.testing.assert_close(task.val_loss(params, lam, weighted), task.val_loss(params, lam, repeated))
    torch.testing.assert_close(task.solve(lam, weighted)["W"], task.solve(lam, repeated)["W"])


@pytest.mark.parametrize("sparse_graph", [False, True])
def test_samples_of_a_graph_are_induced_subgraphs(sparse_graph):
    task = make("gnn", sparse_graph)
    small = task.sample("train", 4, seed=0)
    places = [(task.train.graph.x == row).all(1).nonzero().item() for row in small.graph.x]
    assert len(set(places)) == 4
    assert set(places) <= set(task.train.index.tolist())
    np.testing.assert_array_equal(small.graph.adj.numpy(), adjacency()[np.ix_(places, places)])
    own = [task.train.index.tolist().index(place) for place in places]
    assert torch.equal(small.y, task.train.y[own])
    assert torch.equal(task.sample("train", 4, seed=0).y, small.y)


def test_samples_of_a_signal_are_consecutive():
    task = make("cnn")
    starts = set()
    for seed in range(30):
        small = task.sample("val", 5, seed=seed)
        places = [(task.val.graph.x == row).all(1).nonzero().item() for row in small.graph.x]
        assert places == [(places[0] + i) % N for i in range(5)]
        assert torch.equal(small.y, task.val.y[places])
        starts.add(places[0])
    assert len(starts) > 5


def test_learnable_tensors_and_moving():
    task = make("gnn").to("cpu")
    small = task.sample("train", 4, seed=0)
    x = task.tensors(small)["x"]
    params, lam = point(task)

    def loss(features):
        return task.val_loss(params, lam, task.replace(small, {"x": features}))

    moved = x + 0.1
    direct = Nodes(Graph(moved, small.graph.adj), small.y)
    torch.testing.assert_close(loss(moved), task.val_loss(params, lam, direct))
    assert float(jacrev(loss)(x).abs().max()) > 0


def test_the_space_names_the_terms():
    assert make("gnn").space().names == ("lambda_0", "lambda_1", "lambda_2")
    cnn = make("cnn")
    assert cnn.space().names == ("lambda_-2", "lambda_-1", "lambda_0", "lambda_1", "lambda_2")
    assert cnn.bind(cnn.space()) is cnn
    with pytest.raises(InputError, match="has 1 dimensions, this convolution 5"):
        cnn.bind(Box(["a"], 0, 1))


def test_the_spec_and_the_nodes_make_the_task_again():
    task = make("gnn", ridge=0.1)
    again = LinearConvTask.from_spec(task.spec(), (task.train, task.val))
    assert again.spec() == task.spec() == {**task.spec(), "order": K, "form": "gnn", "ridge": 0.1}
    assert again.fingerprint() == task.fingerprint()
    with pytest.raises(InputError, match="part 'test': this linear-conv task has no test set"):
        task.part("test")


def test_a_copy_is_not_judged_by_other_data():
    task, other = make("cnn"), LinearConvTask(*reversed(labelled("cnn")), order=K, form="cnn")
    small = hcdc.condense(task, task.space(), "random", train_size=4)
    with pytest.raises(InputError, match=f"'memory' has fingerprint {other.fingerprint()}"):
        hcdc.evaluate(small, task=other)


def test_bad_input_is_refused():
    train, val = labelled("gnn")
    with pytest.raises(InputError, match="form 'gcn' is not known; did you mean 'gnn'"):
        LinearConvTask(train, val, form="gcn")
    with pytest.raises(InputError, match="at least 0, got -1"):
        LinearConvTask(train, val, order=-1)
    with pytest.raises(InputError, match=r"val_nodes: labels are torch.int64"):
        LinearConvTask(train, Nodes(val.graph, val.y.long(), val.index))
    task = make("gnn")
    with pytest.raises(InputError, match=r"lam has shape \(1,\); this convolution needs \(3,\)"):
        task.train_loss(point(task)[0], torch.ones(1), task.train)
    with pytest.raises(InputError, match="train_size 8: there are 7 labelled examples"):
        task.sample("train", 8, seed=0)
    with pytest.raises(InputError, match="part 'test' is not known"):
        task.sample("test", 2, seed=0)
    with pytest.raises(InputError, match="no closed form"):
        make("gnn", learn_alpha=True).solve(torch.ones(3), task.train)
