"""Searchers that need only scores: on known optima, by seed, and replayed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import torch

from hcdc.core.errors import InputError
from hcdc.search.searchers import SEARCHERS, Exhausted, Searcher, register_searcher, searcher
from hcdc.spaces import Box, Finite, GraphNAS, NASBench201, NASBenchGraph, Product
from hcdc.truth import NASBench201Table, NASBenchGraphTable, NASBenchGraphTruth, TableTruth

PLAIN = ("grid", "random", "evolution", "local", "reinforce", "graphnas")
FAST = {"reinforce": {"lr": 0.2}, "graphnas": {"lr": 0.02}}
CENTRE = {"a": 3, "b": 6, "c": 1, "d": 5}


def quadratic(config):
    return -float(sum((config[name] - centre) ** 2 for name, centre in CENTRE.items()))


def test_all_are_registered():
    assert set(SEARCHERS) >= {*PLAIN, "hypergradient", "gdas", "darts-pt", "darts-pt-small"}
    code = "import hcdc; print(hcdc.search.searchers.Grid.name)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout == "grid\n", told.stderr


# --- known optima -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["evolution", "local"])
def test_the_optimum_of_a_product_is_found(name, grid_space, best_of):
    """Random search finds it within 300 of 4,096 asks in 7 % of runs."""
    for seed in range(5):
        best, asked = best_of(name, grid_space, quadratic, 300, seed)
        assert best == 0
        assert len(asked) == 300


@pytest.mark.parametrize(("name", "lr", "share"), [("reinforce", 0.03, 0.3), ("graphnas", 0.003, 0.6)])
def test_a_controller_settles_on_the_optimum(name, lr, share, best_of):
    """125 configurations: of 100 uniform draws, one is the optimum."""
    space = Product(*(Finite(key, list(range(5))) for key in "abc"))
    optimum = {"a": 3, "b": 1, "c": 0}

    def score(config):
        return -float(sum((config[key] - optimum[key]) ** 2 for key in optimum))

    for seed in range(3):
        best, asked = best_of(name, space, score, 500, seed, lr=lr)
        assert best == 0
        assert asked[-100:].count(optimum) / 100 >= share


@pytest.mark.parametrize("name", ["evolution", "local", "reinforce", "graphnas"])
def test_it_beats_random_at_equal_asks(name, grid_space, best_of):
    """By the mean score of its last asks, and by its best."""

    def both(which, seed):
        best, asked = best_of(which, grid_space, quadratic, 150, seed, **FAST.get(which, {}))
        return best, mean(quadratic(config) for config in asked[-50:])

    found = np.array([both(name, seed) for seed in range(2)]).mean(0)
    chance = np.array([both("random", seed) for seed in range(2)]).mean(0)
    assert found[1] > 0.7 * chance[1]
    assert found[0] >= chance[0]


def test_a_grid_covers_a_finite_space_in_order(best_of):
    space = Product(Finite("a", [1, 2, 3]), Finite("b", ["x", "y"]))
    asked = best_of("grid", space, lambda c: c["a"], 6)[1]
    assert asked == space.candidates()


def test_a_grid_over_a_box_has_its_corners_and_its_scale(best_of):
    space = Box(["w", "lr"], [0, 1e-4], [1, 1], ["linear", "log"])
    best, asked = best_of("grid", space, lambda c: -abs(math.log10(c["lr"]) + 2) - c["w"], 9, points=3)
    assert asked == [{"w": w, "lr": lr} for w in (0.0, 0.5, 1.0) for lr in (1e-4, 1e-2, 1.0)]
    assert best == 0


def test_a_grid_skips_combinations_that_are_no_configurations():
    part = Finite([{"kind": "sgd", "momentum": 0.9}, {"kind": "adam", "momentum": 0.0}])
    made = searcher("grid", Product(part, Box(["lr"], 0, 1)), points=2)
    asked = [made.ask() for _ in range(4)]
    assert {(c["kind"], c["momentum"]) for c in asked} == {("sgd", 0.9), ("adam", 0.0)}
    with pytest.raises(Exhausted):
        made.ask()


@pytest.mark.parametrize("name", ["grid", "random", "local"])
def test_a_finite_space_is_exhausted_without_repeats(name):
    space = Product(Finite("a", [1, 2, 3]), Finite("b", [1, 2]))
    made = searcher(name, space)
    asked = []
    for _ in range(6):
        asked.append(made.ask())
        made.tell(asked[-1], 0.0)
    assert sorted(map(str, asked)) == sorted(map(str, space.candidates()))
    with pytest.raises(Exhausted, match=f"searcher '{name}' has asked for"):
        made.ask()


def test_evolution_searches_a_box(best_of):
    """The best of 150 random points of this cube is 5 times as far from the optimum, on average."""
    space = Box(["x", "y", "lr"], [0, 0, 1e-4], [1, 1, 1], ["linear", "linear", "log"])

    def objective(c):
        return -((c["x"] - 0.3) ** 2 + (c["y"] - 0.8) ** 2 + (math.log10(c["lr"]) / 4 + 0.6) ** 2)

    found = mean(best_of("evolution", space, objective, 150, seed)[0] for seed in range(5))
    chance = mean(best_of("random", space, objective, 150, seed)[0] for seed in range(5))
    assert found > chance / 3


def test_reinforce_follows_the_gradient_of_the_expected_reward():
    """With one decision of two options and reward 1 or 0, Adam's first step favours the rewarded one."""
    made = searcher("reinforce", Finite("a", [0, 1]), lr=0.05)
    made.tell({"a": 0}, 0.0)
    before = made.probabilities[0].clone()
    made.tell({"a": 1}, 1.0)
    assert made.probabilities[0][1] > before[1]
    for _ in range(100):
        config = made.ask()
        made.tell(config, config["a"])
    assert made.probabilities[0][1] > 0.95


