"""S_val from probes: slopes, weights, and a control with a shuffled truth."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from quick_hcdc import SPACE as GRAPHS
from quick_hcdc import Interrupting, short_recipes, tiny_table
from scipy import optimize, stats
from tiny_graph import tiny_task
from tiny_images import tiny_image_data
from torch import nn
from torch.nn import functional as F

import hcdc.condensers.validation._examples as probing
from hcdc.condensers import (
    Companions,
    Probing,
    Slopes,
    companion_configs,
    condense,
    expectations,
    free_figures,
    learn_examples,
    make_companions,
    mean_loss,
    plan,
    probe_configs,
    rank_targets,
    weigh_examples,
)
from hcdc.condensers.validation._probing import choose_recipe
from hcdc.condensers.validation._weights import clearest, example_losses, fit_weights, with_every_class
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.posterior import Results, expected_scores
from hcdc.core.progress import Progress
from hcdc.core.ranks import spearman
from hcdc.core.recipe import Recipe
from hcdc.core.ridge import ridge
from hcdc.core.seeds import stream
from hcdc.datasets import data
from hcdc.spaces import Finite, NASBench201, PolynomialFilter, halves
from hcdc.tasks import ImageTask
from hcdc.training import Engine, _lanes, predictors

__all__ = ["short_recipes"]

SPACE = NASBench201(channels=2)
TRUTH = [0.5, 0.1, 0.9, 0.3, 0.7]


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


@pytest.fixture(scope="module")
def fourteen(digits):
    """Fourteen cells trained on 20 digits, two repeats each."""
    recipe = Recipe(steps=4, lr=0.05, optimizer="sgd", batch=10, seeds=2)
    train = digits.sample("train", 20, 0)
    cells = SPACE.candidates()[:14]
    return predictors(digits, SPACE, cells, train, recipe, seed=0, role="probe", device="cpu")


@pytest.fixture(scope="module")
def networks(fourteen):
    """Five of them: the probes."""
    return fourteen[:5]


@pytest.fixture(scope="module")
def companions(digits, fourteen):
    """The other nine, and minus their losses on all of T_val."""
    with torch.no_grad():
        scores = [
            -float(torch.stack([digits.loss(outputs, digits.val) for outputs in predict(digits.val)]).mean())
            for predict in fourteen[5:]
        ]
    return Companions(fourteen[5:], scores)


def untrained(task, count=4, repeats=2):
    """Cells with random parameters in float64, as predictors."""
    cells = [task.network(SPACE, config) for config in SPACE.candidates()[:count]]

    def make(net):
        starts = [net.init(torch.Generator().manual_seed(repeat)) for repeat in range(repeats)]
        params = [{name: p.double() for name, p in start.items()} for start in starts]
        return lambda images: torch.stack([net.forward(one, None, images.x) for one in params])

    return [make(net) for net in cells]


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


def test_companions_are_other_candidates_than_the_probes():
    """Of a finite space from the condensing half, after the probes, as many as are left."""
    space = Finite("width", list(range(40)))
    condensing, _ = halves(space, 3)
    probes, beside = probe_configs(space, 6, 3), companion_configs(space, 6, 9, 3)
    assert len({config_hash(config) for config in [*probes, *beside]}) == 15
    assert all(config in condensing for config in beside)
    assert companion_configs(space, 6, 9, 3) == beside
    assert companion_configs(space, 6, 9, 4) != beside
    assert companion_configs(space, 6, 5, 3) == beside[:5]
    assert len(companion_configs(space, 6, 60, 3)) == 14
    assert companion_configs(space, 20, 60, 3) == companion_configs(space, 6, 0, 3) == []


def test_companions_of_an_infinite_space_are_fresh_draws():
    space = PolynomialFilter(order=2, width=4)
    probes, beside = probe_configs(space, 5, 0), companion_configs(space, 5, 7, 0)
    assert len({config_hash(config) for config in [*probes, *beside]}) == 12
    assert companion_configs(space, 5, 7, 0) == beside
    assert companion_configs(space, 5, 7, 1) != beside


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
    assert float(probing.correlation(losses, target)) == pytest.approx(expected, abs=1e-9)
    assert float(probing.correlation(3 * losses + 7, target)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"probes": 3}, "'probes' of method 'hcdc' must be at least 4, got 3"),
        ({"probe_steps": 0}, "'probe_steps' of method 'hcdc' must be at least 1"),
        ({"probe_lr": 0.0}, "'probe_lr' of method 'hcdc' must be more than 0"),
        ({"pool": 0}, "'pool' of method 'hcdc' must be at least 1"),
        ({"ridge": 0.0}, "'ridge' of method 'hcdc' must be more than 0"),
        ({"companions": 3}, "'companions' of method 'hcdc' must be 0 or at least 4, got 3"),
        ({"companions": -1}, "'companions' of method 'hcdc' must be 0 or at least 4, got -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        Probing(**settings)


# --- the recipe on the copy ---------------------------------------------------------------------------------

BASE = Recipe(
    steps=10, lr=0.05, weight_decay=3e-4, seeds=2, metric="loss", optimizer="sgd", batch=20, clip=5.0
)
FOUR = [dataclasses.replace(BASE, steps=steps) for steps in (10, 20, 5, 7)]


def sure(strength, repeats=1):
    """A predictor that says the label with so much confidence: its loss falls as the strength grows."""
    many = torch.as_tensor(strength, dtype=torch.float64).expand(repeats)
    return lambda seen: many[:, None, None] * F.one_hot(seen.y, 10)


def chosen_of(task, strengths, truth=(1, 2, 3, 4), recipes=FOUR, seed=0, **settings):
    """`choose_recipe` where probes have these strengths by recipe, and the recipes they were trained by."""
    asked = []

    def trained(recipe):
        asked.append(recipe)
        return [sure(s) for s in strengths[recipes.index(recipe)]]

    chosen, tried = choose_recipe(task, list(truth), recipes, trained, seed, Probing(**settings))
    assert asked == list(recipes)  # each once, in order
    assert [entry["recipe"] for entry in tried] == [recipe.as_dict() for recipe in recipes]
    assert json.loads(json.dumps(tried, allow_nan=False)) == tried
    return chosen, [entry["probe_spearman"] for entry in tried]


def test_the_recipe_is_taken_by_which_the_probes_are_ranked_best(digits):
    strengths = [[2, 1, 3, 4], [1, 3, 2, 0.5], [0.1, 2, 3, 9], [4, 3, 2, 1]]
    expected = [stats.spearmanr([1, 2, 3, 4], row).statistic for row in strengths]
    chosen, told = chosen_of(digits, strengths)
    assert chosen == FOUR[2]
    assert told == pytest.approx(expected)
    assert told[2] == pytest.approx(1)
    # the truth decides, not the losses
    chosen, told = chosen_of(digits, strengths, truth=(4, 3, 2, 1))
    assert chosen == FOUR[3]
    assert told == pytest.approx([-value for value in expected])


def test_of_equal_recipes_the_first_is_taken(digits):
    rising = [1, 2, 3, 4]
    chosen, told = chosen_of(digits, [[2, 1, 3, 4], rising, [0.1, 0.2, 0.3, 0.4], [1, 5, 6, 7]])
    assert chosen == FOUR[1]
    assert told == pytest.approx([0.8, 1, 1, 1])
    assert chosen_of(digits, [rising] * 4)[0] == FOUR[0]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("strengths", "taken", "told"),
    [
        ([[NAN, 2, 3, 4], [2, 1, 3, 4], [1, 2, 3, 4], [4, 3, 2, 1]], 2, [None, 0.8, 1, -1]),
        ([[1, 2, 3, -INF], [1, 2, NAN, 4], [3, 4, 2, 1], [4, 3, 2, 1]], 2, [None, None, -0.8, -1]),
        ([[NAN, NAN, NAN, NAN], [5, 5, 5, 5], [4, 3, 2, 1], [1, 2, 3, NAN]], 2, [None, None, -1, None]),
        ([[NAN, 2, 3, 4], [5, 5, 5, 5], [NAN, 2, 3, 4], [0, 0, 0, INF]], 0, [None] * 4),
    ],
    ids=["a better one", "however bad", "the worst there is", "none at all"],
)
def test_a_recipe_without_finite_losses_is_not_taken(strengths, taken, told, digits):
    chosen, found = chosen_of(digits, strengths)
    assert chosen == FOUR[taken]
    assert found == [None if value is None else pytest.approx(value) for value in told]


def test_probes_without_an_order_leave_the_first_recipe(digits):
    chosen, told = chosen_of(digits, [[1, 2, 3, 4]] * 4, truth=(2, 2, 2, 2))
    assert chosen == FOUR[0]
    assert told == [None] * 4


@pytest.mark.parametrize(("pool", "count"), [(30, 30), (2000, 539)])
def test_recipes_are_compared_on_real_validation_examples(pool, count, digits):
    """Those of the pool, without gradients, by the mean loss over repeats."""
    picked = torch.randperm(539, generator=stream(3, "pool"))[:count].sort().values
    expected, seen = digits.chosen("val", picked), []
    repeats = [[-2.0, 4.0], [1.9, 1.9], [2.0, 2.1], [0.9, 0.9]]  # the first is once sure, once wrong

    def trained(recipe):
        def make(strengths):
            def predict(images):
                seen.append((images, torch.is_grad_enabled()))
                return sure(strengths, 2)(images)

            return predict

        return [make(strengths) for strengths in repeats]

    losses = [
        np.mean([float(F.cross_entropy(s * F.one_hot(expected.y, 10).double(), expected.y)) for s in row])
        for row in repeats
    ]
    assert losses[0] > losses[3]
    assert np.mean(repeats[0]) > np.mean(repeats[3])
    truth = [0.3, 0.9, 0.8, 0.6]
    _, (told,) = choose_recipe(digits, truth, FOUR[:1], trained, 3, Probing(pool=pool))
    assert told["probe_spearman"] == pytest.approx(stats.spearmanr(truth, -np.array(losses)).statistic)
    assert len(seen) == 4
    for images, graded in seen:
        assert torch.equal(images.x, expected.x)
        assert torch.equal(images.y, expected.y)
        assert not graded


def test_recipes_that_were_tried_are_not_tried_again(digits, fourteen, tmp_path):
    """The best of all is chosen, those of the earlier run among them."""
    with torch.no_grad():
        losses = [float(mean_loss(digits, predict, digits.val)) for predict in fourteen]
    calls = []

    def trained(recipe):
        calls.append(recipe)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fourteen if recipe == FOUR[1] else fourteen[::-1]

    arguments = (digits, [-l for l in losses], FOUR, trained, 0, Probing())
    with pytest.raises(KeyboardInterrupt):
        choose_recipe(*arguments, checkpoint=Checkpoint(tmp_path / "tried", "key"))
    chosen, tried = choose_recipe(*arguments, checkpoint=Checkpoint(tmp_path / "tried", "key"))
    assert calls == [*FOUR[:3], *FOUR[2:]]
    assert chosen == FOUR[1]
    assert [told["recipe"] for told in tried] == [recipe.as_dict() for recipe in FOUR]
    assert tried[1]["probe_spearman"] == pytest.approx(1)


def test_real_predictors_are_compared_by_their_order(digits, fourteen):
    """Fourteen trained cells: the truth is that of one recipe's losses, turned round for the other."""
    with torch.no_grad():
        losses = [float(mean_loss(digits, predict, digits.val)) for predict in fourteen]
    recipes = FOUR[:2]
    trained = {recipes[0]: fourteen[::-1], recipes[1]: fourteen}
    chosen, tried = choose_recipe(digits, [-l for l in losses], recipes, trained.get, 0, Probing())
    assert chosen == recipes[1]
    expected = stats.spearmanr(losses, losses[::-1]).statistic
    assert [t["probe_spearman"] for t in tried] == [pytest.approx(expected), pytest.approx(1)]


