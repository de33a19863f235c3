import dataclasses

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.func import grad, jacrev, vmap

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph
from hcdc.networks import BASES, FilterNetwork
from hcdc.spaces import PolynomialFilter, from_spec
from hcdc.testing import SpaceConformance


class TestPowers(SpaceConformance):
    def make(self):
        return PolynomialFilter(order=3)


class TestSeveralFiltersInANarrowBox(SpaceConformance):
    def make(self):
        return PolynomialFilter(order=2, basis="chebyshev", filters=2, layers=3, width=8, bound=0.1)


class TestFigure(SpaceConformance):
    def make(self):
        return PolynomialFilter(basis="figure")


N, FEATURES, CLASSES = 9, 5, 3


def random_graph(kind: str, seed: int = 0) -> Graph:
    """The same graph dense, sparse or with sparse features, or without edges; one node is isolated."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((N, N)) * (rng.random((N, N)) < 0.4), 1)
    upper[0] = 0
    adj, x = upper + upper.T, rng.standard_normal((N, FEATURES)) * (rng.random((N, FEATURES)) < 0.6)
    if kind == "identity":
        return Graph(torch.from_numpy(x), None)
    if kind == "dense":
        return Graph(torch.from_numpy(x), torch.from_numpy(adj))
    held = SparseMatrix.from_scipy(sparse.csr_matrix(adj), torch.float64, symmetric=True)
    if kind == "sparse":
        return Graph(torch.from_numpy(x), held)
    return Graph(SparseMatrix.from_scipy(sparse.csr_matrix(x), torch.float64), held)


def basis_matrices(graph: Graph, basis: str, order: int) -> list[torch.Tensor]:
    """M_k, written out as dense matrices, with the fixed part of the figure's basis first."""
    eye = torch.eye(N, dtype=torch.float64)
    adj = torch.zeros(N, N, dtype=torch.float64) if graph.adj is None else graph.adj
    adj = adj.to_dense()

    def normalised(a):
        root = torch.where(a.sum(1) > 0, a.sum(1), torch.inf) ** -0.5
        return torch.diag(root) @ a @ torch.diag(root)

    p, laplacian = normalised(adj + eye), eye - normalised(adj)
    if basis == "powers":
        return [torch.linalg.matrix_power(p, k) for k in range(order + 1)]
    if basis == "laplacian":
        return [torch.linalg.matrix_power(laplacian, k) for k in range(order + 1)]
    if basis == "figure":
        top = 2.0 if graph.adj is None else float(torch.linalg.eigvalsh(laplacian)[-1])
        return [laplacian, 2 / top * laplacian - eye]
    # T_k(M) = cos(k arccos M) through the eigenvalues of the scaled Laplacian
    values, vectors = torch.linalg.eigh(laplacian - eye)
    angles = torch.arccos(values.clamp(-1, 1))
    return [vectors @ torch.diag(torch.cos(k * angles)) @ vectors.t() for k in range(order + 1)]


def oracle(params, lam, graph, network: FilterNetwork) -> torch.Tensor:
    """relu(sum_r C_r X W_r) layer by layer with the filters C_r as explicit dense matrices."""
    matrices = basis_matrices(graph, network.basis, network.order)
    coefficients = lam.reshape(network.filters, -1)
    filters = [sum(c * m for c, m in zip(row, matrices)) for row in coefficients]
    if network.basis == "figure":
        filters = [f + torch.eye(N, dtype=torch.float64) for f in filters]
    hidden = graph.x.to_dense()
    for layer in range(network.layers):
        hidden = sum(f @ hidden @ params[f"W{layer}_{r}"] for r, f in enumerate(filters))
        hidden = hidden.relu() if layer < network.layers - 1 else hidden
    return hidden


def doubled(params):
    return {name: tensor.double() for name, tensor in params.items()}


