"""S_val from probes: slopes, weights, and a control with a shuffled truth."""

import dataclasses

import numpy as np
import pytest
import torch
from quick_hcdc import Interrupting
from scipy import optimize, stats
from tiny_images import tiny_image_data
from torch.nn import functional as F

import hcdc.condensers._probing as probing
from hcdc.condensers._probing import (
    Probing,
    Slopes,
    correlation,
    example_losses,
    fit_weights,
    learn_examples,
    probe_configs,
    rank_targets,
    weigh_examples,
)
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.ranks import spearman
from hcdc.core.recipe import Recipe
from hcdc.datasets import data
from hcdc.spaces import Finite, NASBench201, PolynomialFilter, config_hash, halves
from hcdc.tasks import ImageTask
from hcdc.training import predictors

SPACE = NASBench201(channels=2)
TRUTH = [0.5, 0.1, 0.9, 0.3, 0.7]


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


@pytest.fixture(scope="module")
def networks(digits):
    """Five cells trained on 20 digits, two repeats each."""
    recipe = Recipe(steps=4, lr=0.05, optimizer="sgd", batch=10, seeds=2)
    train = digits.sample("train", 20, 0)
    cells = SPACE.candidates()[:5]
    return predictors(digits, SPACE, cells, train, recipe, seed=0, role="probe", device="cpu")


def untrained(task, count=4, repeats=2):
    """Cells with random parameters in float64, as predictors."""
    cells = [task.network(SPACE, config) for config in SPACE.candidates()[:count]]

    def make(net, repeat):
        start = net.init(torch.Generator().manual_seed(repeat))
        params = {name: p.double() for name, p in start.items()}
        return lambda images: net.forward(params, None, images.x)

    return [[make(net, repeat) for repeat in range(repeats)] for net in cells]


# --- probes and targets -------------------------------------------------------------------------------------


def test_probes_of_a_finite_space_come_from_the_condensing_half():
    space = Finite("width", list(range(20)))
    condensing, judging = halves(space, 3)
    probes = probe_configs(space, 6, 3)
    assert len({config_hash(config) for config in probes}) == 6
    assert all(config in condensing for config in probes)
    assert not any(config in judging for config in probes)
    assert probe_configs(space, 6, 3) == probes
    assert probe_configs(space, 6, 4) != probes
    assert sorted(c["width"] for c in probe_configs(space, 10, 3)) == sorted(c["width"] for c in condensing)
    with pytest.raises(InputError, match="'probes' 11: half of space 'finite' has only 10 candidates"):
        probe_configs(space, 11, 3)


def test_probes_of_an_infinite_space_are_fresh_draws():
    space = PolynomialFilter(order=2, width=4)
    probes = probe_configs(space, 5, 0)
    assert len({config_hash(config) for config in probes}) == 5
    assert probe_configs(space, 5, 0) == probes


def test_targets_are_standardised_ranks():
    target = rank_targets([0.3, 10.0, 0.3, -1.0]).numpy()
    ranks = np.array([2.5, 4.0, 2.5, 1.0])
    np.testing.assert_allclose(target, (ranks - ranks.mean()) / ranks.std())
    with pytest.raises(InputError, match="all probes have the same full-data result"):
        rank_targets([0.5, 0.5, 0.5])


def test_correlation_is_pearsons_of_minus_the_losses():
    losses = torch.tensor([0.4, 2.0, 1.1, 0.9], dtype=torch.float64)
    target = rank_targets([4, 1, 2, 3])
    expected = np.corrcoef(-losses.numpy(), target.numpy())[0, 1]
    assert float(correlation(losses, target)) == pytest.approx(expected, abs=1e-9)
    assert float(correlation(3 * losses + 7, target)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"probes": 3}, "'probes' of method 'hcdc' must be at least 4, got 3"),
        ({"probe_steps": 0}, "'probe_steps' of method 'hcdc' must be at least 1"),
        ({"probe_lr": 0.0}, "'probe_lr' of method 'hcdc' must be more than 0"),
        ({"pool": 0}, "'pool' of method 'hcdc' must be at least 1"),
        ({"ridge": 0.0}, "'ridge' of method 'hcdc' must be more than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        Probing(**settings)


# --- learned examples ---------------------------------------------------------------------------------------


def double_set(task):
    small = task.sample("val", 6, 0)
    return dataclasses.replace(small, x=small.x.double())


def test_slopes_are_autograd_through_all_networks():
    task = ImageTask(tiny_image_data(1, 4))
    nets, small = untrained(task), double_set(task)
    target = rank_targets([0.3, 0.9, 0.1, 0.6])
    slopes = Slopes(task, nets, small, torch.device("cpu"))
    reached, found = slopes(target)

    def objective(x):
        losses = [
            torch.stack(
                [F.cross_entropy(net(dataclasses.replace(small, x=x)), small.y) for net in repeats]
            ).mean()
            for repeats in nets
        ]
        values = -torch.stack(losses)
        centred = values - values.mean()
        return 1 - (centred * target).sum() / (centred.norm() * target.norm())

    x = small.x.clone().requires_grad_()
    value = objective(x)
    (expected,) = torch.autograd.grad(value, x)
    assert float(reached) == pytest.approx(1 - float(value.detach()), abs=1e-9)
    assert float(expected.abs().max()) > 1e-4
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-10)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        central = (objective(small.x + 1e-5 * direction) - objective(small.x - 1e-5 * direction)) / 2e-5
    assert float((found * direction).sum()) == pytest.approx(float(central), rel=1e-5)
    small.x.add_(0.1 * direction)  # the tensor is changed in place, as learning does
    assert float(slopes(target)[0]) == pytest.approx(1 - float(objective(small.x)), abs=1e-9)