AROUND = [{}, {"steps": 20}, {"steps": 5}, {"lr": 0.1}]
AUGMENTED = {"steps": 20, "augment": "crop"}  # a mirror makes other signs of digits


def module(config):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10)
    )


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (lambda: ImageTask(data("digits")), [*AROUND, AUGMENTED, {"statistics": "train"}]),
        (lambda: ImageTask(data("digits"), module), [*AROUND, AUGMENTED]),
        (lambda: ImageTask(data("digits"), "convnet"), [*AROUND, AUGMENTED]),
        (tiny_task, AROUND),
        (tiny_table, AROUND),
    ],
    ids=["cells", "modules", "convnet", "graph", "table"],
)
def test_recipes_around_one(make, changes):
    found = make().recipes_around(BASE)
    assert found == [dataclasses.replace(BASE, **change) for change in changes]
    assert found[0] is BASE


@pytest.mark.parametrize(("steps", "half"), [(1, 1), (2, 1), (3, 1), (5, 2), (156, 78)])
def test_half_of_the_steps_is_one_at_least(steps, half, digits):
    found = digits.recipes_around(dataclasses.replace(BASE, steps=steps))
    assert [recipe.steps for recipe in found] == [steps, 2 * steps, half, steps, 2 * steps, steps]


def test_what_else_a_recipe_says_is_kept(digits):
    other = dataclasses.replace(BASE, lr_end=0.05, statistics="train", metric="accuracy", augment="flip-crop")
    for recipe in digits.recipes_around(other):
        assert recipe.lr_end == 0.05
        assert (recipe.statistics, recipe.metric, recipe.augment) == ("train", "accuracy", "flip-crop")
        assert (recipe.seeds, recipe.batch, recipe.clip) == (2, 20, 5.0)