@pytest.mark.parametrize("basis", sorted(BASES))
@pytest.mark.parametrize("filters", [1, 3])
@pytest.mark.parametrize(("order", "layers"), [(1, 1), (3, 2), (4, 3)])
@pytest.mark.parametrize("kind", ["dense", "sparse", "sparse features", "identity"])
def test_forward_is_the_polynomial(basis, filters, order, layers, kind):
    space = PolynomialFilter(order=order, basis=basis, filters=filters, layers=layers, width=6)
    network, graph = space.network(FEATURES, CLASSES), random_graph(kind)
    network.prepare(graph)
    params = doubled(network.init(torch.Generator().manual_seed(1)))
    lam = torch.rand(space.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 2 - 1
    logits = network.forward(params, lam, graph)
    torch.testing.assert_close(logits, oracle(params, lam, graph, network), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("basis", sorted(BASES))
def test_derivatives_in_lambda_and_weights_agree_on_sparse_and_dense_graphs_in_a_batch(basis):
    space = PolynomialFilter(order=3, basis=basis, filters=2, width=4)
    network = space.network(FEATURES, CLASSES)
    drawn = [doubled(network.init(torch.Generator().manual_seed(k))) for k in range(3)]
    params = {name: torch.stack([p[name] for p in drawn]) for name in drawn[0]}
    lam = torch.randn(3, space.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def derivatives(graph):
        def loss(p, l):
            return network.forward(p, l, graph).logsumexp(1).sum()

        network.prepare(graph)
        return vmap(grad(loss, argnums=(0, 1)))(params, lam)

    sparse_params, sparse_lam = derivatives(random_graph("sparse features"))
    dense_params, dense_lam = derivatives(random_graph("dense"))
    torch.testing.assert_close(sparse_params, dense_params, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(sparse_lam, dense_lam, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("basis", sorted(BASES))
def test_one_layer_is_linear_in_lambda(basis):
    space = PolynomialFilter(order=3, basis=basis, layers=1)
    network, graph = space.network(FEATURES, CLASSES), random_graph("sparse")
    network.prepare(graph)
    params = doubled(network.init(torch.Generator().manual_seed(1)))
    slope = jacrev(lambda l: network.forward(params, l, graph))(
        torch.zeros(space.dimension, dtype=torch.float64)
    )
    terms = [m @ graph.x @ params["W0_0"] for m in basis_matrices(graph, basis, 3)]
    torch.testing.assert_close(slope, torch.stack(terms, -1), rtol=1e-9, atol=1e-10)


def test_initial_weights():
    network = PolynomialFilter(width=64, filters=2, layers=3).network(100, 7)
    params = network.init(torch.Generator().manual_seed(0))
    shapes = {name: tuple(tensor.shape) for name, tensor in params.items()}
    assert shapes == {f"W{l}_{r}": s for l, s in enumerate([(100, 64), (64, 64), (64, 7)]) for r in range(2)}
    for tensor in params.values():
        bound = (6 / sum(tensor.shape)) ** 0.5
        assert float(tensor.abs().max()) <= bound
        assert float(tensor.std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    again = network.init(torch.Generator().manual_seed(0))
    assert all(torch.equal(again[name], params[name]) for name in params)


def test_parameter_count_is_that_of_the_network():
    space = PolynomialFilter(width=64, filters=2, layers=2)
    assert space.parameter_count(space.sample(1, np.random.default_rng(0))[0], 100, 7) == 2 * (
        100 * 64 + 64 * 7
    )


@pytest.mark.parametrize(
    ("settings", "dimension"),
    [({}, 4), ({"order": 5, "filters": 3}, 18), ({"basis": "figure", "order": 7, "filters": 2}, 4)],
)
def test_dimension(settings, dimension):
    assert PolynomialFilter(**settings).dimension == dimension


def test_samples_fill_the_box():
    space = PolynomialFilter(bound=0.5)
    lam = torch.stack([space.encode(c) for c in space.sample(2000, np.random.default_rng(0))])
    assert float(lam.abs().max()) <= 0.5
    torch.testing.assert_close(lam.mean(0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=0.03)
    assert lam.std(0).tolist() == pytest.approx([0.5 / 3**0.5] * 4, rel=0.05)


def test_spec_holds_every_setting():
    space = PolynomialFilter(order=2, basis="laplacian", filters=2, layers=3, width=16, bound=2.0)
    assert set(space.spec()) == {"name"} | {f.name for f in dataclasses.fields(space)}
    assert from_spec(space.spec()) == space


def test_a_single_precision_lambda_decodes_to_a_configuration_of_the_box():
    space = PolynomialFilter(bound=0.1)
    config = space.decode(torch.tensor([0.1, -0.1, 0.7, 0.05]))
    assert space.encode(config).abs().max() <= 0.1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"basis": "power"}, "basis 'power' is not known; did you mean 'powers'?"),
        ({"order": 0}, "order, filters, layers and width of at least 1"),
        ({"bound": 0.0}, "bound > 0"),
        ({"bound": float("nan")}, "bound > 0"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InputError) as caught:
        PolynomialFilter(**settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lambda_0": 1.5}, "lambda_0: 1.5 lies outside [-1, 1]"),
        ({"lambda_1": float("nan")}, "lambda_1: nan lies outside [-1, 1]"),
        ({"lambda_1": "0.5"}, "lambda_1: '0.5' is not a number"),
        ({"width": 64}, "has the keys lambda_0, lambda_1; 'width' is not one of them"),
    ],
)
def test_bad_configurations_are_refused(change, words):
    with pytest.raises(InputError) as caught:
        PolynomialFilter(order=1).encode({"lambda_0": 0.0, "lambda_1": 0.5, **change})
    assert words in str(caught.value)


def test_a_lambda_of_another_length_is_refused():
    with pytest.raises(InputError, match="last dimension must be 4"):
        PolynomialFilter().project(torch.zeros(3))
