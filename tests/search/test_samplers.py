"""Optuna's samplers and pruners inside a search."""

import numpy as np
import pytest
from tests.search.clocks import bowl, full, told

from hcdc import InputError
from hcdc.search import FloatDistribution, Outcome, Sampler, TrialPruned, search

optuna = pytest.importorskip("optuna")


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_samplers_propose_and_resume(clock, tmp_path, sampler):
    make = {"tpe": lambda: "tpe", "random": optuna.samplers.RandomSampler}[sampler]
    whole = search(bowl(clock), full(), budget=60, seed=1, sampler=make(), storage=tmp_path / "w.log")
    assert whole.score > 0.85
    calls = []

    def stop(trial, data):
        if len(calls) in (20, 50):
            calls.append("stopped")
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            search(
                bowl(clock, calls, stop),
                full(),
                budget=60,
                seed=1,
                sampler=make(),
                storage=tmp_path / "s.log",
            )
    again = search(
        bowl(clock, calls, stop), full(), budget=60, seed=1, sampler=make(), storage=tmp_path / "s.log"
    )
    assert told(again) == told(whole)


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
    given_up, calls = [], []

    def objective(trial, data, stops=()):
        calls.append(1)
        if len(calls) in stops:
            raise KeyboardInterrupt
        x = trial.suggest_float("x", -1, 1)
        for epoch in range(data.epochs(8)):
            clock.spend(0.5 * len(data.train[1]) / 100)
            trial.report(epoch - x * x, epoch)
            if trial.should_prune():
                given_up.append((x, len(data.train[1]), data.epochs(8)))
                raise TrialPruned
        return 1 - x * x

    def stopped(trial, data):
        return objective(trial, data, stops=(60, 90))

    stopped.__qualname__ = objective.__qualname__
    whole = search(objective, full(), budget=160, seed=4, pruner=make(), storage=tmp_path / "whole.log")
    assert whole.rung("full").failed == len(given_up) > 0
    assert {given[1:] for given in given_up} == {(100, 8)}  # full trainings alone
    assert whole.score > 0.95
    calls.clear()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            search(stopped, full(), budget=160, seed=4, pruner=make(), storage=tmp_path / "s.log")
    again = search(stopped, full(), budget=160, seed=4, pruner=make(), storage=tmp_path / "s.log")
    assert told(again) == told(whole)