@pytest.mark.parametrize(("make", "space"), [(tiny_task, GRAPHS), (tiny_table, None)], ids=["graph", "table"])
@pytest.mark.usefixtures("short_recipes")
def test_graphs_and_tables_choose_their_recipe_too(make, space):
    task = make()
    space = space or task.space()
    options = {"probes": 5, "probe_steps": 2, "calibrate": True}
    arguments = {"train_size": 6, "val_size": 9, "val_method": "probes"}
    small = condense(task, space, "hcdc", **arguments, options=options)
    planned = plan(task, space, "hcdc", **arguments, options=options).calibrated
    around = task.recipes_around(planned)
    tried = small.meta["recipes_tried"]
    assert [entry["recipe"] for entry in tried] == [recipe.as_dict() for recipe in around]
    configs, scores = small.meta["probes"]["configs"], small.meta["probes"]["score"]
    for recipe, entry in zip(around, tried):
        networks = predictors(task, space, configs, small.train, recipe, seed=0, role="probe", device="cpu")
        with torch.no_grad():
            losses = [float(mean_loss(task, predict, task.val)) for predict in networks]
        assert entry["probe_spearman"] == pytest.approx(stats.spearmanr(scores, -np.array(losses)).statistic)
    best = max(entry["probe_spearman"] for entry in tried)
    first = next(entry for entry in tried if entry["probe_spearman"] == best)
    assert small.meta["calibrated_recipe"] == first["recipe"]


# --- learned examples ---------------------------------------------------------------------------------------


def double_set(task):
    small = task.sample("val", 6, 0)
    return dataclasses.replace(small, x=small.x.double())


def distance(nets, images, target):
    """1 minus the correlation of minus the losses with the target."""
    losses = [torch.stack([F.cross_entropy(one, images.y) for one in net(images)]).mean() for net in nets]
    values = -torch.stack(losses)
    centred = values - values.mean()
    return 1 - (centred * target).sum() / (centred.norm() * target.norm())


def test_slopes_are_autograd_through_all_networks():
    task = ImageTask(tiny_image_data(1, 4))
    nets, small = untrained(task), double_set(task)
    target = rank_targets([0.3, 0.9, 0.1, 0.6])
    slopes = Slopes(task, nets, small, torch.device("cpu"))
    (reached,), found = slopes([target])

    def objective(x):
        return distance(nets, dataclasses.replace(small, x=x), target)

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
    assert float(slopes([target])[0][0]) == pytest.approx(1 - float(objective(small.x)), abs=1e-9)