def learn(task, networks, steps=20, start=None, progress=None, path=None, **settings):
    config = Probing(probe_steps=steps, **settings)
    phase = (progress or Progress()).phase("S_val from probes", steps)
    start = start or task.sample("val", 20, 0)
    return learn_examples(
        task, networks, TRUTH, start, config, device="cpu", phase=phase, checkpoint=Checkpoint(path, "k")
    )


@pytest.fixture(scope="module")
def learned(digits, networks):
    return learn(digits, networks)


def test_the_order_of_the_probes_is_learned(digits, networks, learned):
    start = digits.sample("val", 20, 0)
    small, history = learned
    target = rank_targets(TRUTH).float()

    def reached(images):
        with torch.no_grad():
            losses = [
                torch.stack([digits.loss(net(images), images) for net in repeats]).mean()
                for repeats in networks
            ]
        return float(correlation(torch.stack(losses), target))

    assert reached(small) > reached(start) + 0.3
    assert [entry["step"] for entry in history] == [10, 20]
    assert history[1]["probe_correlation"] > history[0]["probe_correlation"]
    assert torch.equal(small.y, start.y)
    assert small.weight is None
    assert not small.x.requires_grad
    assert 0.001 < float((small.x - start.x).abs().mean()) < 0.21  # 20 steps of at most about .01


def test_where_it_starts_is_not_changed(digits, networks):
    start = digits.sample("val", 20, 0)
    before = start.x.clone()
    learn(digits, networks, steps=1, start=start)
    assert torch.equal(start.x, before)


def test_an_interrupted_run_continues_to_the_same_bytes(digits, networks, learned, tmp_path):
    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        learn(digits, networks, progress=Interrupting(1), path=path)
    assert path.exists()
    seen = []

    class Counting(Slopes):
        def __call__(self, target):
            seen.append(1)
            return super().__call__(target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "Slopes", Counting)
        small, history = learn(digits, networks, path=path)
    assert len(seen) == 10  # the first ten are not made again
    assert small.x.numpy().tobytes() == learned[0].x.numpy().tobytes()
    assert history == learned[1]
    again, _ = learn(digits, networks, path=path)
    assert torch.equal(again.x, small.x)


def test_steps_that_overflow_stop_with_a_diagnosis(digits, networks):
    with pytest.raises(NumericalError, match=r"not finite after \d+ steps .*smaller probe_lr \(now 1e\+30\)"):
        learn(digits, networks, steps=3, probe_lr=1e30)


# --- weighted examples --------------------------------------------------------------------------------------


def test_losses_are_those_of_every_example(digits, networks):
    images = digits.sample("val", 10, 0)
    found = example_losses(digits, networks, images)
    assert found.shape == (5, 10)
    with torch.no_grad():
        for row, repeats in zip(found, networks):
            each = [-net(images).double().log_softmax(1)[torch.arange(10), images.y] for net in repeats]
            np.testing.assert_allclose(row, torch.stack(each).mean(0).numpy(), rtol=1e-5)


def system(losses, target, ridge):
    """A, w_0 and the stacked least-squares problem of `fit_weights`, written out."""
    n = losses.shape[1]
    a = -(losses - losses.mean(0, keepdims=True))
    a = a / np.sqrt(np.mean([column @ column for column in a.T]))
    total = a @ np.ones(n)
    level = max((total @ target) / (total @ total), 1e-6)
    tall = np.vstack([a, np.sqrt(ridge) * np.eye(n)])
    right = np.concatenate([target, np.full(n, np.sqrt(ridge) * level)])
    return tall, right


