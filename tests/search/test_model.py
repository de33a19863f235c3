"""The model of a rung: warps, monotone means, calibrated draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from tests.search.problems import Square

from hcdc.search._allocation import TOGETHER, Simulation, allocate, thompson
from hcdc.search._board import Board, Posterior
from hcdc.search._intervals import mean_interval, slope_is_positive
from hcdc.search._regression import Inputs, RungModel, monotone
from hcdc.search._warp import Warp


def test_a_warp_is_monotone_and_inverts():
    scores = np.random.default_rng(0).standard_cauchy(40)
    warp = Warp(scores)
    at = np.sort(
        np.concatenate([scores, scores.min() - np.array([5.0, 1.0]), scores.max() + np.array([1.0, 5.0])])
    )
    assert (np.diff(warp(at)) > 0).all()
    np.testing.assert_allclose(warp.inverse(warp(at)), at, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        np.sort(warp(scores))[[0, -1]], stats.norm.ppf([0.625 / 40.25, 39.625 / 40.25])
    )


def test_a_warp_of_equal_scores():
    warp = Warp(np.array([2.0, 2.0]))
    assert warp(np.array([2.0]))[0] == pytest.approx(0.0)
    assert warp(np.array([3.0]))[0] > 0


def world(n, rng):
    """Normal scores of two rungs: noise is .2 below zero and 1 above; a feature adds to the second."""
    below, feature = rng.standard_normal(n), rng.standard_normal(n)
    spread = np.where(below > 0, 0.8, 0.15)
    target = 0.7 * below + 0.4 * feature + spread * rng.standard_normal(n)
    return Inputs(below, np.empty((n, 0)), feature[:, None]), target


def test_draws_cover_what_comes_and_know_where_they_are_unsure():
    rng = np.random.default_rng(0)
    inside, wide, narrow = [], [], []
    for _ in range(10):
        at, target = world(150, rng)
        model = RungModel(at, target, rng)
        fresh, value = world(400, rng)
        draws = model.draw(fresh, fresh, 200, rng)[0]
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        inside.append(((low <= value) & (value <= high)).mean())
        wide.append((high - low)[fresh.below > 0.7].mean())
        narrow.append((high - low)[fresh.below < -0.7].mean())
    assert 0.86 < np.mean(inside) < 0.95
    assert np.mean(wide) > 2 * np.mean(narrow)


def test_the_mean_is_monotone_in_the_rung_below():
    rng = np.random.default_rng(1)
    below = np.linspace(-2, 2, 60)
    at = Inputs(below, np.empty((60, 0)), np.empty((60, 0)))
    model = RungModel(at, -0.3 * below + 0.1 * rng.standard_normal(60), rng)
    means = model.draw(at, at, 20, rng)[1]
    assert (np.diff(means, axis=1) >= -1e-12).all()


def test_monotone_is_the_running_maximum():
    below, weights = np.array([[0.5, -1.0, 2.0]]), np.array([[1.0, 0.0, 0.0, -3.0]])
    raw = below - 3 * np.maximum(below - 0.7, 0)
    np.testing.assert_allclose(monotone(below, weights)[0], [raw[0, 0], raw[0, 1], raw[0, 0]])


def board(rng, cheap=40, full=12):
    problem = Square(cheap_noise=0.05, grid=15)
    found = Board(problem)
    found.add(problem.candidates())
    order = rng.permutation(len(found.configs))
    for rung, count in zip(problem.rungs, (cheap, full)):
        found.tell(rung.name, rung.run([found.configs[i] for i in order[:count]], 0))
    return found


def test_the_posterior_ranks_what_it_has_not_seen():
    rng = np.random.default_rng(0)
    known = board(rng)
    posterior = Posterior(known, ["cheap", "full"], [], 64, rng)
    truth = np.array([Square.truth(c) for c in known.configs])
    unseen = np.setdiff1d(np.arange(len(truth)), known.scored("cheap"))
    assert stats.spearmanr(posterior.full.mean(0)[unseen], truth[unseen]).statistic > 0.8
    seen = known.scored("full")
    np.testing.assert_allclose(posterior.full[:, seen].std(0), 0, atol=1e-9)


def test_simulations_value_more_full_trainings_more():
    rng = np.random.default_rng(0)
    known = board(rng)
    simulation = Simulation(known, Posterior(known, ["cheap", "full"], [], 64, rng), ["cheap", "full"])
    assert simulation.value([0, 0]) < simulation.value([0, 4]) <= simulation.value([0, 12])
    assert simulation.value([0, 4]) <= simulation.value([60, 4]) + 1e-9


def test_allocations_fit_the_budget_and_the_limits():
    rng = np.random.default_rng(0)
    known, names, prices = board(rng), ["cheap", "full"], {"cheap": 1.0, "full": 20.0}
    simulation = Simulation(known, Posterior(known, names, [], 32, rng), names)
    plan = allocate(simulation, names, prices, 200.0, {"cheap": 30.0, "full": np.inf})
    assert sum(plan.sizes[name] * prices[name] for name in names) <= 200
    assert plan.sizes["cheap"] <= 30
    assert plan.sizes["full"] >= 1
    assert allocate(simulation, names, prices, 19.0, {"cheap": 30.0, "full": np.inf}) is None


def test_thompson_picks_as_often_as_a_candidate_is_best():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4000, 3)) + np.array([0.0, 0.3, -9.0])
    draws[:, :2] -= draws[:, :2].mean(0) - np.array([0.0, 0.3])
    first = [thompson(draws, np.arange(3), 1, rng)[0] for _ in range(2000)]
    share = stats.norm.cdf(0.3 / np.sqrt(2 / TOGETHER))  # the chance that the second's mean is the greater
    assert np.mean(np.array(first) == 1) == pytest.approx(share, abs=0.04)
    assert 2 not in first
    assert sorted(thompson(draws, np.array([2, 0]), 5, rng)) == [0, 2]


def test_a_hint_is_believed_until_scores_say_otherwise():
    rng = np.random.default_rng(0)
    hint = rng.standard_normal((200, 1))
    slopes = []
    for n in (0, 60):
        at = Inputs(None, hint[:n], np.empty((n, 0)))
        model = RungModel(at, -hint[:n, 0], rng, [0.4])
        fresh = Inputs(None, hint, np.empty((200, 0)))
        mean = model.draw(fresh, fresh, 400, rng)[1].mean(0)
        slopes.append(np.polyfit(hint[:, 0], mean, 1)[0])
    assert slopes[0] == pytest.approx(0.4, abs=0.1)
    assert slopes[1] < -0.8


@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_the_evidence_is_that_of_a_dense_covariance(n):
    rng = np.random.default_rng(n)
    at = Inputs(rng.standard_normal(n), rng.standard_normal((n, 1)), rng.standard_normal((n, 6)))
    target = rng.standard_normal(n)
    model = RungModel(at, target, rng)
    columns = model.basis.columns(at, 2.0)
    mean, deviation = model.basis.prior(0.1, 0.4)
    a, rest = columns * deviation, target - columns @ mean
    for scale, value in model._evidence(columns, target, 0.1, 0.4).items():
        dense = a @ a.T + scale**2 * np.eye(n)
        expected = -0.5 * rest @ np.linalg.solve(dense, rest) - 0.5 * np.linalg.slogdet(dense)[1]
        assert value == pytest.approx(expected - 2 * np.log(scale / 0.5) ** 2, rel=1e-8)


def test_draws_of_means_leave_out_the_noise_of_single_candidates():
    rng = np.random.default_rng(0)
    at, target = world(300, rng)
    value, mean = RungModel(at, target, rng).draw(at, at, 100, rng)
    assert mean.std(0).mean() < 0.5 * value.std(0).mean()


def test_interval_of_an_expected_score_covers_it():
    assert mean_interval(1.0, []) == (None, None)
    assert mean_interval(0.9, [0.3, -0.2], (0.0, 1.0))[1] == 1.0
    rng, inside = np.random.default_rng(0), []
    for _ in range(2000):
        runs = rng.standard_normal((3, 2))
        low, high = mean_interval(rng.standard_normal(), list(runs[:, 0] - runs[:, 1]))
        inside.append(low < 0 < high)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)


def test_a_blind_rung_rarely_proves_itself():
    rng = np.random.default_rng(0)
    said = [slope_is_positive(*rng.standard_normal((2, 8))) for _ in range(2000)]
    assert np.mean(said) == pytest.approx(0.01, abs=0.006)  # the test is repeated after each wave
    chosen = []  # promotion by the score below leaves the slope as it is
    for _ in range(500):
        below = np.sort(rng.standard_normal(60))[-8:]
        chosen.append(slope_is_positive(below, rng.standard_normal(8)))
    assert np.mean(chosen) == pytest.approx(0.01, abs=0.012)
    assert slope_is_positive(np.arange(6.0), np.arange(6.0))
    assert not slope_is_positive(np.zeros(6), np.arange(6.0))


def test_a_slope_beside_what_is_given_is_that_of_the_regression_on_both():
    rng = np.random.default_rng(1)
    given, own = rng.standard_normal((2, 30))
    above = given + rng.standard_normal(30)
    ranks = [stats.rankdata(v) for v in (given + 0.5 * own, given, above)]
    inputs = np.stack([ranks[0], ranks[1], np.ones(30)], 1)
    slopes, rest, *_ = np.linalg.lstsq(inputs, ranks[2], rcond=None)
    t = slopes[0] / math.sqrt(rest[0] / 27 * np.linalg.inv(inputs.T @ inputs)[0, 0])
    just = stats.t.cdf(t, 27)
    for level, expected in ((just - 0.01, True), (just + 0.01, False)):
        assert slope_is_positive(given + 0.5 * own, above, level, given[:, None]) is expected


def test_a_copy_of_what_is_given_adds_nothing():
    rng, said, told = np.random.default_rng(0), [], []
    for _ in range(1000):
        given, noise, more = rng.standard_normal((3, 15))
        above = given + 0.5 * more + 0.5 * rng.standard_normal(15)
        said.append(slope_is_positive(given + noise, above, 0.95, given[:, None]))
        told.append(slope_is_positive(given + more, above, 0.95, given[:, None]))
    assert 0.03 < np.mean(said) < 0.1  # ranks of a sum are not the sum of ranks, so the level is not exact
    assert np.mean(told) > 0.7
    assert not slope_is_positive(given, above, 0.95, given[:, None])
    assert slope_is_positive(given, given + 0.1 * more, 0.95, np.zeros((15, 1)))
