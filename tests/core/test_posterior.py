"""The model of everything known: against dense Gaussian conditioning, and what it must not depend on."""

import math

import numpy as np
import pytest

from hcdc.core.gaussian import Scales, kernel
from hcdc.core.posterior import (
    BELIEF,
    BESIDE,
    LEVEL,
    USUAL,
    Results,
    corrected,
    expected_scores,
    posterior_mean,
    ranks_summed,
)
from hcdc.core.ranks import spearman, standard, standard_ranks
from hcdc.core.warp import Warp


def columns(count, width, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([standard(column) for column in rng.normal(size=(width, count))], 1)


def conditioned(features, mean, at, known, basis, own):
    """Dense conditioning of a Gaussian on the basis and, if it has one, on a candidate's own result."""
    length, amplitude, noise = USUAL
    scales = Scales(np.full(features.shape[1], length * math.sqrt(features.shape[1])), amplitude, 0.0, noise)
    covariance = kernel(features, features, scales) + LEVEL**2
    found = mean.copy()
    for k in range(len(features)):
        seen = [*basis, *([own[k]] if k in own else [])]
        rows = at[seen]
        within = covariance[np.ix_(rows, rows)] + noise**2 * np.eye(len(rows))
        found[k] += covariance[k, rows] @ np.linalg.inv(within) @ (known[seen] - mean[rows])
    return found


@pytest.mark.parametrize("basis", [None, np.array([0, 2, 5, 6])], ids=["all", "some"])
def test_the_mean_is_that_of_a_gaussian_given_the_results(basis):
    """Results outside the basis inform about their own candidate alone."""
    features, rng = columns(14, 3), np.random.default_rng(1)
    mean, at, scores = 0.4 * rng.normal(size=14), np.array([9, 1, 4, 7, 0, 12, 3]), rng.normal(size=7)
    found = posterior_mean(features, mean, Results(at, scores, basis))
    told = np.arange(7) if basis is None else basis
    prior = mean[at[told]]
    known = Warp(scores[told], prior.mean(), math.sqrt(prior.var() + 1 - mean.var()))(scores)
    own = {int(at[k]): k for k in range(7) if k not in told}
    np.testing.assert_allclose(found, conditioned(features, mean, at, known, list(told), own), atol=1e-9)
    assert np.abs(found - mean).max() > 0.05


def test_a_result_outside_the_basis_moves_no_other_candidate():
    features, rng = columns(80, 2), np.random.default_rng(2)
    values = rng.normal(size=80)
    before = corrected(features, values, np.arange(20, 80))
    values[3] += 5
    moved = np.flatnonzero(np.abs(corrected(features, values, np.arange(20, 80)) - before) > 1e-9)
    assert moved.tolist() == [3]


def test_a_correction_removes_noise():
    features, rng = columns(400, 3), np.random.default_rng(3)
    true = np.sin(features[:, 0]) + 0.5 * features[:, 1] * features[:, 2]
    noisy = true + rng.normal(size=400)
    basis = np.arange(100, 400)
    better = corrected(features, noisy, basis)[:100]
    assert spearman(true[:100], better) > spearman(true[:100], noisy[:100]) + 0.15


def test_ranks_are_summed():
    figures = {"jacov": np.array([3.0, 1.0, 2.0]), "loss": np.array([1.0, 5.0, 5.0])}
    ranks = [standard_ranks(values) for values in figures.values()]
    np.testing.assert_allclose(ranks_summed(figures), ranks[0] + ranks[1])
    np.testing.assert_allclose(ranks_summed(figures, {"loss": 2.0, "other": 9.0}), 2 * ranks[1])


@pytest.fixture
def known():
    """A function of the features; figures that promise part of it, results of a part of the candidates."""
    features, rng = columns(220, 4, seed=4), np.random.default_rng(5)
    true = features @ [1.0, 0.5, -0.5, 0.0] + 0.3 * features[:, 3] ** 2
    figures = {name: true + 2 * rng.normal(size=220) for name in ("parameters", "jacov", "skip_path")}
    return features, figures, true, rng


def test_before_any_training_figures_decide(known):
    features, figures, _, _ = known
    found = expected_scores(features, figures)
    np.testing.assert_allclose(found, standard(ranks_summed(figures)))


def test_trainings_help_and_only_their_order_counts(known):
    features, figures, true, rng = known
    some = Results(np.arange(100, 220), true[100:] + 0.2 * rng.normal(size=120))
    few = Results(np.arange(100, 120), true[100:120])
    reached = [
        spearman(true[:100], expected_scores(features, figures, *given)[:100])
        for given in ((), ((), few), ([some],), ([some], few))
    ]
    assert reached[0] < reached[1] < reached[2]
    assert reached[0] + 0.1 < reached[2]
    assert reached[3] > reached[2] - 0.02
    bent = {name: np.exp(values) for name, values in figures.items()}
    curved = Results(some.index, np.exp(some.scores))
    np.testing.assert_allclose(
        expected_scores(3 * features + 1, bent, [curved]), expected_scores(features, figures, [some])
    )


def test_the_more_short_trainings_explain_the_less_the_other_figures_weigh(known):
    """``skip_path`` is none of those that count beside short trainings."""
    features, figures, true, rng = known
    assert "skip_path" not in BESIDE
    other = {**figures, "skip_path": rng.normal(size=220)}
    told = Results(np.arange(220), true)
    nothing = Results(np.arange(10), rng.normal(size=10))

    def moved(results):
        return np.abs(
            expected_scores(features, figures, [results]) - expected_scores(features, other, [results])
        ).mean()

    assert moved(told) < 0.2 * moved(nothing)


def test_probes_that_promised_much_do_not_lower_the_others(known):
    """Twenty of the best by promise, all as expected: what is expected of the others hardly changes."""
    features, figures, _, _ = known
    before = expected_scores(features, figures)
    best = np.argsort(-before)[:20]
    after = expected_scores(features, figures, full=Results(best, before[best]))
    assert np.abs(after - BELIEF * before)[np.argsort(-before)[20:]].mean() < 0.1
    assert spearman(before, after) > 0.98


def test_constant_features_say_nothing():
    figures = {"jacov": np.arange(8.0)}
    found = expected_scores(np.ones((8, 2)), figures, full=Results(np.array([1, 5]), np.array([0.2, 0.6])))
    assert np.isfinite(found).all()
    assert spearman(np.arange(8.0), found) == pytest.approx(1)