def test_slopes_of_groups_are_autograd_through_their_mean_distance():
    """Three candidates, four and two, with targets of their own; groups count equally."""
    task = ImageTask(tiny_image_data(1, 4))
    nets, small = untrained(task, 9), double_set(task)
    truths = [[0.3, 0.9, 0.1], [0.2, 0.4, 0.1, 0.8], [0.5, 0.6]]
    targets = [rank_targets(truth) for truth in truths]
    parts = [nets[:3], nets[3:7], nets[7:]]
    slopes = Slopes(task, nets, small, torch.device("cpu"))
    reached, found = slopes(targets)

    def distances(x):
        seen = dataclasses.replace(small, x=x)
        return torch.stack([distance(part, seen, target) for part, target in zip(parts, targets)])

    x = small.x.clone().requires_grad_()
    each = distances(x)
    torch.testing.assert_close(torch.stack(reached), 1 - each.detach(), rtol=0, atol=1e-9)
    assert not any(r.requires_grad for r in reached)
    (expected,) = torch.autograd.grad(each.mean(), x, retain_graph=True)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-10)
    for k in range(2):  # no group alone; of two candidates the distance is 0 or 2, and its slope 0
        (alone,) = torch.autograd.grad(each[k] / 3, x, retain_graph=True)
        assert float((found - alone).abs().max()) > 1e-4
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        step = 1e-5 * direction
        central = (distances(small.x + step).mean() - distances(small.x - step).mean()) / 2e-5
    assert float((found * direction).sum()) == pytest.approx(float(central), rel=1e-5)
    # the same launches with other groups of the same candidates
    (only,), single = slopes([rank_targets(range(9))])
    value = distance(nets, dataclasses.replace(small, x=x), rank_targets(range(9)))
    assert float(only) == pytest.approx(1 - float(value.detach()), abs=1e-9)
    torch.testing.assert_close(single, torch.autograd.grad(value, x)[0], rtol=1e-6, atol=1e-10)