def test_reinforce_subtracts_the_corrected_average():
    """The first reward equals its own baseline, so nothing moves; afterwards the average is weighted."""
    made = searcher("reinforce", Finite("a", [0, 1]), momentum=0.9)
    before = made.probabilities[0].clone()
    made.tell({"a": 0}, 7.0)
    torch.testing.assert_close(made.probabilities[0], before, rtol=0, atol=1e-12)
    made.tell({"a": 0}, 7.0)  # equal to the average again
    torch.testing.assert_close(made.probabilities[0], before, rtol=0, atol=1e-12)


def test_local_search_climbs_neighbour_by_neighbour(grid_space):
    """Every ask of a climb is a neighbour of the best so far."""
    made = searcher("local", grid_space, seed=3)
    start = made.ask()
    made.tell(start, quadratic(start))
    for _ in range(40):
        if made.best == CENTRE:
            break
        config = made.ask()
        assert sum(config[k] != made.best[k] for k in CENTRE) == 1
        made.tell(config, quadratic(config))


# --- seeds, history, failures -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_equal_seeds_ask_the_same(name, grid_space, best_of):
    first, again = (best_of(name, grid_space, quadratic, 60, 1, **FAST.get(name, {}))[1] for _ in range(2))
    assert first == again
    if name != "grid":
        assert best_of(name, grid_space, quadratic, 60, 2, **FAST.get(name, {}))[1] != first


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "space",
    [
        Product(*(Finite(name, list(range(8))) for name in CENTRE)),
        Product(Finite("a", [1, 2, 3]), Box(["b", "c", "d"], 1, 8)),
    ],
    ids=["finite", "mixed"],
)
def test_a_searcher_that_is_told_the_same_continues_the_same(name, space):
    if space.decisions() is None and name in ("local", "reinforce", "graphnas"):
        pytest.skip("needs a finite space")
    made = searcher(name, space, seed=5, **FAST.get(name, {}))
    for told in range(45):
        config = made.ask()
        if told % 15 == 14:
            again = searcher(name, space, seed=5, **FAST.get(name, {}))
            for old, score in made.history:
                again.tell(old, score)
            assert again.ask() == config
        made.tell(config, None if told % 7 == 3 else quadratic(config))


@pytest.mark.parametrize("name", PLAIN)
def test_batches_of_asks_differ_and_repeat(name, grid_space):
    def run():
        made = searcher(name, grid_space, seed=2)
        asked = []
        for _ in range(8):
            batch = [made.ask() for _ in range(4)]
            for config in batch:
                made.tell(config, quadratic(config))
            asked += batch
        assert made.pending == []
        return asked

    asked = run()
    assert asked == run()
    if name not in ("reinforce", "graphnas"):  # a policy may repeat itself
        assert len({tuple(c.values()) for c in asked}) == 32