@pytest.mark.parametrize(("m", "n", "ridge"), [(20, 60, 10.0), (20, 60, 1.0), (30, 10, 10.0), (6, 40, 100.0)])
def test_weights_are_those_of_non_negative_least_squares(m, n, ridge):
    rng = np.random.default_rng(m * n)
    losses = rng.normal(size=(m, n)) + 1.5 * rng.normal(size=(m, 1))
    target = rank_targets(-losses.mean(1) + rng.normal(size=m)).numpy()
    weight = fit_weights(losses, target, ridge)
    tall, right = system(losses, target, ridge)
    exact, _ = optimize.nnls(tall, right)
    bounded = optimize.lsq_linear(tall, right, (0, np.inf), tol=1e-13).x
    np.testing.assert_allclose(weight, exact, atol=1e-6)
    np.testing.assert_allclose(weight, bounded, atol=1e-5)
    assert (weight >= 0).all()
    assert weight.std() > 1e-3


def test_some_weights_are_zero_where_the_penalty_is_small():
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(20, 60))
    target = rank_targets(rng.normal(size=20)).numpy()
    weight = fit_weights(losses, target, 0.5, steps=3000)
    exact, _ = optimize.nnls(*system(losses, target, 0.5))
    assert (exact == 0).sum() > 5
    np.testing.assert_allclose(weight, exact, atol=1e-5)


def test_a_strong_penalty_holds_weights_equal():
    rng = np.random.default_rng(1)
    losses = rng.normal(size=(20, 8)) + rng.normal(size=(20, 1))
    weight = fit_weights(losses, rank_targets(-losses.mean(1)).numpy(), 1e8)
    assert weight.std() / weight.mean() < 1e-4


def test_true_scores_are_recovered_on_candidates_never_seen_and_shuffled_ones_are_not():
    """Losses are linear in a candidate's skill; a third of examples show it, a third the opposite."""
    rng = np.random.default_rng(0)
    skill = rng.normal(size=120)
    slope = np.repeat([-1.0, 1.0, 0.0], 30)  # of the loss: equal weights show nothing
    losses = skill[:, None] * slope + 1.0 * rng.normal(size=(120, 90))
    probes, held = slice(0, 40), slice(40, 120)
    assert abs(spearman(skill[held], -losses[held].mean(1))) < 0.3

    def agreement(truth):
        weight = fit_weights(losses[probes], rank_targets(truth).numpy(), 1.0)
        return spearman(skill[held], -(losses[held] @ weight))

    assert agreement(skill[probes]) > 0.85
    shuffled = [agreement(rng.permutation(skill[probes])) for _ in range(30)]
    assert abs(np.mean(shuffled)) < 0.15
    assert stats.ttest_1samp(shuffled, 0.0).pvalue > 0.01
    assert agreement(-skill[probes]) < -0.85  # it learns what it is told


def weigh(task, networks, truth=TRUTH, size=12, seed=0, **settings):
    return weigh_examples(task, networks, truth, size, seed, Probing(**settings))


def test_weighted_examples_are_real_ones_with_weights_of_mean_one(digits, networks):
    small, history = weigh(digits, networks)
    real = digits.inputs(digits.val.x)
    places = [torch.nonzero((real == x).flatten(1).all(1)).flatten()[:1] for x in small.x]
    places = torch.cat(places)
    assert len(places) == len(places.unique()) == 12
    assert torch.equal(digits.val.y[places], small.y)
    assert bool((small.weight >= 0).all())
    assert float(small.weight.mean()) == pytest.approx(1, rel=1e-5)
    assert small.weight.dtype == small.x.dtype
    reached = spearman(
        np.array(TRUTH), -(example_losses(digits, networks, small) @ small.weight.double().numpy())
    )
    assert history == [
        {
            "step": 1,
            "probe_correlation": pytest.approx(reached),
            "nonzero": int((small.weight > 0).sum()),
        }
    ]
    assert reached > 0.8
    again, _ = weigh(digits, networks)
    assert again.x.numpy().tobytes() == small.x.numpy().tobytes()
    assert again.weight.numpy().tobytes() == small.weight.numpy().tobytes()


def test_those_are_kept_whose_losses_fall_most_clearly(digits):
    """Predictors whose loss on an example falls with the score exactly where the label is 0."""

    def make(k):
        return lambda images: F.one_hot(images.y, 10) * torch.where(images.y == 0, 0.3 * k, 0.5)[:, None]

    small, _ = weigh(digits, [[make(k)] for k in range(5)], truth=range(5), size=10)
    assert int((digits.val.y == 0).sum()) == 14
    assert small.y.tolist() == [0] * 10


def test_a_pool_limits_what_is_looked_at(digits, networks):
    few, _ = weigh(digits, networks, pool=1)  # never fewer than asked for
    assert len(few) == 12
    everything, _ = weigh(digits, networks, size=143)
    assert len(everything) == 143


def test_where_no_weights_can_help_it_says_so(digits):
    """Losses that rise with the score on every example."""

    def make(k):
        return lambda images: -0.3 * k * F.one_hot(images.y, 10).float()

    with pytest.raises(NumericalError, match="losses rise with their full-data scores, so no weights rank"):
        weigh(digits, [[make(k)] for k in range(5)], truth=range(5))