def test_a_mean_loss_is_over_repeats_with_the_weights_of_examples():
    task = ImageTask(tiny_image_data(1, 4))
    (net,), small = untrained(task, 1, repeats=3), double_set(task)
    weight = torch.rand(len(small), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for data_with in (small, dataclasses.replace(small, weight=weight)):
        outputs = net(data_with)
        assert outputs.shape == (3, 6, 3)
        share = torch.full_like(weight, 1 / 6) if data_with.weight is None else weight / weight.sum()
        each = [(share * F.cross_entropy(one, small.y, reduction="none")).sum() for one in outputs]
        assert float(torch.stack(each).std()) > 1e-3
        torch.testing.assert_close(mean_loss(task, net, data_with), sum(each) / 3, rtol=1e-12, atol=1e-12)


def learn(task, networks, steps=20, start=None, progress=None, path=None, companions=None, **settings):
    config = Probing(probe_steps=steps, **settings)
    phase = (progress or Progress()).phase("S_val from probes", steps)
    start = start or task.sample("val", 20, 0)
    return learn_examples(
        task, networks, TRUTH, start, config, companions=companions, device="cpu", phase=phase,
        checkpoint=Checkpoint(path, "k"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def learned(digits, networks):
    return learn(digits, networks)


def agreement(task, networks, scores, images):
    """Correlation of minus the losses on images with the ranks of scores."""
    with torch.no_grad():
        losses = [
            torch.stack([task.loss(outputs, images) for outputs in predict(images)]).mean()
            for predict in networks
        ]
    return float(probing.correlation(torch.stack(losses), rank_targets(scores).float()))


def test_the_order_of_the_probes_is_learned(digits, networks, learned):
    start = digits.sample("val", 20, 0)
    small, history = learned

    def reached(images):
        return agreement(digits, networks, TRUTH, images)

    assert reached(small) > reached(start) + 0.3
    assert not any("companion_correlation" in entry for entry in history)
    assert [entry["step"] for entry in history] == [10, 20]
    assert history[1]["probe_correlation"] > history[0]["probe_correlation"]
    assert torch.equal(small.y, start.y)
    assert small.weight is None
    assert not small.x.requires_grad
    assert 0.001 < float((small.x - start.x).abs().mean()) < 0.21  # 20 steps of at most about .01


@pytest.fixture(scope="module")
def accompanied(digits, networks, companions):
    return learn(digits, networks, companions=companions)


def test_companions_keep_the_order_that_probes_alone_lose(digits, networks, companions, learned, accompanied):
    start = digits.sample("val", 20, 0)
    small, history = accompanied

    def of_companions(images):
        return agreement(digits, companions.networks, companions.scores, images)

    def of_probes(images):
        return agreement(digits, networks, TRUTH, images)

    assert of_companions(small) > of_companions(learned[0]) + 0.3
    assert of_companions(small) > of_companions(start) + 0.3
    assert of_probes(small) > of_probes(start) + 0.3  # the probes are learned all the same
    assert [entry["step"] for entry in history] == [10, 20]
    assert history[1]["companion_correlation"] > history[0]["companion_correlation"]
    assert history[1]["probe_correlation"] > history[0]["probe_correlation"]
    assert not torch.equal(small.x, learned[0].x)
    assert torch.equal(small.y, start.y)


def test_what_is_said_of_companions_is_their_correlation(digits, networks, companions):
    """At the first step S_val is where it started."""
    start = digits.sample("val", 20, 0)
    _, history = learn(digits, networks, steps=1, companions=companions)
    expected = agreement(digits, companions.networks, companions.scores, start)
    assert history == [
        {
            "step": 1,
            "probe_correlation": pytest.approx(agreement(digits, networks, TRUTH, start), abs=1e-5),
            "companion_correlation": pytest.approx(expected, abs=1e-5),
        }
    ]
    assert len(networks) == 5  # the caller's list is not lengthened


def test_companions_are_a_second_group_of_slopes(digits, networks, companions):
    """A step of Adam from zero is the learning rate against the sign of the slope."""
    start = digits.sample("val", 20, 0)
    slopes = Slopes(digits, [*networks, *companions.networks], start, torch.device("cpu"))
    _, gradient = slopes([rank_targets(TRUTH).float(), rank_targets(companions.scores).float()])
    small, _ = learn(digits, networks, steps=1, companions=companions)
    clear = gradient.abs() > 1e-5
    assert float(clear.float().mean()) > 0.5
    moved = (small.x - start.x)[clear]
    torch.testing.assert_close(moved, -0.01 * gradient[clear].sign(), rtol=0.01, atol=1e-6)


def standard(values):
    return (np.asarray(values) - np.mean(values)) / np.std(values)


def real_scores(predictors, images):
    """Minus the mean loss over repeats, by hand."""
    with torch.no_grad():
        each = [[float(F.cross_entropy(one, images.y)) for one in predict(images)] for predict in predictors]
    return -np.mean(each, 1)


def test_companions_are_scored_by_the_real_loss_and_by_what_is_expected(digits, fourteen, companions):
    """Both standardised; losses are on all of T_val where the pool allows it, else on the pool's examples."""
    expected = np.random.default_rng(0).normal(3, 50, 9)
    found = make_companions(digits, fourteen[5:], expected, 0, Probing())
    assert list(found.networks) == list(companions.networks)
    np.testing.assert_allclose(found.scores, standard(companions.scores) + standard(expected), atol=1e-4)
    assert np.std(standard(companions.scores) - standard(expected)) > 0.5  # both have a say
    picked = torch.randperm(539, generator=stream(3, "pool"))[:30].sort().values
    few = make_companions(digits, fourteen[5:], expected, 3, Probing(pool=30))
    real = real_scores(fourteen[5:], digits.chosen("val", picked))
    np.testing.assert_allclose(few.scores, standard(real) + standard(expected), atol=1e-4)
    assert make_companions(digits, fourteen[5:], expected, 4, Probing(pool=30)).scores != few.scores


def test_candidates_without_a_finite_loss_are_no_companions(digits, fourteen):
    """Neither their loss nor what is expected of them moves the scores of the others."""

    def never(images):
        return torch.where(F.one_hot(images.y, 10).bool(), -INF, 0.0)[None]

    given = [sure(NAN), *fourteen[5:8], never, *fourteen[8:11]]
    expected = np.array([1e6, 0.3, -0.2, 0.9, -1e6, 0.1, 0.0, 0.5])
    assert [np.isfinite(float(mean_loss(digits, one, digits.val))) for one in (given[0], never)] == [
        False
    ] * 2
    found = make_companions(digits, given, expected, 0, Probing())
    assert list(found.networks) == fourteen[5:11]
    real = real_scores(fourteen[5:11], digits.val)
    others = standard(expected[[1, 2, 3, 5, 6, 7]])
    np.testing.assert_allclose(found.scores, standard(real) + others, atol=1e-4)
    assert make_companions(digits, [sure(NAN), *fourteen[:3]], np.arange(4.0), 0, Probing()) is None


def test_where_the_same_is_expected_of_all_the_real_loss_decides(digits, fourteen, companions):
    found = make_companions(digits, fourteen[5:], np.full(9, 0.7), 0, Probing())
    np.testing.assert_allclose(found.scores, standard(companions.scores), atol=1e-3)


def test_few_companions_or_equal_ones_are_none(digits, fourteen):
    def made(networks):
        return make_companions(digits, networks, np.arange(float(len(networks))), 0, Probing())

    assert made([]) is None
    assert made(fourteen[:3]) is None
    assert made(fourteen[:4]) is not None
    assert made(fourteen[:1] * 5) is None


def regressed(at, target, fresh):
    """Ridge regression with penalty 10 on standardised features, in its dual form."""
    centre, scale = np.mean(at, 0), np.std(at, 0)
    told = scale > 0
    a, b = ((np.asarray(part) - centre)[:, told] / scale[told] for part in (at, fresh))
    return b @ a.T @ np.linalg.solve(a @ a.T + 10.0 * np.eye(len(a)), target - np.mean(target))


@pytest.mark.parametrize("space", [SPACE, PolynomialFilter(order=3, width=4)], ids=["cells", "filters"])
def test_expectations_are_a_ridge_regression_of_the_ranks_of_the_probes(space):
    probes, fresh = probe_configs(space, 12, 0), companion_configs(space, 12, 7, 0)
    truth = np.random.default_rng(1).normal(size=12)
    at, there = ([space.features(config) for config in some] for some in (probes, fresh))
    ranks = standard(stats.rankdata(truth))
    found = expectations(space, probes, truth.tolist(), fresh)
    assert found.shape == (7,)
    np.testing.assert_allclose(found, regressed(at, ranks, there), rtol=1e-6, atol=1e-9)
    assert found.std() > 0.05
    np.testing.assert_allclose(expectations(space, probes, np.exp(truth), fresh), found)  # ranks alone
    np.testing.assert_allclose(expectations(space, probes, -truth, fresh), -found, atol=1e-12)
    np.testing.assert_allclose(expectations(space, probes, truth, fresh[3:]), found[3:])


def test_expectations_follow_free_figures_and_probes(digits):
    """The model's, at lambda, features and structure, from the ranks of the probes and the figures."""
    probes, fresh = probe_configs(SPACE, 12, 0), companion_configs(SPACE, 12, 7, 0)
    every = [*probes, *fresh]
    figures = free_figures(digits, SPACE, every)
    assert set(figures) == {"parameters", "skip_path", "no_pool_path", "jacov", "naswot", "synflow"}
    counts = [SPACE.parameter_count(config, digits.features, 10) for config in every]
    np.testing.assert_array_equal(figures["parameters"], counts)
    truth = np.random.default_rng(1).normal(size=12)
    known = np.array(
        [
            [
                *SPACE.encode(c).tolist(),
                *SPACE.features(c),
                *SPACE.structure(c).values(),
                *SPACE.promises(c).values(),
            ]
            for c in every
        ]
    )
    full = Results(np.arange(12), standard(stats.rankdata(truth)))
    found = expectations(SPACE, probes, truth.tolist(), fresh, figures)
    np.testing.assert_allclose(found, expected_scores(known, figures, full=full)[12:])
    assert np.abs(found - expectations(SPACE, probes, (-truth).tolist(), fresh, figures)).max() > 0.01


def test_nothing_is_expected_of_no_candidates():
    """Whatever the probes say; of some candidates the probes need an order."""
    probes = probe_configs(SPACE, 5, 0)
    found = expectations(SPACE, probes, [0.5] * 5, [])
    assert found.shape == (0,)
    with pytest.raises(InputError, match="all probes have the same full-data result"):
        expectations(SPACE, probes, [0.5] * 5, probes[:1])


def test_the_ridge_is_ridge_regression():
    """Of targets with any mean, whose mean is left out; what all the given ones share says nothing."""
    rng = np.random.default_rng(0)
    at, fresh = rng.normal(2, 3, size=(12, 3)), rng.normal(size=(5, 3))
    target = rng.normal(4, size=12)
    a = (at - at.mean(0)) / at.std(0)
    tall = np.vstack([a, np.sqrt(10.0) * np.eye(3)])
    weight = np.linalg.lstsq(tall, np.concatenate([target - target.mean(), np.zeros(3)]), rcond=None)[0]
    expected = ((fresh - at.mean(0)) / at.std(0)) @ weight
    np.testing.assert_allclose(ridge(at, target, fresh), expected, rtol=1e-6)
    shared = np.hstack([at, np.full((12, 1), 0.1)]), np.hstack([fresh, np.arange(5.0)[:, None]])
    np.testing.assert_allclose(ridge(shared[0], target, shared[1]), expected, rtol=1e-5)


def test_companions_without_an_order_are_refused(digits, networks, companions):
    with pytest.raises(InputError, match="there is no order to learn from them"):
        learn(digits, networks, companions=dataclasses.replace(companions, scores=[0.5] * 9))


def test_an_interrupted_run_with_companions_continues_to_the_same_bytes(
    digits, networks, companions, accompanied, tmp_path
):
    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        learn(digits, networks, progress=Interrupting(1), path=path, companions=companions)
    small, history = learn(digits, networks, path=path, companions=companions)
    assert small.x.numpy().tobytes() == accompanied[0].x.numpy().tobytes()
    assert history == accompanied[1]


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
        def __call__(self, *given):
            seen.append(1)
            return super().__call__(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "Slopes", Counting)
        small, history = learn(digits, networks, path=path)
    assert len(seen) == 10  # the first ten are not made again
    assert small.x.numpy().tobytes() == learned[0].x.numpy().tobytes()
    assert history == learned[1]
    again, _ = learn(digits, networks, path=path)
    assert torch.equal(again.x, small.x)


PROBES = {"probes": 5, "probe_steps": 2, "companions": 4}
TRAINING = "probes and companions on the copy"


@pytest.fixture
def trained(monkeypatch):
    """Sizes of what candidates were trained on, one a call; a call takes a minute."""
    seen, now = [], [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def counting(train):
        def many(bound, params, lam, data, *rest):
            seen.append(len(data))
            now[0] += 60
            return train(bound, params, lam, data, *rest)

        return many

    monkeypatch.setattr(_lanes, "train_many", counting(_lanes.train_many))
    return seen


@pytest.mark.parametrize(("calibrate", "early"), [(False, False), (True, True), (True, False)])
@pytest.mark.parametrize(("make", "space"), [(tiny_task, GRAPHS), (tiny_table, None)], ids=["graph", "table"])
@pytest.mark.usefixtures("short_recipes")
def test_interrupted_trainings_on_the_copy_continue(
    make, space, calibrate, early, trained, tmp_path, monkeypatch
):
    """Nothing is trained twice, and no second is lost or counted twice, wherever the run is stopped."""
    task, file = make(), tmp_path / "state"
    arguments = {"train_size": 6, "val_size": 9, "val_method": "probes"}
    arguments["options"] = {**PROBES, "calibrate": calibrate}
    space = space or task.space()
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "a"))
    steps = Interrupting(phase=TRAINING)
    whole = condense(task, space, "hcdc", **arguments, progress=steps)
    assert steps.steps == [f"{k}/9" for k in range(1, 10)]
    everything = sorted(trained)
    assert trained[-9:] == [6] * 9
    assert whole.record["condense_seconds"] == 60 * len(everything)
    assert whole.record["probe_seconds"] == 0
    trained.clear()
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "b"))
    places = [(1, TRAINING), (3, TRAINING), (1, "S_val from probes")]
    for stop, phase in [(1, "full data"), *places] if early else places:
        with pytest.raises(KeyboardInterrupt):
            condense(task, space, "hcdc", **arguments, checkpoint=file, progress=Interrupting(stop, phase))
    small = condense(task, space, "hcdc", **arguments, checkpoint=file)
    assert sorted(trained) == everything
    assert small.to_bytes() == whole.to_bytes()
    known = 60 * everything.count(len(task.train)) if early else 0  # of the probes, by the cache alone
    assert small.record["probe_seconds"] == pytest.approx(known)
    assert small.record["condense_seconds"] == pytest.approx(60 * len(everything) - known)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


