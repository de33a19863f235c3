import numpy as np
import pytest
import torch

from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.datasets import Graph
from hcdc.networks import Network
from hcdc.spaces import Box, Finite, NASBench201, PolynomialFilter, Product, Space, halves
from hcdc.testing import SpaceConformance


class TestMixed(SpaceConformance):
    def make(self):
        return Product(Box(["lr"], 1e-4, 1, "log"), Finite("depth", [2, 4, 8]), Box(["dropout"], 0, 0.9))


class TestFinite(SpaceConformance):
    def make(self):
        return Product(Finite("depth", [2, 4, 8]), Finite([{"model": m} for m in ("gcn", "gat")]))


class TestCellsAndTraining(SpaceConformance):
    def make(self):
        return Product(NASBench201(channels=4), Box(["lr"], 1e-3, 1e-1, "log"))


class TestCellsAndAugmentation(SpaceConformance):
    def make(self):
        return Product(Finite("augment", ["none", "crop"]), NASBench201(channels=4))

    def test_candidates_are_all_there_is(self):
        assert len(self.make().candidates()) == 2 * 4929


class TestFiltersAndTraining(SpaceConformance):
    def make(self):
        return Product(PolynomialFilter(order=1, width=4), Box(["lr"], 1e-3, 1e-1, "log"))


class TestNested(SpaceConformance):
    def make(self):
        return Product(Product(Finite("a", [1, 2]), Finite("b", [1, 2, 3])), Finite("c", [True, False]))


def mixed():
    return TestMixed().make()


def test_lambda_is_the_concatenation():
    lam = mixed().encode({"dropout": 0.5, "depth": 4, "lr": 0.1})
    assert lam.tolist() == pytest.approx([-1, 0, 1, 0, 0.5])


def test_each_part_is_projected_by_itself():
    lam = torch.tensor([3.0, 0.2, 2.0, 0.1, -1.0], dtype=torch.float64)
    assert mixed().project(lam).tolist() == pytest.approx([0, 0, 1, 0, 0])


def test_a_product_with_a_box_is_infinite():
    assert mixed().candidates() is None


def test_candidates_are_all_pairs():
    candidates = TestFinite().make().candidates()
    assert len(candidates) == 6
    assert {"depth": 8, "model": "gcn"} in candidates
    condense, judge = halves(TestFinite().make(), 0)
    assert not {config_hash(c) for c in condense} & {config_hash(c) for c in judge}


def test_a_large_product_is_sampled_without_enumeration():
    space = Product(*(Finite(f"v{i}", list(range(10))) for i in range(9)))
    drawn = space.sample(50, np.random.default_rng(0))
    assert len({config_hash(config) for config in drawn}) == 50
    assert {config["v0"] for config in drawn} == set(range(10))


def test_samples_of_a_mixed_product_are_independent_in_each_part():
    drawn = mixed().sample(3000, np.random.default_rng(0))
    share = sum(config["depth"] == 4 for config in drawn) / 3000
    assert share == pytest.approx(1 / 3, abs=0.03)
    assert np.mean([config["dropout"] for config in drawn if config["depth"] == 4]) == pytest.approx(
        0.45, abs=0.03
    )


def test_names_must_not_clash():
    with pytest.raises(InputError, match="spaces 0 and 2 of a product both have a value named 'lr'"):
        Product(Box(["lr"], 0, 1), Finite("depth", [1]), Box(["lr"], 0, 2))


def test_a_product_of_one_is_refused():
    with pytest.raises(InputError, match="at least 2 spaces, got 1"):
        Product(Box(["lr"], 0, 1))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"lr": 0.1, "depth": 4, "dropout": 0.5, "size": 1},
            "the keys lr, depth, dropout; 'size' is not one of them",
        ),
        ({"lr": 0.1, "dropout": 0.5}, "'depth' is missing"),
        ({"depth": 4, "dropout": 0.5}, "'lr' is missing"),
    ],
)
def test_a_bad_configuration_is_refused(config, words):
    with pytest.raises(InputError, match=words):
        mixed().encode(config)


class Scaled(Network):
    """A network without parameters but one: lambda_0 * x * theta."""

    takes = "graph"

    def prepare(self, graph):
        graph._cache["ready"] = True

    def init(self, generator):
        return {"theta": torch.ones(1)}

    def forward(self, params, lam, graph):
        assert lam.shape == (1,)
        return lam[0] * graph.x * params["theta"]


class WithNetwork(Box):
    def network(self, features, classes, config=None):
        return Scaled()


