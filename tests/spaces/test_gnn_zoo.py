import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.func import functional_call, grad, jvp, vmap

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph
from hcdc.networks import ZooNetwork
from hcdc.spaces import GNNZoo, from_spec
from hcdc.spaces._gnn_zoo import FILTERS, FURTHER
from hcdc.testing import SpaceConformance

pyg = pytest.importorskip("torch_geometric.nn")
layers = pytest.importorskip("hcdc.networks._gnn_layers")

EVERY = FILTERS + FURTHER
SHARED = ("gcn", "sage-mean", "gat", "gin-eps", "gin-0", "sgc-2", "sgc-3", "cheb-2", "cheb-3", "transformer")
NODES, FEATURES, CLASSES = 11, 7, 5


def reference(name, inputs, outputs):
    """PyG's own layer."""

    def mlp():
        return torch.nn.Sequential(
            torch.nn.Linear(inputs, outputs), torch.nn.ReLU(), torch.nn.Linear(outputs, outputs)
        )

    makers = {
        "gcn": lambda: pyg.GCNConv(inputs, outputs),
        "sage-mean": lambda: pyg.SAGEConv(inputs, outputs, aggr="mean"),
        "sage-max": lambda: pyg.SAGEConv(inputs, outputs, aggr="max"),
        "gat": lambda: pyg.GATConv(inputs, outputs),
        "gin-eps": lambda: pyg.GINConv(mlp(), train_eps=True),
        "gin-0": lambda: pyg.GINConv(mlp()),
        "sgc-2": lambda: pyg.SGConv(inputs, outputs, K=2),
        "sgc-3": lambda: pyg.SGConv(inputs, outputs, K=3),
        "cheb-2": lambda: pyg.ChebConv(inputs, outputs, K=2),
        "cheb-3": lambda: pyg.ChebConv(inputs, outputs, K=3),
        "transformer": lambda: pyg.TransformerConv(inputs, outputs),
        "graph": lambda: pyg.GraphConv(inputs, outputs),
    }
    return makers[name]().double()


def structure(seed=0, weights="one", isolated=True):
    """A symmetric adjacency ``[n, n]``; the last node has no neighbour if ``isolated``."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.35, 1).astype(float)
    if weights == "integer":
        upper *= rng.integers(1, 4, upper.shape)
    if weights == "real":
        upper *= rng.uniform(0.1, 2, upper.shape)
    adj = upper + upper.T
    if isolated:
        adj[-1] = adj[:, -1] = 0
    return torch.from_numpy(adj)


def features(seed=0):
    """Features with zeros and both signs."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(NODES, FEATURES)) * (rng.random((NODES, FEATURES)) < 0.6))


def compress(matrix, symmetric=False):
    return SparseMatrix.from_scipy(sparse.csr_matrix(matrix.numpy()), torch.float64, symmetric)


def graph_of(adj, x, kind):
    """The same graph with sparse or dense adjacency and features, e.g. ``"sparse-dense"``."""
    first, second = kind.split("-")
    return Graph(
        compress(x) if second == "sparse" else x, compress(adj, True) if first == "sparse" else adj.clone()
    )


def parameters(network, seed=0, spread=0.3):
    """Random float64 parameters, biases and epsilon too."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: spread * torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in network.shapes().items()
    }


def one_layer(name):
    network = ZooNetwork((name,), (FEATURES, CLASSES))
    return network, parameters(network)


def pyg_output(name, params, x, *edges, layer=0, outputs=CLASSES):
    """What PyG's layer makes of the parameters of one of our layers."""
    prefix = f"layers.{layer}.{name}."
    state = {key.removeprefix(prefix): value for key, value in params.items() if key.startswith(prefix)}
    return functional_call(reference(name, x.shape[1], outputs), state, (x, *edges))


def edge_list(adj):
    return adj.nonzero().t()


NO_LAMBDA = torch.zeros(0, dtype=torch.float64)


class TestConformance(SpaceConformance):
    def make(self):
        return GNNZoo()


