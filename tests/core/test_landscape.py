"""The Gaussian process of losses and gradients, against finite differences, algebra and known functions."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from hcdc.core.landscape import even_matern, fit_landscape, matern, spread_out


def points(count, dimension=3, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, dimension)))


@pytest.mark.parametrize("kernel", [matern, even_matern])
def test_derivative_blocks_are_finite_differences(kernel):
    a, b, step = points(4), points(5, seed=1), 1e-5
    _, of_a, of_b, mixed = kernel(a, b)
    for i in range(3):
        move = torch.zeros(3, dtype=torch.float64)
        move[i] = step
        up, down = kernel(a + move, b), kernel(a - move, b)
        assert torch.allclose(of_a[..., i], (up[0] - down[0]) / (2 * step), atol=1e-8)
        assert torch.allclose(mixed[..., i, :], (up[2] - down[2]) / (2 * step), atol=1e-8)
        up, down = kernel(a, b + move), kernel(a, b - move)
        assert torch.allclose(of_b[..., i], (up[0] - down[0]) / (2 * step), atol=1e-8)


def test_the_even_kernel_is_even_and_the_plain_one_is_not():
    a, b = points(4), points(5, seed=1)
    assert torch.allclose(even_matern(a, b)[0], even_matern(-a, b)[0])
    assert not torch.allclose(matern(a, b)[0], matern(-a, b)[0])


def function(lam):
    """An even function, quadratic in two directions of very different weight, and its gradient."""
    first, second = np.array([1.0, 1.0, 0.5]), np.array([0.2, -0.2, 0.0])
    u, v = lam @ first, lam @ second
    return u**2 + v**2, 2 * u[:, None] * first + 2 * v[:, None] * second


@pytest.mark.parametrize("even", [False, True])
def test_observations_have_the_covariance_of_one_process(even):
    """The covariance of values and gradients is that of autograd on the kernel, so positive definite."""
    lam = points(6).numpy()
    found = fit_landscape(lam, *function(lam), even=even)
    gram = found._gram(found.logs, found.at, True)
    assert torch.allclose(gram, gram.t(), atol=1e-10)
    assert float(torch.linalg.eigvalsh(gram).min()) > -1e-8
    count, m = 3, 6
    inverse, s2 = torch.exp(-found.logs[:count]), torch.exp(2 * found.logs[count])
    kernel = even_matern if even else matern

    def one(x, y):
        return s2 * kernel((x * inverse)[None], (y * inverse)[None])[0][0, 0]

    for i, j in ((0, 1), (4, 2)):
        x, y = found.at[i], found.at[j]
        mixed = torch.func.jacfwd(torch.func.grad(one, 0), 1)(x, y)
        block = gram[m + count * i : m + count * (i + 1), m + count * j : m + count * (j + 1)]
        assert torch.allclose(block, mixed, atol=1e-8)
        assert torch.allclose(gram[m + count * i : m + count * (i + 1), j], torch.func.grad(one, 0)(x, y))


def test_prediction_is_the_textbook_formula():
    lam = points(5).numpy()
    found = fit_landscape(lam, *function(lam))
    fresh = points(3, seed=2).numpy()
    mean, deviation = found.predict(fresh)
    gram = found._gram(found.logs, found.at, True) + torch.diag(found._noise(found.logs))
    cross = found._gram(found.logs, torch.from_numpy(fresh) @ found.turn, False)
    expected = cross @ torch.linalg.solve(gram, found.target)
    assert mean == pytest.approx(expected.numpy(), abs=1e-8)
    prior = torch.exp(2 * found.logs[3]) + torch.exp(2 * found.logs[6])
    variance = prior - (cross * torch.linalg.solve(gram, cross.t()).t()).sum(1)
    assert deviation == pytest.approx(variance.clamp_min(0).sqrt().numpy(), abs=1e-6)


def test_the_fit_lowers_the_misfit():
    lam = points(8).numpy()
    found = fit_landscape(lam, *function(lam))
    start = dataclasses.replace(found, logs=torch.zeros_like(found.logs))
    assert float(found.misfit(found.logs)) < float(start.misfit(start.logs))


def test_gradients_and_evenness_each_help_to_order_new_points():
    lam, fresh = points(8).numpy(), points(200, seed=3).numpy()
    losses, gradients = function(lam)
    truth = function(fresh)[0]

    def reached(slopes, even):
        mean, _ = fit_landscape(lam, losses, slopes, even=even).predict(fresh)
        return stats.spearmanr(truth, mean)[0]

    plain, sloped, both = reached(None, False), reached(gradients, False), reached(gradients, True)
    assert sloped > plain + 0.1
    assert both > sloped
    assert both > 0.95


def test_uncertainty_grows_with_distance():
    lam = points(8).numpy()
    found = fit_landscape(lam, *function(lam))
    near, far = found.predict(lam)[1], found.predict(lam + 50)[1]
    assert near.max() < far.min()


def test_equal_losses_are_no_error():
    lam = points(5).numpy()
    mean, deviation = fit_landscape(lam, np.ones(5), np.zeros((5, 3))).predict(lam)
    assert np.allclose(mean, 0)
    assert np.isfinite(deviation).all()


def test_scores_correct_a_loss_that_orders_otherwise():
    lam, fresh = points(30).numpy(), points(200, seed=3).numpy()
    losses, gradients = function(lam)

    def score(at):
        return -function(at)[0] - 2 * at[:, 1] ** 2

    plain, _ = fit_landscape(lam, losses, gradients, even=True).predict(fresh)
    found, _ = fit_landscape(lam, losses, gradients, score(lam), even=True).predict(fresh)
    agreement = [stats.spearmanr(score(fresh), -each)[0] for each in (plain, found)]
    assert agreement[1] > agreement[0] + 0.02


@pytest.mark.parametrize("unit", [1e4, 1e-5])
def test_the_unit_of_lambda_does_not_matter(unit):
    rng = np.random.default_rng(0)
    lam, fresh = rng.uniform(-1, 1, (24, 3)), rng.uniform(-1, 1, (60, 3))
    values, slopes = function(lam)
    plain, _ = fit_landscape(lam, values, slopes).predict(fresh)
    other, _ = fit_landscape(lam * unit, values, slopes / unit).predict(fresh * unit)
    assert stats.spearmanr(plain, other).statistic > 0.99
    exact = 2.0**20
    same, _ = fit_landscape(lam * exact, values, slopes / exact).predict(fresh * exact)
    np.testing.assert_array_equal(same, plain)


@pytest.mark.parametrize("even", [False, True])
def test_points_keep_away_from_each_other(even):
    draws = torch.rand(12 * 20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    points = spread_out(draws, 20, torch.ones(2), even)
    assert torch.equal(points[0], draws[0])
    for k in range(1, 12):  # by definition, one group of draws after the other
        before = torch.cat([points[:k], -points[:k]]) if even else points[:k]
        group = draws[20 * k : 20 * k + 20]
        nearest = torch.tensor([min((row - other).norm() for other in before) for row in group])
        assert torch.equal(points[k], group[nearest.argmax()])
    assert torch.equal(spread_out(draws[:100], 20, torch.ones(2), even), points[:5])

    def least(of):
        both = torch.cat([of, -of]) if even else of
        return torch.pdist(both).min()

    assert least(points) > 2 * least(draws[::20])


def test_one_draw_per_point_is_random_and_units_count():
    draws = torch.rand(40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(spread_out(draws, 1, torch.ones(2), False), draws)
    scaled = draws * torch.tensor([1.0, 1000.0])
    same = spread_out(scaled, 8, torch.tensor([1.0, 1000.0]), False)
    assert torch.allclose(same / torch.tensor([1.0, 1000.0]), spread_out(draws, 8, torch.ones(2), False))
    assert not torch.equal(spread_out(scaled, 8, torch.ones(2), False), same)