def test_the_part_with_a_network_sees_its_own_lambda():
    space = Product(Finite("depth", [2, 4]), WithNetwork(["scale"], 0, 10))
    network = space.network(3, 2, {"depth": 4, "scale": 7.0})
    graph = Graph(torch.ones(2, 3), None)
    network.prepare(graph)
    assert graph._cache["ready"]
    out = network.forward(network.init(torch.Generator()), space.encode({"depth": 4, "scale": 7.0}), graph)
    assert torch.equal(out, torch.full((2, 3), 7.0, dtype=torch.float64))
    assert space.parameter_count({"depth": 4, "scale": 7.0}, 3, 2) == 1
    assert mixed().network(3, 2) is None


def test_two_networks_are_refused():
    space = Product(WithNetwork(["a"], 0, 1), WithNetwork(["b"], 0, 1))
    with pytest.raises(InputError, match="2 parts of the product build a network"):
        space.network(3, 2)


def test_a_product_is_batched_where_every_part_is():
    class Unbatched(Finite):
        batched = False

    assert mixed().batched
    assert not Product(Box(["a"], 0, 1), Unbatched("depth", [1, 2])).batched
    assert isinstance(mixed(), Space)


CELLS = NASBench201(channels=4)
CELL = CELLS.candidates()[0]


def test_a_candidate_of_cells_and_training_is_the_cells_own_network_and_its_recipe():
    space = TestCellsAndTraining().make()
    candidate = space.candidate({**CELL, "lr": 0.01}, 3, 10)
    assert candidate.network == CELLS.network(3, 10, CELL) == space.network(3, 10, {**CELL, "lr": 0.01})
    assert candidate.recipe == {"lr": 0.01}
    assert candidate.group == space.candidate({"lr": 0.01, **CELL}, 3, 10).group
    assert candidate.group != space.candidate({"lr": 0.02, **CELL}, 3, 10).group
    assert candidate.group != space.candidate({"lr": 0.01, **CELLS.candidates()[1]}, 3, 10).group
    assert candidate.training == space.candidate({"lr": 0.01, **CELLS.candidates()[1]}, 3, 10).training


def test_the_relaxed_cell_of_a_product_reads_its_slice():
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    space = Product(Box(["lr"], 1e-3, 1e-1, "log"), CELLS)
    lam = space.encode({**CELL, "lr": 0.01}).float()
    network, own = space.network(3, 10), CELLS.network(3, 10)
    params = own.init(torch.Generator().manual_seed(0))
    assert network.takes == "image"
    assert torch.equal(network.forward(params, lam, images), own.forward(params, lam[1:], images))


def test_a_product_asks_its_parts_for_what_they_know():
    space = TestCellsAndTraining().make()
    config = {**CELL, "lr": 0.01}
    assert space.parameter_count(config, 3, 10) == CELLS.parameter_count(CELL, 3, 10)
    assert mixed().parameter_count({"lr": 0.1, "depth": 4, "dropout": 0.5}, 3, 10) is None
    assert space.features(config) == [*CELLS.features(CELL), -2.0]
    other = {"cell": "|none~0|+|nor_conv_3x3~0|none~1|+|none~0|none~1|skip_connect~2|"}
    assert space.counterpart({**other, "lr": 0.01}) == {**CELLS.counterpart(other), "lr": 0.01}
    assert CELLS.counterpart(other) != other
    assert space.words() == "cell: 4,929 choices; lr from 0.001 to 0.1 (log)"
    assert [d.visibility for d in space.dimensions()] == ["alignment", "copy"]
    assert space.unread() == []


def test_cells_and_rates_are_drawn_independently():
    drawn = TestCellsAndTraining().make().sample(400, np.random.default_rng(0))
    assert len({config["cell"] for config in drawn}) > 300
    assert np.mean([np.log10(config["lr"]) for config in drawn]) == pytest.approx(-2, abs=0.1)


def test_candidates_of_a_batched_product_share_a_network_and_group_by_recipe():
    space = TestFiltersAndTraining().make()
    configs = [
        {"lambda_0": v, "lambda_1": 0.0, "lr": lr} for v, lr in ((0.1, 0.01), (0.2, 0.01), (0.1, 0.02))
    ]
    first, same, other = (space.candidate(config, 3, 2) for config in configs)
    assert first.network == same.network == space.network(3, 2)
    assert first.group == same.group != other.group


def test_what_a_model_reads_keeps_candidates_of_an_unbatched_product_apart():
    space = Product(CELLS, Finite("gain", [0.0, 0.5]))
    first, second = (space.candidate({**CELL, "gain": p}, 3, 10) for p in (0.0, 0.5))
    assert first.group != second.group
    with pytest.raises(InputError, match="hyperparameter 'gain': nothing reads it"):
        space.check_read()