@pytest.fixture
def diverging(monkeypatch):
    """A list of candidates that diverge on the full data, to be filled."""
    lost, score = [], Engine.score

    def spoiled(engine, job):
        def spoil(batch):
            bad = {f"{part}.{what}": float("nan") for part in job.parts for what in ("loss", "score")}
            job.on_batch([(c, dataclasses.replace(r, values=bad) if c in lost else r) for c, r in batch])

        return score(engine, dataclasses.replace(job, on_batch=spoil))

    monkeypatch.setattr(Engine, "score", spoiled)
    return lost


@pytest.mark.parametrize("make", [lambda: (tiny_task(), GRAPHS), lambda: (tiny_table(None), None)])
@pytest.mark.usefixtures("short_recipes")
def test_probes_that_diverge_on_the_full_data_are_the_last(make, diverging, tmp_path, monkeypatch, caplog):
    """Of accuracies, and of minus squared errors."""
    task, space = make()
    space = space or task.space()
    arguments = {"train_size": 6, "val_size": 9, "val_method": "probes", "options": {**PROBES, "probes": 6}}
    plain = condense(task, space, "hcdc", **arguments).meta["probes"]
    configs = probe_configs(space, 6, 0)
    diverging += [configs[0], configs[2]]
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path))
    with caplog.at_level("WARNING", "hcdc"):
        small = condense(task, space, "hcdc", **arguments)
    told = (
        f"full data: 2 of {len(configs)} candidates diverged and are ranked last: {configs[0]}, {configs[2]}"
    )
    assert told in caplog.text
    found = small.meta["probes"]
    assert found["configs"] == configs
    others = [k for k in range(6) if k not in (0, 2)]
    assert [found["score"][k] for k in others] == [plain["score"][k] for k in others]
    assert found["score"][0] == found["score"][2] < min(plain["score"])
    assert np.isfinite(small.record["history"][-1]["probe_correlation"])
    assert torch.isfinite(small.val.graph.x if space is GRAPHS else small.val.x).all()