class TestFurtherConformance(SpaceConformance):
    def make(self):
        return GNNZoo(further=True, relax_width=64, relax_depth=3)


# --- layers against PyG's ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sparse-sparse", "sparse-dense", "dense-dense"])
@pytest.mark.parametrize("name", [*SHARED, "sage-max", "graph"])
def test_unit_weights_give_what_pyg_gives(name, kind):
    adj, x = structure(), features()
    network, params = one_layer(name)
    out = network.forward(params, NO_LAMBDA, graph_of(adj, x, kind))
    expected = pyg_output(name, params, x, edge_list(adj))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    assert expected.std() > 0.05


@pytest.mark.parametrize("kind", ["sparse-sparse", "sparse-dense", "dense-dense"])
def test_arma_is_what_pyg_gives_with_one_stack_and_one_layer(kind):
    adj, x = structure(), features()
    network, params = one_layer("arma")
    found = network.forward(params, NO_LAMBDA, graph_of(adj, x, kind))
    named = {key.removeprefix("layers.0.arma."): value for key, value in params.items()}
    conv = pyg.ARMAConv(FEATURES, CLASSES).double()
    with torch.no_grad():
        conv.init_weight.copy_(named["lin_rel.weight"].t()[None])
        conv.root_weight.copy_(named["lin_root.weight"].t()[None, None])
        conv.bias.copy_(named["lin_rel.bias"])
        wanted = conv(x, edge_list(adj))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert wanted.std() > 0.05


@pytest.mark.parametrize("kind", ["sparse-dense", "dense-dense"])
@pytest.mark.parametrize("name", SHARED)
def test_an_edge_of_weight_three_is_three_edges_of_pyg(name, kind):
    adj, x = structure(weights="integer"), features()
    assert (adj == 3).any()
    network, params = one_layer(name)
    copies = edge_list(adj).repeat_interleave(adj[adj > 0].long(), dim=1)
    out = network.forward(params, NO_LAMBDA, graph_of(adj, x, kind))
    torch.testing.assert_close(out, pyg_output(name, params, x, copies), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["gcn", "sgc-2", "sgc-3", "cheb-2", "cheb-3"])
