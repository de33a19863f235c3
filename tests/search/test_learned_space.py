"""The space is learned from what trials read; conditional parameters are recognised."""

import numpy as np
import pytest

from hcdc import InputError
from hcdc.search import Trial
from hcdc.search._learned_space import LearnedSpace


def objective(trial):
    width = trial.suggest_int("width", 1, 100)
    kind = trial.suggest_categorical("kind", ["sgd", "adam", "none"])
    if kind == "sgd" and trial.suggest_categorical("nesterov", [True, False]):
        trial.suggest_float("momentum", 0.0, 1.0)
    elif kind == "adam":
        trial.suggest_float("beta", 0.5, 1.0)
    return width


def learned(count=60, seed=0):
    space, rng = LearnedSpace(), np.random.default_rng(seed)
    for number in range(count):
        config = space.propose(1, rng)[0] if space.distributions else {"start": number}
        trial = Trial(config)
        objective(trial)
        space.check(trial.distributions, "full")
        space.learn(trial.distributions, trial.params, whole=True)
    return space


def test_conditions_are_found():
    space = learned()
    assert set(space.distributions) == {"width", "kind", "nesterov", "momentum", "beta"}
    assert space.conditions["nesterov"] == ("kind", frozenset({"'sgd'"}))
    assert space.conditions["beta"] == ("kind", frozenset({"'adam'"}))
    assert space.conditions["momentum"] == ("nesterov", frozenset({"True"}))
    assert "width" not in space.conditions


def test_proposals_hold_what_will_be_read():
    space, rng = learned(), np.random.default_rng(5)
    drawn = space.propose(200, rng)
    for config in drawn + space.propose(200, rng, near=drawn[:4]):
        trial = Trial(config)
        objective(trial)
        assert trial.params == config
    near = space.propose(300, rng, near=[{"width": 50, "kind": "none"}])
    assert np.mean([config["kind"] == "none" for config in near]) > 0.8
    assert 0 < np.std([config["width"] for config in near]) < 20  # 29 at random


def test_features_mark_what_is_not_read():
    space = learned()
    sgd = {"width": 1, "kind": "sgd", "nesterov": True, "momentum": 1.0}
    none = {"width": 100, "kind": "none"}
    table = space.features([sgd, none])
    assert table.shape == (2, 1 + 3 + (2 + 1) + (1 + 1) + (1 + 1))
    blank = space.features([{"width": 100, "kind": "none", "momentum": 0.0}])
    assert np.array_equal(table[1], blank[0])  # a value that is not read makes no difference
    width, kind = table[:, 0], table[:, 1:4]
    assert width.tolist() == [0, 1]
    assert kind.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_changed_range_is_refused():
    space = learned(3)
    trial = Trial({})
    trial.suggest_int("width", 1, 10)
    with pytest.raises(InputError, match=r"'width' was int\(low=1, high=100, step=1\) .* on rung 'short:3'"):
        space.check(trial.distributions, "short:3")


def test_a_failed_trial_tells_names_but_not_what_is_unneeded():
    space = LearnedSpace()
    for config in ({}, {"a": 1}):
        trial = Trial(config)
        objective(trial)
        space.learn(trial.distributions, trial.params, whole=True)
    before = dict(space.conditions)
    trial = Trial({})
    trial.suggest_float("late", 0, 1)
    space.learn(trial.distributions, trial.params, whole=False)
    assert "late" in space.distributions
    assert {name: rule for name, rule in space.conditions.items() if name != "late"} == before