@pytest.mark.parametrize(("lost", "said"), [(3, "3 of 6 probes have a finite loss"), (6, "all 6 candidates")])
@pytest.mark.usefixtures("short_recipes")
def test_too_few_probes_with_a_result_stop_with_a_diagnosis(lost, said, diverging):
    diverging += probe_configs(GRAPHS, 6, 0)[:lost]
    arguments = {"train_size": 6, "val_size": 9, "val_method": "probes", "options": {**PROBES, "probes": 6}}
    with pytest.raises(
        NumericalError, match=rf"^{said}.* the full data.*\(full_recipe lr, now 0.05\) may help$"
    ):
        condense(tiny_task(), GRAPHS, "hcdc", **arguments)


def test_steps_that_overflow_stop_with_a_diagnosis(digits, networks):
    with pytest.raises(NumericalError, match=r"not finite after \d+ steps .*smaller probe_lr \(now 1e\+30\)"):
        learn(digits, networks, steps=3, probe_lr=1e30)


# --- weighted examples --------------------------------------------------------------------------------------


def test_losses_are_those_of_every_example(digits, networks):
    images = digits.sample("val", 10, 0)
    found = example_losses(digits, networks, images)
    assert found.shape == (5, 10)
    with torch.no_grad():
        for row, predict in zip(found, networks):
            outputs = predict(images).double()
            assert outputs.shape == (2, 10, 10)
            each = [-one.log_softmax(1)[torch.arange(10), images.y] for one in outputs]
            np.testing.assert_allclose(row, torch.stack(each).mean(0).numpy(), rtol=1e-5)


def centred(losses):
    """Minus the losses, with columns of mean 0."""
    return -(losses - losses.mean(0, keepdims=True))


def system(a, target, ridge):
    """A, w_0 and the stacked least-squares problem of `fit_weights`, written out."""
    n = a.shape[1]
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
    weight = fit_weights(centred(losses), target, ridge)
    tall, right = system(centred(losses), target, ridge)
    exact, _ = optimize.nnls(tall, right)
    bounded = optimize.lsq_linear(tall, right, (0, np.inf), tol=1e-13).x
    np.testing.assert_allclose(weight, exact, atol=1e-6)
    np.testing.assert_allclose(weight, bounded, atol=1e-5)
    assert (weight >= 0).all()
    assert weight.std() > 1e-3


