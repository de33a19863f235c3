"""Scores of deterministic trainings are flattered by the choice: the interval and the warnings say so."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.search.clocks import full

from hcdc import FullData
from hcdc.core.found import Found, RungReport
from hcdc.core.told import found_lines
from hcdc.search import search
from hcdc.search._intervals import mean_interval

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5))
Y = RNG.integers(0, 2, 400)


def coin_flips(**options):
    """Labels that nothing predicts: 100 to train, 100 to validate, 200 to test."""
    return FullData((X[:100], Y[:100]), (X[100:200], Y[100:200]), (X[200:], Y[200:]), **options)


def linear(clock):
    def objective(trial, data):
        clock.spend(1.0)
        w = np.array([trial.suggest_float(f"w{k}", -1, 1) for k in range(5)])
        if data.test is not None:
            data.score(data.test[0] @ w > 0, values=True, split="test")
        return data.score((data.val[0] @ w > 0).astype(int), values=True)

    return objective


@pytest.mark.usefixtures("quick")
def test_a_deterministic_objective_is_told_and_its_interval_is_not_empty(clock):
    found = search(linear(clock), coin_flips(), budget=120)
    low, high = found.interval
    width = 1.645 * math.sqrt(found.score * (1 - found.score) / 100)
    assert high - low == pytest.approx(2 * width, rel=0.05)
    assert any("seeds do not matter here" in text for text in found.warnings)
    assert not dict(found_lines(found))["verdict"].startswith("use it:")


@pytest.mark.usefixtures("quick")
def test_without_a_known_error_there_is_no_interval(clock):
    def metric(y, outputs, sample_weight=None):
        return float(np.mean(y == outputs))

    found = search(linear(clock), coin_flips(metric=metric), budget=60)
    assert found.score is not None
    assert found.interval == (None, None)


@pytest.mark.usefixtures("quick")
def test_random_trainings_are_not_called_flattered(clock):
    def objective(trial, data):
        clock.spend(1.0)
        return trial.suggest_float("x", 0, 1) + np.random.normal()  # noqa: NPY002, the global stream is seeded

    assert not any("seeds" in text for text in search(objective, full(), budget=60).warnings)


def test_intervals_join_seeds_and_rows():
    assert mean_interval(0.5, [0.0, 0.0]) == (None, None)
    low, high = mean_interval(0.5, [0.0, 0.0], error=0.1)
    assert (0.5 - low, high - 0.5) == pytest.approx((0.1645, 0.1645), abs=1e-4)
    seeds = mean_interval(0.5, [0.1, -0.1])
    joint = mean_interval(0.5, [0.1, -0.1], error=0.1)
    assert joint[1] > high
    assert joint[1] < seeds[1] + high - 0.5
    rng, inside = np.random.default_rng(0), 0
    for _ in range(2000):  # seeds with deviation 1, rows with 1
        rows, runs = rng.standard_normal(), rng.standard_normal(3)
        low, high = mean_interval(rows + runs[2], [runs[0] - runs[1]], error=1.0)
        inside += low < 0 < high
    assert inside / 2000 == pytest.approx(0.9, abs=0.05)


def test_standard_errors_of_scores():
    data = coin_flips().trial(0)
    right = data.score(Y[100:200], values=True)
    assert right == 1.0
    assert 0 < data.errors[1.0] < 0.02  # all are right, but another row might not be
    guess = np.array([0, 1] * 50)
    score = data.score(guess, values=True)
    assert data.errors[score] == pytest.approx(stats.sem(guess == Y[100:200]), rel=0.03)
    y = X[:, 0]
    values = FullData((X[:100], y[:100]), (X[100:200], y[100:200])).trial(0)
    spread = [
        math.sqrt(np.mean(RNG.choice(y[100:200] ** 2, 100))) for _ in range(2000)
    ]  # a bootstrap of the RMSE of predicting 0
    assert values.errors[values.score(np.zeros(100))] == pytest.approx(np.std(spread), rel=0.1)


@pytest.mark.parametrize(
    ("scores", "begins"),
    [
        ([[0.9, 0.9]], "a fresh seed gave the same score; if that is no chance, the score"),
        ([[0.9, 0.9], [0.8, 0.8]], "seeds do not matter here, so the score"),
        ([[0.9, 0.9, 0.9]], "seeds do not matter here, so the score"),
        ([[0.9, 0.9], [0.8, 0.7]], ""),
    ],
)
def test_one_pair_of_equal_scores_may_be_chance(scores, begins):
    finalists = [{"config": {"x": k}, "scores": some} for k, some in enumerate(scores)]
    rung = RungReport(name="full", candidates=7, seconds=7.0)
    found = Found(best={"x": 0}, score=0.9, finalists=finalists, rungs=[rung])
    assert found.flattered.startswith(begins)
    assert bool(found.flattered) == bool(begins)