def test_real_weights_give_what_pyg_gives_with_edge_weights(name):
    adj, x = structure(weights="real"), features()
    network, params = one_layer(name)
    expected = pyg_output(name, params, x, edge_list(adj), adj[adj > 0])
    torch.testing.assert_close(
        network.forward(params, NO_LAMBDA, Graph(x, adj)), expected, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("kind", ["sparse-sparse", "sparse-dense", "dense-dense"])
def test_sage_max_takes_the_largest_weighted_message(kind):
    adj, x = structure(weights="real"), features()
    network, params = one_layer("sage-max")
    rows = [(adj[i, :, None] * x)[adj[i] > 0] for i in range(NODES)]
    best = torch.stack([row.amax(0) if len(row) else torch.zeros(FEATURES).double() for row in rows])
    w, b, root = (
        params[f"layers.0.sage-max.{key}"] for key in ("lin_l.weight", "lin_l.bias", "lin_r.weight")
    )
    out = network.forward(params, NO_LAMBDA, graph_of(adj, x, kind))
    torch.testing.assert_close(out, best @ w.t() + b + x @ root.t(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", EVERY)
def test_sparse_and_dense_weighted_graphs_agree(name):
    """Zeros of the dense matrix are no edges; this runs a whole network of three layers."""
    adj, x = structure(weights="real"), features()
    network = ZooNetwork((name,), (FEATURES, 6, 4, CLASSES))
    params = parameters(network)
    full = network.forward(params, NO_LAMBDA, graph_of(adj, x, "dense-dense"))
    for kind in ("sparse-sparse", "sparse-dense"):
        out = network.forward(params, NO_LAMBDA, graph_of(adj, x, kind))
        torch.testing.assert_close(out, full, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["gat", "transformer"])
def test_attention_is_a_softmax_with_the_log_of_the_weight_added(name):
    adj, x = structure(weights="real", isolated=False), features()
    network, params = one_layer(name)
    p = {key.removeprefix(f"layers.0.{name}."): value for key, value in params.items()}
    if name == "gat":
        value, loops = x @ p["lin.weight"].t(), torch.eye(NODES).double()
        source, target = (value @ p[f"att_{side}"].flatten() for side in ("src", "dst"))
        scores = torch.nn.functional.leaky_relu(target[:, None] + source[None], 0.2)
        rest = p["bias"]
    else:
        query, key, value, rest = (
            x @ p[f"lin_{k}.weight"].t() + p[f"lin_{k}.bias"] for k in ("query", "key", "value", "skip")
        )
        scores, loops = query @ key.t() / CLASSES**0.5, torch.zeros(NODES, NODES).double()
    expected = (scores + (adj + loops).log()).softmax(1) @ value + rest
    out = network.forward(params, NO_LAMBDA, Graph(x, adj))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["sparse-dense", "dense-dense"])
def test_attention_survives_scores_that_overflow(kind):
    adj, x = structure(), features()
    network, params = one_layer("gat")
    out = network.forward({k: 1e3 * v for k, v in params.items()}, NO_LAMBDA, graph_of(adj, x, kind))
    assert out.isfinite().all()


@pytest.mark.parametrize("name", EVERY)
def test_no_adjacency_is_a_graph_without_edges(name):
    x = features()
    network = ZooNetwork((name,), (FEATURES, 6, CLASSES))
    params = parameters(network)
    empty = torch.zeros(NODES, NODES, dtype=torch.float64)
    alone, dense, edgeless = (
        network.forward(params, NO_LAMBDA, Graph(x, adj)) for adj in (None, empty, compress(empty, True))
    )
    assert alone.isfinite().all()
    torch.testing.assert_close(alone, dense, rtol=0, atol=1e-12)
    torch.testing.assert_close(alone, edgeless, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "diffuse"),
    [
        ("gdc-ppr", lambda p: 0.15 * torch.linalg.inv(torch.eye(len(p)).double() - 0.85 * p)),
        ("gdc-heat", lambda p: torch.linalg.matrix_exp(-5 * (torch.eye(len(p)).double() - p))),
    ],
)
def test_diffusions_are_the_dense_ones(name, diffuse):
    adj, x = structure(weights="real"), features()
    network, params = one_layer(name)
    w, b = params[f"layers.0.{name}.lin.weight"], params[f"layers.0.{name}.bias"]
    s = diffuse(Graph(x, adj).propagation())
    out = network.forward(params, NO_LAMBDA, Graph(x, adj))
    torch.testing.assert_close(out, s @ (x @ w.t()) + b, rtol=0, atol=2e-4)


def test_chebyshev_terms_are_summed_by_clenshaw():
    m = torch.from_numpy(np.random.default_rng(0).uniform(-0.3, 0.3, (4, 4)))
    eye = torch.eye(4, dtype=torch.float64)
    powers = [eye, m, 2 * m @ m - eye, 4 * m @ m @ m - 3 * m]
    for count in range(1, 5):
        terms = [torch.full((4, 2), float(k + 1)).double() for k in range(count)]
        expected = sum(t @ y for t, y in zip(powers, terms))
        torch.testing.assert_close(layers.chebyshev(lambda z: m @ z, terms), expected, rtol=0, atol=1e-12)


# --- derivatives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_logits_are_differentiable_in_dense_weights_and_features(name):
    others = 1 - torch.eye(NODES, dtype=torch.float64)
    adj, x = structure(weights="real") + 0.05, features(1)
    network, params = one_layer(name)

    def logits(adj, x):
        return network.forward(params, NO_LAMBDA, Graph(x, adj * others))

    assert torch.autograd.gradcheck(logits, (adj.requires_grad_(), x.requires_grad_()), atol=1e-6)
    assert grad(lambda a: logits(a, x).square().sum())(adj.detach()).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["sparse-sparse", "sparse-dense", "dense-dense"])