def test_rows_of_groups_are_taken_as_they_are():
    """Each group is centred by itself beforehand: stacked rows of unequal means are not centred again."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(12, 30)) + 0.5 * rng.normal(size=(1, 30))
    target = rank_targets(rows.mean(1) + 0.3 * rng.normal(size=12)).numpy()
    weight = fit_weights(rows, target, 2.0, steps=2000)
    exact, _ = optimize.nnls(*system(rows, target, 2.0))
    np.testing.assert_allclose(weight, exact, atol=1e-6)
    again, _ = optimize.nnls(*system(centred(-rows), target, 2.0))
    assert np.abs(weight - again).max() > 1e-2


def test_some_weights_are_zero_where_the_penalty_is_small():
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(20, 60))
    target = rank_targets(rng.normal(size=20)).numpy()
    weight = fit_weights(centred(losses), target, 0.5, steps=3000)
    exact, _ = optimize.nnls(*system(centred(losses), target, 0.5))
    assert (exact == 0).sum() > 5
    np.testing.assert_allclose(weight, exact, atol=1e-5)


def test_a_strong_penalty_holds_weights_equal():
    rng = np.random.default_rng(1)
    losses = rng.normal(size=(20, 8)) + rng.normal(size=(20, 1))
    weight = fit_weights(centred(losses), rank_targets(-losses.mean(1)).numpy(), 1e8)
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
        weight = fit_weights(centred(losses[probes]), rank_targets(truth).numpy(), 1.0)
        return spearman(skill[held], -(losses[held] @ weight))

    assert agreement(skill[probes]) > 0.85
    shuffled = [agreement(rng.permutation(skill[probes])) for _ in range(30)]
    assert abs(np.mean(shuffled)) < 0.15
    assert stats.ttest_1samp(shuffled, 0.0).pvalue > 0.01
    assert agreement(-skill[probes]) < -0.85  # it learns what it is told


def weigh(task, networks, truth=TRUTH, size=12, seed=0, companions=None, **settings):
    return weigh_examples(task, networks, truth, size, seed, Probing(**settings), companions)


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
            "probe_spearman": pytest.approx(reached),
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
        def predict(images):
            return (F.one_hot(images.y, 10) * torch.where(images.y == 0, 0.3 * k, 0.5)[:, None])[None]

        return predict

    small, _ = weigh(digits, [make(k) for k in range(5)], truth=range(5), size=20)
    assert int((digits.val.y == 0).sum()) == 53
    assert sorted(small.y.tolist()) == [0] * 11 + list(range(1, 10))
    others = small.weight[small.y > 0]
    assert bool((others > 0).all())  # every class has a say, if a small one


def test_every_class_of_the_pool_is_kept_with_a_weight():
    clear, labels = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0]), np.array([0, 0, 0, 1, 2, 2])
    assert clearest(clear, labels, 4).tolist() == [0, 1, 3, 4]
    assert clearest(clear, labels, 3).tolist() == [0, 3, 4]
    assert clearest(clear, np.zeros(6, int), 4).tolist() == [0, 1, 2, 3]
    given = np.array([2.0, 2.0, 0.0, 0.0])
    found = with_every_class(given, np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(found, np.array([2.0, 2.0, 0.0, 0.01]) / 4.01 * 4)
    np.testing.assert_allclose(with_every_class(given, np.ones(4), np.array([0, 1, 0, 1])), given)


def by_label(labels, count=5):
    """Predictors whose loss falls with their number on examples of these labels, and there alone."""

    def make(k):
        strength = torch.tensor([0.3 * k if label in labels else 0.5 for label in range(10)])
        return lambda images: (F.one_hot(images.y, 10) * strength[images.y][:, None])[None]

    return [make(k) for k in range(count)]


def test_companions_have_a_say_in_which_are_kept(digits):
    """Probes are clear on labels 0 and 1, companions on 1 and 2: label 1 alone is clear on both."""
    networks, beside = by_label((0, 1)), Companions(by_label((1, 2)), range(5))
    assert int((digits.val.y == 1).sum()) >= 10
    small, _ = weigh(digits, networks, truth=range(5), size=19, companions=beside)
    assert sorted(small.y.tolist()) == sorted([1] * 10 + [c for c in range(10) if c != 1])
    alone, _ = weigh(digits, networks, truth=range(5), size=34)
    counts = alone.y.bincount(minlength=10)
    assert counts[:2].min() > 1
    assert counts[2:].tolist() == [1] * 8


@pytest.mark.parametrize("ridge", [10.0, 1.0])
@pytest.mark.parametrize("count", [9, 4])
def test_weights_with_companions_are_those_of_the_stacked_rows(count, ridge, digits, networks, companions):
    """Non-negative least squares on both groups, each centred by itself and with the same sum of squares."""
    some = Companions(companions.networks[:count], companions.scores[:count])
    small, history = weigh(digits, networks, companions=some, ridge=ridge)
    rows, targets = [], []
    for members, scores in ((networks, TRUTH), (some.networks, some.scores)):
        share = np.sqrt(5 / len(members))
        rows.append(share * centred(example_losses(digits, members, small)))
        targets.append(share * rank_targets(scores).numpy())
        assert float(targets[-1] @ targets[-1]) == pytest.approx(5)
    exact, _ = optimize.nnls(*system(np.concatenate(rows), np.concatenate(targets), ridge))
    weight = small.weight.double().numpy()
    np.testing.assert_allclose(weight, exact / exact.mean(), atol=1e-4)
    assert weight.std() > 0.01
    reached = spearman(np.array(TRUTH), rows[0] @ weight)
    assert history[0]["probe_spearman"] == pytest.approx(reached)
    assert history[0]["nonzero"] == int((weight > 0).sum())
    alone, _ = optimize.nnls(*system(rows[0], targets[0], ridge))
    assert np.abs(weight - alone / alone.mean()).max() > 0.01  # companions matter


def test_companions_count_as_much_as_the_probes_however_many_they_are(digits, networks, companions):
    """Each companion four times over: the same weights of the same examples."""
    once, _ = weigh(digits, networks, companions=companions, pool=12)
    often = Companions([*companions.networks] * 4, [*companions.scores] * 4)
    again, _ = weigh(digits, networks, companions=often, pool=12)
    assert torch.equal(again.x, once.x)
    assert float(once.weight.std()) > 0.01
    torch.testing.assert_close(again.weight, once.weight, rtol=1e-4, atol=1e-4)


def test_a_pool_limits_what_is_looked_at(digits, networks):
    few, _ = weigh(digits, networks, pool=1)  # never fewer than asked for
    assert len(few) == 12
    everything, _ = weigh(digits, networks, size=143)
    assert len(everything) == 143


def test_where_no_weights_can_help_it_says_so(digits):
    """Losses that rise with the score on every example."""

    def make(k):
        return lambda images: -0.3 * k * F.one_hot(images.y, 10).float()[None]

    with pytest.raises(NumericalError, match="losses rise with their full-data scores, so no weights rank"):
        weigh(digits, [make(k) for k in range(5)], truth=range(5))
