import itertools
import math

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.func import grad, vmap
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData
from hcdc.networks import ATTENTIONS, GraphNASLayer, GraphNASNetwork
from hcdc.spaces import GraphNAS
from hcdc.tasks import GraphTask
from hcdc.testing import SpaceConformance
from hcdc.training import Job, score

NODES, FEATURES, CLASSES = 7, 5, 3


class TestGraphNAS(SpaceConformance):
    def make(self):
        return GraphNAS()


def test_the_space_has_the_networks_of_the_paper():
    assert math.prod(GraphNAS().decisions()) == 12_644_352
    assert GraphNAS().candidates() is None


def test_there_is_no_relaxed_network():
    with pytest.raises(InputError, match="no relaxed network"):
        GraphNAS().network(3, 2)


def adjacency(seed=0, whole=True):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.5, 1).astype(float)
    if not whole:
        upper *= rng.uniform(0.2, 2, upper.shape)
    return torch.from_numpy(upper + upper.T)


def drawn(network, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {k: torch.randn(s, generator=generator, dtype=torch.float64) for k, s in network.shapes().items()}


def features(seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(NODES, FEATURES)))


def reference_score(attention, p, i, j, head):
    """The logit of edge j -> i from the definitions, for vectors i and j of one head."""
    left, right = p.get("left"), p.get("right")
    if attention == "linear":
        return torch.tanh(j @ right[head])
    if attention == "cos":
        return (i * left[head]) @ (j * right[head])
    if attention == "generalized_linear":
        return (torch.tanh(i * left[head] + j * right[head]) @ p["general"]).squeeze()
    found = F.leaky_relu(i @ left[head] + j @ right[head], 0.2)
    if attention == "gat_sym":
        found = found + F.leaky_relu(j @ left[head] + i @ right[head], 0.2)
    return found


def reference(layer, p, adj, x):
    """One last layer, node by node and message by message."""
    adj = adj + torch.eye(NODES, dtype=adj.dtype)
    degree, out = adj.sum(1), torch.zeros(NODES, layer.hidden, dtype=x.dtype)
    for i, head in itertools.product(range(NODES), range(layer.heads)):
        z = (x @ p["weight"]).view(NODES, layer.heads, layer.hidden)[:, head]
        near = adj[i].nonzero().flatten().tolist()
        if layer.attention == "const":
            shares = torch.ones(len(near), dtype=x.dtype)
        elif layer.attention == "gcn":
            shares = torch.stack([1 / (degree[i] * degree[j]).sqrt() for j in near])
        else:
            scores = [reference_score(layer.attention, p, z[i], z[j], head) for j in near]
            shares = torch.stack(scores).softmax(0)
        messages = torch.stack([share * z[j] for share, j in zip(shares, near)])
        if layer.aggregator != "sum":
            for k in (0, 1):
                messages = messages @ p[f"pool.{k}.weight"] + p[f"pool.{k}.bias"]
        received = {"mean": messages.mean(0), "max": messages.amax(0)}.get(layer.aggregator, messages.sum(0))
        out[i] += received / layer.heads
    return torch.tanh(out + p["bias"])


@pytest.mark.parametrize("aggregator", ["sum", "mean", "max", "mlp"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_layer_is_what_its_definition_says(attention, aggregator):
    layer = GraphNASLayer(attention, aggregator, "tanh", 2, CLASSES)
    network = GraphNASNetwork((layer,), FEATURES)
    params, adj, x = drawn(network), adjacency(), features()
    params = {k: p / 16 if k.startswith("layers.0.pool") else p for k, p in params.items()}
    plain = {name.removeprefix("layers.0."): p for name, p in params.items()}
    expected = reference(layer, plain, adj, x)
    torch.testing.assert_close(network.forward(params, None, Graph(x, adj)), expected, rtol=0, atol=1e-10)
    assert expected.std(0).max() > 1e-3


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_sparse_and_dense_weighted_graphs_agree(attention):
    layers = (GraphNASLayer(attention, "max", "elu", 2, 4), GraphNASLayer(attention, "mean", "relu6", 3, 2))
    network = GraphNASNetwork(layers, FEATURES)
    params, adj, x = drawn(network), adjacency(whole=False), features()
    packed = SparseMatrix.from_scipy(sparse.csr_matrix(adj.numpy()), torch.float64, symmetric=True)
    full = network.forward(params, None, Graph(x, adj))
    assert full.shape == (NODES, 2)
    torch.testing.assert_close(network.forward(params, None, Graph(x, packed)), full, rtol=0, atol=1e-10)


def test_whole_weights_are_parallel_edges_for_sums():
    """An edge of weight 2 sends the message twice."""
    layer = GraphNASLayer("const", "mlp", "linear", 1, 2)
    network = GraphNASNetwork((layer,), FEATURES)
    params, adj, x = drawn(network), 2 * adjacency(), features()
    p = {name.removeprefix("layers.0."): value for name, value in params.items()}
    message = (x @ p["weight"]) @ p["pool.0.weight"] + p["pool.0.bias"]
    message = message @ p["pool.1.weight"] + p["pool.1.bias"]
    expected = (adj + torch.eye(NODES, dtype=torch.float64)) @ message + p["bias"]
    torch.testing.assert_close(network.forward(params, None, Graph(x, adj)), expected)


def test_lanes_give_what_each_network_gives():
    layers = (GraphNASLayer("gat", "max", "relu", 2, 4), GraphNASLayer("cos", "mlp", "tanh", 2, CLASSES))
    network, graph = GraphNASNetwork(layers, FEATURES), Graph(features(), adjacency())
    each = [drawn(network, seed) for seed in range(3)]
    many = {name: torch.stack([p[name] for p in each]) for name in each[0]}

    def loss(p):
        return network.forward(p, None, graph).square().sum()

    found = vmap(grad(loss))(many)
    for k, one in enumerate(each):
        for name, g in grad(loss)(one).items():
            torch.testing.assert_close(found[name][k], g, rtol=1e-10, atol=1e-10)


def test_a_graph_task_trains_it():
    """Two groups of nodes joined within: networks learn them from six labels."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    adj = np.triu(rng.random((40, 40)) < np.where(y[:, None] == y, 0.3, 0.02), 1).astype(np.float32)
    x = (rng.normal(size=(40, 4)) + y[:, None]).astype(np.float32)
    graph = Graph(
        torch.from_numpy(x),
        SparseMatrix.from_scipy(sparse.csr_matrix(adj + adj.T), torch.float32, symmetric=True),
    )
    split = [
        torch.tensor(part) for part in ([0, 1, 2, 20, 21, 22], [*range(3, 10), *range(23, 30)], [19, 39])
    ]
    task = GraphTask(GraphData("two", "memory", graph, torch.from_numpy(y), *split, 2))
    base = {"aggregator1": "mean", "activation1": "relu", "heads1": 2, "hidden1": 8}
    base |= {"attention2": "gcn", "aggregator2": "sum", "activation2": "linear", "heads2": 1}
    configs = [{"attention1": attention, **base} for attention in ("gat_sym", "const")]
    task.fit(GraphNAS())
    results = score(
        Job(task, GraphNAS(), configs, [task.train], Recipe(steps=40, lr=0.02), {"val": task.val})
    )
    assert min(result.values["val.score"] for result in results[0]) > 0.8