@pytest.mark.parametrize("name", [*EVERY, "relaxed"])
def test_hessian_products_are_differences_of_gradients(name, kind):
    """jvp of grad in parameters and lambda together, as the hypergradient takes it."""
    space = GNNZoo(further=True, relax_width=6, relax_depth=2)
    network = (
        space.network(FEATURES, CLASSES) if name == "relaxed" else ZooNetwork((name,), (FEATURES, 6, CLASSES))
    )
    graph = graph_of(structure(weights="real"), features(), kind)
    network.prepare(graph)
    params = parameters(network)
    lam = torch.rand(space.dimension, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def loss(params, lam):
        return network.forward(params, lam, graph).logsumexp(1).square().sum()

    tangent = (parameters(network, seed=9), torch.linspace(-1, 1, space.dimension, dtype=torch.float64))
    both = grad(loss, argnums=(0, 1))
    _, product = jvp(both, (params, lam), tangent)

    def moved(h):
        return both({k: v + h * tangent[0][k] for k, v in params.items()}, lam + h * tangent[1])

    h = 1e-6
    ahead, behind = moved(h), moved(-h)
    for key in params:
        torch.testing.assert_close(
            product[0][key], (ahead[0][key] - behind[0][key]) / (2 * h), rtol=1e-5, atol=1e-5
        )
    torch.testing.assert_close(product[1], (ahead[1] - behind[1]) / (2 * h), rtol=1e-5, atol=1e-5)
    size = len(space.filters) if name == "relaxed" else 0
    assert (product[1][size:] == 0).all()
    assert (product[1][:size] != 0).all()


@pytest.mark.parametrize("kind", ["sparse-sparse", "dense-dense"])
def test_batches_over_parameters_and_lambda_are_their_rows(kind):
    space = GNNZoo(further=True, relax_width=6, relax_depth=2)
    network = space.network(FEATURES, CLASSES)
    graph = graph_of(structure(weights="real"), features(), kind)
    network.prepare(graph)
    rows = [parameters(network, seed=seed) for seed in range(3)]
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    lam = torch.rand(3, space.dimension, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def gradient(params, lam):
        return grad(lambda p: network.forward(p, lam, graph).square().sum())(params)

    batched = vmap(gradient)(batch, lam)
    for i, row in enumerate(rows):
        expected = gradient(row, lam[i])
        for key in row:
            torch.testing.assert_close(batched[key][i], expected[key], rtol=1e-8, atol=1e-10)


# --- the relaxed network ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sparse-sparse", "dense-dense"])
def test_the_relaxed_network_at_a_vertex_is_the_candidate(kind):
    space = GNNZoo(further=True)
    graph = graph_of(structure(weights="real"), features(), kind)
    relaxed = space.network(FEATURES, CLASSES)
    params = parameters(relaxed, spread=0.1)
    for config in space.candidates():
        if (config["width"], config["depth"]) != (space.relax_width, space.relax_depth):
            continue
        single = space.network(FEATURES, CLASSES, config)
        own = {key: params[key] for key in single.shapes()}
        lam = space.encode(config)
        expected = single.forward(own, lam, graph)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(relaxed.forward(params, lam, graph), expected, rtol=0, atol=1e-10)


def test_a_layer_of_the_relaxed_network_is_the_weighted_sum_of_its_filters():
    space = GNNZoo(relax_depth=1)
    graph = graph_of(structure(), features(), "sparse-sparse")
    network = space.network(FEATURES, CLASSES)
    params = parameters(network)
    lam = space.project(torch.linspace(0, 0.3, space.dimension, dtype=torch.float64))
    parts = [
        ZooNetwork((name,), network.sizes).forward(
            {k: v for k, v in params.items() if k.startswith(f"layers.0.{name}.")}, lam, graph
        )
        for name in FILTERS
    ]
    mixed = sum(weight * part for weight, part in zip(lam, parts))
    torch.testing.assert_close(network.forward(params, lam, graph), mixed, rtol=0, atol=1e-10)


# --- SAGE-Max's first layer -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sparse-sparse", "sparse-dense", "dense-dense"])
@pytest.mark.parametrize("block", [1, 3 * FEATURES, 2**24])
def test_kept_maxima_are_the_plain_ones(kind, block, monkeypatch):
    monkeypatch.setattr(layers, "BLOCK", block)
    graph = graph_of(structure(weights="real"), features(), kind)
    expected = layers.maximum(graph_of(structure(weights="real"), features(), "dense-dense"), features())
    layers.prepare_maximum(graph)
    kept = layers.maximum(graph, graph.x)
    assert kept is layers.maximum(graph, graph.x)
    torch.testing.assert_close(kept, expected, rtol=0, atol=1e-12)


def test_maxima_of_sparse_features_stay_sparse_where_it_pays(monkeypatch):
    monkeypatch.setattr(layers, "SPARSE_BELOW", 1.0)
    adj, x = structure(weights="real"), features()
    kept = layers.maximum(graph_of(adj, x, "sparse-sparse"), compress(x))
    assert isinstance(kept, SparseMatrix)
    torch.testing.assert_close(kept.to_dense(), layers.maximum(Graph(x, adj), x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["sparse-dense", "dense-dense"])
def test_kept_maxima_are_not_used_for_other_features_or_weights(kind):
    network, params = one_layer("sage-max")
    graph = graph_of(structure(weights="real"), features(), kind)
    network.prepare(graph)
    fresh = features(1)
    expected = network.forward(params, NO_LAMBDA, graph_of(structure(weights="real"), fresh, kind))
    torch.testing.assert_close(network.forward(params, NO_LAMBDA, graph.with_x(fresh)), expected)
    graph.x.copy_(fresh)
    torch.testing.assert_close(network.forward(params, NO_LAMBDA, graph), expected)
    if kind == "dense-dense":
        network.prepare(graph)
        graph.adj.mul_(2)
        twice = network.forward(params, NO_LAMBDA, Graph(fresh, 2 * structure(weights="real")))
        torch.testing.assert_close(network.forward(params, NO_LAMBDA, graph), twice)


def test_learned_features_are_not_kept():
    network, params = one_layer("sage-max")
    x = features().requires_grad_()
    graph = Graph(x, structure())
    network.prepare(graph)
    network.forward(params, NO_LAMBDA, graph).sum().backward()
    plain = grad(lambda x: network.forward(params, NO_LAMBDA, Graph(x, structure())).sum())(features())
    torch.testing.assert_close(x.grad, plain)


# --- the space --------------------------------------------------------------------------------------------


def test_the_forty_candidates_and_the_further_ones():
    forty, more = GNNZoo().candidates(), GNNZoo(further=True).candidates()
    assert len(forty) == 40
    assert more[:40] == forty
    assert forty[:4] == [{"filter": "gcn", "width": w, "depth": d} for w in (128, 256) for d in (2, 4)]
    assert {c["filter"] for c in more[40:]} == set(FURTHER)
    assert GNNZoo().dimension == 12


def test_every_filter_has_one_family():
    space = GNNZoo(further=True)
    for name in EVERY:
        described = space.features({"filter": name, "width": 256, "depth": 2})
        assert (
            described[: space.dimension] == space.encode({"filter": name, "width": 256, "depth": 2}).tolist()
        )
        assert sum(described[space.dimension :]) == 1
    near = [
        space.features({"filter": name, "width": 128, "depth": 2}) for name in ("gin-0", "gin-eps", "gcn")
    ]
    assert near[0][-5:] == near[1][-5:] != near[2][-5:]


def test_parameter_counts():
    space = GNNZoo()

    def count(name, width=128, depth=2):
        return space.parameter_count({"filter": name, "width": width, "depth": depth}, 1433, 7)

    gcn = 1433 * 128 + 128 + 128 * 7 + 7
    assert count("gcn") == count("sgc-2") == count("sgc-3") == gcn
    assert count("sage-mean") == count("sage-max") == gcn + 1433 * 128 + 128 * 7
    assert count("gat") == gcn + 2 * 128 + 2 * 7
    assert count("gin-0") == gcn + 128 * 128 + 128 + 7 * 7 + 7
    assert count("gin-eps") == count("gin-0") + 2
    assert count("cheb-3") == gcn + 2 * (1433 * 128 + 128 * 7)
    assert count("gcn", 256, 4) == 1433 * 256 + 256 + 2 * (256 * 256 + 256) + 256 * 7 + 7
    network = space.network(1433, 7, {"filter": "gat", "width": 128, "depth": 2})
    assert sum(p.numel() for p in network.init(torch.Generator()).values()) == count("gat")


@pytest.mark.parametrize("name", [*EVERY, "relaxed"])
def test_parameters_come_from_the_generator_alone(name):
    space = GNNZoo(further=True, relax_width=20)
    config = None if name == "relaxed" else {"filter": name, "width": 128, "depth": 2}
    before = torch.random.get_rng_state()
    first, again, other = (
        space.network(30, 4, config).init(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(before, torch.random.get_rng_state())
    for key, value in first.items():
        assert value.dtype == torch.float32
        assert torch.equal(value, again[key])
        if value.dim() < 2:
            assert (value == 0).all()
        else:
            bound = (6 / (value.shape[-2] + value.shape[-1])) ** 0.5
            assert value.abs().max() <= bound
            assert value.abs().max() > 0.3 * bound
            assert not torch.equal(value, other[key])


def test_spec_keeps_the_settings():
    space = GNNZoo(further=True, relax_width=64, relax_depth=4)
    assert from_spec(space.spec()) == space


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"filter": "gnc", "width": 128, "depth": 2}, "did you mean 'gcn'"),
        ({"filter": "transformer", "width": 128, "depth": 2}, "filter 'transformer' is not known"),
        ({"filter": "gcn", "width": 100, "depth": 2}, "width 100"),
        ({"filter": "gcn", "width": 128, "depth": 3}, "depth 3"),
        ({"filter": "gcn", "width": 128}, "the keys filter, width, depth; 'depth' is missing"),
        (
            {"filter": "gcn", "width": 128, "depth": 2, "heads": 8},
            "the keys filter, width, depth; 'heads' is not one",
        ),
    ],
)
def test_other_configurations_are_refused(config, words):
    with pytest.raises(InputError, match=words):
        GNNZoo().encode(config)
    with pytest.raises(InputError, match=words):
        GNNZoo().network(7, 5, config)


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="got 0 and 2"):
        GNNZoo(relax_width=0)
    with pytest.raises(InputError, match="must be 12"):
        GNNZoo().decode(torch.zeros(10))


