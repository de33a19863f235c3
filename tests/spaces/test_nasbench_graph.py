import os
from pathlib import Path

import numpy as np
import pytest
import torch

from hcdc.datasets import Graph
from hcdc.spaces import NASBenchGraph
from hcdc.spaces._nasbench_graph import LAYERS, _by_computation, computation
from hcdc.testing import SpaceConformance


def table_path():
    path = Path(os.environ.get("HCDC_DATA", "")) / "nasbench_graph.npz"
    if not path.is_file():
        pytest.skip("HCDC_DATA is not set or holds no nasbench_graph.npz")
    return path


class TestNASBenchGraph(SpaceConformance):
    def make(self):
        return NASBenchGraph()


def test_there_are_as_many_candidates_as_in_the_benchmark():
    assert len(NASBenchGraph().candidates()) == 26_206


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ((0, 5, 6, 7, 0), (0, 0, 7, 6, 5)),  # the order of parallel nodes does not matter
        ((8, 0, 8, 1, 2), (8, 8, 0, 1, 2)),  # a skip inside a path is no node
        ((6, 8, 0, 1, 2), (3, 0, 8, 2, 1)),  # a skip at the front turns one wiring into another
    ],
)
def test_equal_computations_have_one_candidate(code, same):
    space = NASBenchGraph()
    assert computation(code) == computation(same)
    assert space.counterpart(space.from_numbers(code)) == space.counterpart(space.from_numbers(same))


@pytest.mark.parametrize(
    "code", [(0, 8, 0, 0, 0), (8, 0, 0, 0, 8), (3, 0, 0, 0, 8), (8, 8, 8, 8, 8), (1, 0, 0, 8, 0)]
)
def test_idle_skips_are_no_candidates(code):
    """The raw input is no output, and a skip at the end of a single path changes nothing."""
    assert computation(code) not in _by_computation()


def test_neighbours_are_candidates():
    space = NASBenchGraph()
    every = {tuple(c.values()) for c in space.candidates()}
    for config in space.sample(5, np.random.default_rng(0)):
        near = space.neighbours(config)
        assert len(near) > 8
        assert {tuple(c.values()) for c in near} <= every


@pytest.mark.data
def test_candidates_are_those_of_the_table():
    space, arch = NASBenchGraph(), np.load(table_path())["arch"]
    codes = {int("".join(map(str, space.to_numbers(c)))) for c in space.candidates()}
    assert codes == set(arch.tolist())


def test_parameters_are_counted_without_building_the_network(monkeypatch):
    pytest.importorskip("torch_geometric")
    space = NASBenchGraph()
    configs = [
        space.from_numbers([wiring, *rest])
        for wiring in range(9)
        for rest in np.random.default_rng(wiring).integers(9, size=(4, 4))
    ]
    assert {config[node] for config in configs for node in ("op1", "op2", "op3", "op4")} == set(LAYERS)
    wanted = [space.network(13, 7, config).parameter_count() for config in configs]
    monkeypatch.setattr(NASBenchGraph, "network", None)  # a call would fail
    assert [space.parameter_count(config, 13, 7) for config in configs] == wanted


def test_a_network_follows_its_wiring():
    """Layers read the layer that the wiring names; ends are concatenated and skips pass their input on."""
    pytest.importorskip("torch_geometric")
    config = {"wiring": "0012", "op1": "fc", "op2": "gcn", "op3": "skip", "op4": "graph"}
    network = NASBenchGraph().network(6, 3, config)
    generator = torch.Generator().manual_seed(0)
    params = {k: torch.randn(s, generator=generator).double() / 4 for k, s in network.shapes().items()}
    upper = torch.triu((torch.rand(5, 5, generator=generator) < 0.6).double(), 1)
    adj, x = upper + upper.t(), torch.randn(5, 6, generator=generator).double()

    def dense(name, z):
        return z @ params[f"{name}.weight"].t() + params.get(f"{name}.bias", 0)

    first = torch.relu(dense("first", x))
    one = torch.relu(dense("layers.0", first))
    loops = adj + torch.eye(5)
    scale = loops.sum(1).rsqrt()
    p = scale[:, None] * loops * scale
    two = torch.relu(p @ (first @ params["layers.1.lin.weight"].t()) + params["layers.1.bias"])
    four = torch.relu(adj @ (two @ params["layers.3.lin_rel.weight"].t()) + params["layers.3.lin_rel.bias"]
                      + two @ params["layers.3.lin_root.weight"].t())  # fmt: skip
    wanted = dense("last", torch.cat([one, four], 1))  # op3 hands on the output of op1
    found = network.forward(params, torch.zeros(0), Graph(x, adj))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
