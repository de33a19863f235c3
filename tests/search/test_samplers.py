"""Optuna's samplers and pruners inside a search."""

import numpy as np
import pytest
from tests.search.clocks import Stops, back_and_forth, bowl, full, told

from hcdc import InputError
from hcdc.search import FloatDistribution, Outcome, Sampler, TrialPruned, search

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_samplers_propose_and_resume(clock, tmp_path, sampler):
    make = {"tpe": lambda: "tpe", "random": optuna.samplers.RandomSampler}[sampler]

    def run(storage, **faults):
        given = {"budget": 60, "seed": 1, "sampler": make(), "storage": tmp_path / storage}
        return search(bowl(clock, **faults), full(), **given)

    calls = []
    whole = run("w.log", calls=calls)
    assert whole.score > 0.8  # a random configuration: about .4
    stop = Stops(len(calls), 0.4, 0.9)
    assert told(stop.until_done(lambda: run("s.log", fault=stop))) == told(whole)


def test_tpe_learns_from_the_outcomes():
    rng = np.random.default_rng(0)
    outcomes = [Outcome({"x": x}, -((x - 0.3) ** 2), 1.0) for x in rng.uniform(-1, 1, 60).tolist()]
    dists = {"x": FloatDistribution(-1.0, 1.0)}
    found = [c["x"] for c in Sampler("tpe", 0).propose("full", outcomes, dists, 50, 60.0)]
    assert np.median(np.abs(np.array(found) - 0.3)) < 0.15  # uniform: about .5
    assert len(set(found)) == 50
    same = [c["x"] for c in Sampler("tpe", 0).propose("full", outcomes, dists, 50, 60.0)]
    assert same == found
    other = [c["x"] for c in Sampler("tpe", 1).propose("full", outcomes, dists, 50, 60.0)]
    assert other != found
    assert len(Sampler("tpe", 0).propose("full", outcomes, dists, 50, 0.0)) == 8


def test_a_grid_of_optuna_proposes_its_points(clock):
    grid = optuna.samplers.GridSampler({"x": [-0.5, 0.3], "y": [0.01, 0.1]})
    found = search(bowl(clock), full(), budget=40, sampler=grid)
    assert found.best["x"] == 0.3
    other = optuna.samplers.GridSampler({"z": [1]})
    with pytest.raises(InputError, match=r"sampler GridSampler cannot propose here \(ValueError"):
        search(bowl(clock), full(), budget=40, sampler=other)


def test_conditional_parameters_are_left_out_of_proposals(clock):
    def objective(trial, data):
        clock.spend(2.0 * data.epochs(10) * len(data.train[1]) / 1000)
        if trial.suggest_categorical("kind", ["flat", "bowl"]) == "flat":
            return 0.5 + 0.1 * trial.suggest_float("height", 0, 1)
        return 1 - (trial.suggest_float("x", -1, 1) - 0.3) ** 2

    found = search(objective, full(), budget=80, seed=2, sampler="tpe")
    assert found.best["kind"] == "bowl"
    assert set(found.best) == {"kind", "x"}
    assert found.score > 0.95


def test_wrong_samplers_and_pruners_are_refused(clock):
    with pytest.raises(InputError, match="sampler 'grid': choose 'tpe' or pass one"):
        search(bowl(clock), full(), sampler="grid")
    with pytest.raises(InputError, match="pruner is a str; pass one"):
        search(bowl(clock), full(), pruner="median")


@pytest.mark.parametrize(
    "make",
    [
        lambda: optuna.pruners.MedianPruner(),
        lambda: optuna.pruners.HyperbandPruner(max_resource=8),
    ],
)
def test_pruners(clock, tmp_path, make):
    given_up, calls, stop = [], [], lambda: None

    def objective(trial, data):
        calls.append(1)
        stop()
        x = trial.suggest_float("x", -1, 1)
        for epoch in range(data.epochs(8)):
            clock.spend(0.5 * len(data.train[1]) / 100)
            trial.report(back_and_forth(trial), epoch)
            if trial.should_prune():
                given_up.append((len(data.train[1]), data.epochs(8)))
                raise TrialPruned
        return 1 - x * x

    def run(storage):
        return search(objective, full(), budget=160, seed=4, pruner=make(), storage=tmp_path / storage)

    whole = run("whole.log")
    assert whole.rung("full").failed == len(given_up) > 0
    assert set(given_up) == {(100, 8)}  # full trainings alone
    assert whole.score > 0.9
    stop = Stops(len(calls), 0.6, 0.9)
    assert told(stop.until_done(lambda: run("s.log"))) == told(whole)