def test_without_pyg_the_space_loads_and_a_network_says_what_to_install():
    program = """
import sys
sys.modules["torch_geometric"] = None
import torch
from hcdc.core.errors import InputError
from hcdc.spaces._gnn_zoo import GNNZoo
space = GNNZoo()
network = space.network(7, 5, space.decode(space.encode(space.candidates()[3])))
try:
    network.init(torch.Generator())
except InputError as error:
    assert "hcdc[graph]" in str(error), error
else:
    raise AssertionError("no error")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.data
@pytest.mark.parametrize("name", [*SHARED, "sage-max"])
def test_two_layers_on_cora_are_pygs(name):
    root = os.environ.get("HCDC_DATA")
    if not root:
        pytest.skip("HCDC_DATA is not set")
    data = pytest.importorskip("torch_geometric.datasets").Planetoid(f"{root}/Planetoid", "Cora")[0]
    ones = np.ones(data.num_edges)
    adj = sparse.csr_matrix((ones, data.edge_index.numpy()), (data.num_nodes, data.num_nodes))
    x = data.x.double()
    graph = Graph(compress(x), SparseMatrix.from_scipy(adj, torch.float64, symmetric=True))
    network = ZooNetwork((name,), (x.shape[1], 16, 7))
    network.prepare(graph)
    params = parameters(network)
    hidden = pyg_output(name, params, x, data.edge_index, outputs=16).relu()
    expected = pyg_output(name, params, hidden, data.edge_index, layer=1, outputs=7)
    torch.testing.assert_close(network.forward(params, NO_LAMBDA, graph), expected, rtol=1e-9, atol=1e-9)