@pytest.mark.parametrize("name", PLAIN)
def test_failures_rank_last(name, grid_space):
    made = searcher(name, grid_space)
    for score in (None, math.nan, -5.0, None, -7.0, math.nan):
        made.tell(made.ask(), score)
    assert made.best == made.history[2][0]
    assert [score for _, score in made.history if score == -math.inf] == [-math.inf] * 4
    for _ in range(30):
        made.tell(made.ask(), None)
    assert grid_space.candidates().index(made.ask()) >= 0


def test_nothing_succeeded_means_no_best():
    made = searcher("random", Finite("a", [1, 2]))
    made.tell(made.ask(), None)
    assert made.best is None


def test_told_configurations_are_not_asked_for():
    made = searcher("random", Finite("a", [1, 2, 3]))
    made.tell({"a": 2}, 1.0)
    assert {made.ask()["a"], made.ask()["a"]} == {1, 3}


# --- refusals and registration ----------------------------------------------------------------------------


def test_wrong_names_and_settings_are_said():
    space = Finite("a", [1, 2])
    with pytest.raises(InputError, match="did you mean 'evolution'"):
        searcher("evolutoin", space)
    with pytest.raises(InputError, match="setting of searcher 'evolution' 'populaton'"):
        searcher("evolution", space, populaton=3)
    with pytest.raises(InputError, match="setting 'lr' of searcher 'reinforce' must be more than 0"):
        searcher("reinforce", space, lr=0)
    with pytest.raises(InputError, match="pass task="):
        searcher("gdas", NASBench201())
    with pytest.raises(InputError, match="'b' is not one of them"):
        searcher("random", space).tell({"b": 1}, 0.0)


@pytest.mark.parametrize("name", ["local", "reinforce", "graphnas"])
def test_continuous_spaces_are_refused_by_searchers_that_choose(name):
    with pytest.raises(InputError, match=f"searcher '{name}' chooses among options, and space 'box'"):
        searcher(name, Box(["x"], 0, 1))


def test_a_searcher_of_ones_own():
    class First(Searcher):
        name = "first"

        def propose(self):
            return self.space.candidates()[0]

    register_searcher(First)
    try:
        assert searcher("first", Finite("a", [7, 8])).ask() == {"a": 7}
        with pytest.raises(ValueError, match="registered already"):
            register_searcher(First)
    finally:
        del SEARCHERS["first"]


@pytest.mark.parametrize("space", [GraphNAS(), NASBench201(), NASBenchGraph()], ids=lambda s: s.name)
@pytest.mark.parametrize("name", PLAIN)
def test_architectures_are_asked_for(name, space):
    made = searcher(name, space)
    for k in range(3):
        config = made.ask()
        space.check(config)
        made.tell(config, float(k))
    assert made.best == config
    assert len(made.history) == 3


# --- benchmarks -------------------------------------------------------------------------------------------


def data(name):
    path = Path(os.environ.get("HCDC_DATA", "")) / name
    if not path.is_file():
        pytest.skip(f"HCDC_DATA is not set or holds no {name}")
    return path


@pytest.mark.data
@pytest.mark.parametrize("name", ["evolution", "local", "reinforce"])
def test_cells_of_nasbench201_are_found_faster_than_at_random(name, best_of):
    """Mean regret on CIFAR-10 validation after 150 asks, over 8 seeds."""
    truth = TableTruth(NASBench201Table(data("nasbench201.csv.gz")), "cifar10")
    space = NASBench201()
    regret = {
        which: mean(0.9161 - best_of(which, space, truth.score, 150, seed)[0] for seed in range(8))
        for which in (name, "random")
    }
    assert regret[name] < regret["random"]


@pytest.mark.data
@pytest.mark.parametrize("name", ["evolution", "local"])
def test_graph_networks_are_found_faster_than_at_random(name, best_of):
    truth = NASBenchGraphTruth(NASBenchGraphTable(data("nasbench_graph.npz")), "arxiv")
    space = NASBenchGraph()
    best = {
        which: mean(best_of(which, space, truth.score, 150, seed)[0] for seed in range(5))
        for which in (name, "random")
    }
    assert best[name] > best["random"]
