"""The model of a rung: warps, monotone means, calibrated draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from tests.search.problems import Square

from hcdc.core.gaussian import Evidence, Scales, kernel, prior_draws
from hcdc.core.warp import Warp
from hcdc.search._allocation import Simulation, _log_improvement, allocate, improving
from hcdc.search._board import Board, Posterior
from hcdc.search._intervals import mean_interval, slope_is_positive
from hcdc.search._regression import Inputs, RungModel, monotone


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


def test_the_first_pick_has_the_greatest_expected_improvement():
    rng = np.random.default_rng(0)
    mean, deviation = rng.uniform(-1, 1, 30), rng.uniform(0.1, 1, 30)
    draws = mean + deviation * rng.standard_normal((200_000, 30))
    exact = np.maximum(draws - 0.5, 0).mean(0)
    assert improving(draws[:400], np.arange(30), 1, 0.5)[0] in np.argsort(-exact)[:2]
    assert improving(draws, np.arange(30), 1, 0.5) == [int(np.argmax(exact))]
    assert sorted(improving(draws[:100], np.array([7, 3]), 5, 0.5)) == [3, 7]


def test_picks_of_one_batch_do_not_repeat_each_other():
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 64, 1))
    twins = one + 0.01 * rng.standard_normal((64, 5))  # five candidates that rise and fall together
    draws = np.concatenate([twins + 0.3, two], 1)
    assert improving(draws, np.arange(6), 2, 0.0)[1] == 5


def test_the_logarithm_of_the_improvement_has_no_gap_and_no_end():
    z = np.linspace(-8, 3, 200)
    exact = [integrate.quad(lambda x, m=m: x * stats.norm.pdf(x, m), 0, 15)[0] for m in z]
    np.testing.assert_allclose(_log_improvement(z)[z > -6], np.log(exact)[z > -6], rtol=1e-6)
    far = _log_improvement(np.array([-6.001, -5.999, -300.0]))
    assert far[0] == pytest.approx(far[1], abs=0.1)
    assert np.isfinite(far[2])


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


def test_without_a_single_score_draws_come_from_the_prior():
    rng = np.random.default_rng(0)
    at = Inputs(rng.standard_normal(50), np.empty((50, 0)), rng.standard_normal((50, 4)))
    model = RungModel(at.take(np.arange(0)), np.empty(0), rng)
    mean = model.draw(at, at, 2000, rng)[1].mean(0)
    assert np.polyfit(at.below, mean, 1)[0] == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize("n", [0, 1, 7, 40, 200])
def test_the_evidence_is_that_of_a_dense_covariance_and_its_gradient_that_of_differences(n):
    rng = np.random.default_rng(n)
    features, rest = rng.standard_normal((n, 5)), rng.standard_normal(n)
    given = 0.3 * np.eye(n) + 0.1
    evidence = Evidence(features, rest, given, 0.6)
    logs = Scales.expected(5, 0.6).logs()
    away = 0.4 * rng.standard_normal(8)
    scales = Scales.of(logs + away)
    dense = given + kernel(features, features, scales) + scales.noise**2 * np.eye(n)
    expected = 0.5 * rest @ np.linalg.solve(dense, rest) + 0.5 * np.linalg.slogdet(dense)[1]
    value, gradient = evidence(logs + away)
    deviations = np.array([1.0] * 5 + [0.7, 1.0, 0.8])
    assert value == pytest.approx(expected + 0.5 * ((away / deviations) ** 2).sum(), rel=1e-9)
    np.testing.assert_allclose(
        gradient, optimize.approx_fprime(logs + away, lambda at: evidence(at)[0], 1e-6), atol=2e-4
    )


def test_draws_of_functions_have_the_covariance_of_the_kernel():
    rng = np.random.default_rng(0)
    features, scales = rng.standard_normal((12, 3)), Scales(np.array([0.5, 2.0, 9.0]), 0.7, 0.4, 0.1)
    draws = np.concatenate([prior_draws(features, scales, 400, rng) for _ in range(40)])
    np.testing.assert_allclose(draws.T @ draws / len(draws), kernel(features, features, scales), atol=0.05)


def test_draws_are_those_of_the_exact_posterior():
    """Without hinges, means and deviations over draws against the dense formulas."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((60, 2))
    truth = np.sin(2 * features[:, 0]) + 0.3 * features[:, 1]
    at = Inputs(None, np.empty((60, 0)), features)
    model = RungModel(at.take(np.arange(25)), truth[:25] + 0.1 * rng.standard_normal(25), rng)
    mean = model.draw(at, at, 6000, rng)[1]
    seen = features[:25]
    noise = np.diag(model._own)
    cross = kernel(features, seen, model.scales) + model.spread[-1] ** 2
    solve = np.linalg.solve(kernel(seen, seen, model.scales) + model.spread[-1] ** 2 + noise, cross.T)
    np.testing.assert_allclose(mean.mean(0), solve.T @ model._rest, atol=1e-8)  # mirrored draws: exact
    own = kernel(features, features, model.scales) + model.spread[-1] ** 2
    np.testing.assert_allclose(mean.var(0), np.diag(own - cross @ solve), rtol=0.25, atol=0.02)


def test_a_full_score_without_a_lower_one_teaches_less():
    rng = np.random.default_rng(0)
    at = Inputs(np.zeros(1), np.empty((1, 0)), np.empty((1, 0)))
    means = [
        RungModel(at, np.ones(1), rng, doubt=np.array([doubt])).draw(at, at, 2, rng)[1].mean()
        for doubt in (0.0, 1.0)
    ]
    assert means[0] > means[1] > 0


def test_new_proposals_take_the_places_of_candidates_that_nobody_scored():
    problem = Square(cheap_noise=0.05, grid=15)
    found, every = Board(problem), problem.candidates()
    found.add(every[:6])
    before = found.features()
    found.tell("cheap", problem.rungs[0].run([every[2]], 0))
    found.renew([every[2], *every[10:14]], keep=[0])
    assert [found.configs[i] for i in (0, 2)] == [every[0], every[2]]
    assert found.configs[1:2] + found.configs[3:6] == every[10:14]
    assert found.add([every[12]]) == [4]
    assert found.add([every[1]]) == [6]
    fresh = Board(problem)
    fresh.add(found.configs)
    np.testing.assert_array_equal(found.features(), fresh.features())
    assert before.shape[1] == fresh.features().shape[1]


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


def test_improvement_is_that_per_second():
    rng = np.random.default_rng(0)
    draws = np.array([0.5, 0.6]) + 0.2 * rng.standard_normal((4000, 2))
    gains = np.maximum(draws, 0).mean(0)
    even = math.log(gains[1] / gains[0])  # at this difference both improve as much per second
    for more, pick in ((0.9 * even, 1), (1.1 * even, 0)):
        assert improving(draws, np.arange(2), 1, 0.0, np.array([0.0, more])) == [pick]
