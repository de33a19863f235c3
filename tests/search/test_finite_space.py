"""A space is called finite only if no trial met a parameter that others do not read."""

import math

import numpy as np
from tests.search.clocks import full

import hcdc
from hcdc.search import Trial
from hcdc.search._learned_space import LearnedSpace


def test_a_conditional_space_is_not_called_finite(clock):
    def objective(trial, data):
        clock.spend(data.epochs(10) * len(data.train[1]) / 1000)
        if trial.suggest_categorical("kind", ["a", "b", "c", "d"]) == "d":
            return 1 - (trial.suggest_float("x", 0, 1) - 0.3) ** 2
        return trial.suggest_int("n", 1, 3) / 10

    for seed in range(4):
        plan = hcdc.plan(objective, full(), budget="5m", seed=seed)
        assert plan.candidates is None
        assert "all 12" not in plan.why


def test_dear_trials_are_not_spent_on_finding_out(clock):
    calls = []

    def objective(trial, data):
        calls.append(trial.number)
        clock.spend(600.0 * data.epochs(10) * len(data.train[1]) / 1000)
        return float(trial.suggest_categorical("kind", ["a", "b", "c", "d"]) == "d")

    assert hcdc.plan(objective, full(), budget="1d").candidates is None
    assert len(calls) <= 4


def test_the_size_of_a_learned_space():
    space, rng = LearnedSpace(), np.random.default_rng(0)
    config = {}
    while not space.distributions or math.isinf(space.size()):
        trial = Trial(config)
        trial.suggest_int("n", 1, 4)
        trial.suggest_categorical("kind", ["a", "b", "c"])
        space.learn(trial.distributions, trial.params, whole=True)
        assert space.combinations == 12
        config = space.unexplored(rng)
    assert space.size() == 12
    assert len(space._trials) == 4  # one per value of the parameter with most values
    trial = Trial({})
    trial.suggest_int("n", 1, 4)
    space.learn(trial.distributions, trial.params, whole=True)
    assert math.isinf(space.size())  # "kind" is not always read
