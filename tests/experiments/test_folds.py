"""Folds as hyperparameters: losses, gradients by fold, condensing, and a validation set by alignment."""

import pytest
import torch
from torch.func import grad

from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.experiments.reproductions import cross_validation
from hcdc.experiments.reproductions._folds import (
    FoldSet,
    FoldTask,
    Matching,
    class_means,
    condensed,
    fold_gradients,
    fold_scores,
    folded,
    gradient_distance,
    learned_val,
    random_folds,
    trained,
)
from hcdc.experiments.reproductions._frame import Work
from hcdc.experiments.reproductions.cross_validation import ROWS, CrossValidation
from hcdc.hypergrad import exact, hypergradient
from hcdc.networks import ConvNet

FOLDS, CLASSES = 4, 3


def problem(shape=(5,), count=60, net=None):
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(count) % CLASSES
    x = torch.randn(count, *shape, generator=generator) + y.view(-1, *[1] * len(shape))
    data = folded(x, y, FOLDS, torch.Generator().manual_seed(2))
    return FoldTask(shape, CLASSES, FOLDS, net, weight_decay=0.05), data


def test_one_hot_lambda_is_ordinary_cross_validation():
    task, data = problem()
    params, lam = task.init(stream(0, "a")), torch.eye(FOLDS)
    outside, inside = data.subset((data.fold != 2).nonzero().flatten()), data.subset(data.of_fold(2))
    plain = task.losses(task.predict(params, lam[2], outside), outside).mean() + task.penalty(params, lam[2])
    torch.testing.assert_close(task.train_loss(params, lam[2], data), plain)
    validated = task.losses(task.predict(params, lam[2], inside), inside).mean()
    torch.testing.assert_close(task.val_loss(params, lam[2], data), validated)
    without = FoldSet(inside.x, inside.y)
    torch.testing.assert_close(task.val_loss(params, lam[0], without), validated)
    lanes = {name: p.expand(FOLDS, *p.shape) for name, p in params.items()}
    scores = fold_scores(task, lanes, lam, data)
    assert scores["loss"][2] == pytest.approx(float(validated), rel=1e-5)
    right = task.predict(params, lam[2], inside).argmax(1) == inside.y
    assert scores["accuracy"][2] == pytest.approx(float(right.float().mean()))


def test_the_hypergradient_is_the_slope_of_the_optimised_loss():
    """Along a direction within the simplex, by central differences of the retrained loss."""
    task, data = problem()
    data = FoldSet(data.x.double(), data.y, data.fold)

    def optimum(lam):
        params = {name: p.double() for name, p in task.init(stream(0, "a")).items()}
        for _ in range(300):  # full-batch gradient descent on a strongly convex loss
            found = grad(task.train_loss)(params, lam, data)
            params = {name: p - 0.3 * found[name] for name, p in params.items()}
        return params

    lam = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    along = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)
    found = hypergradient(task, optimum(lam), lam, data, data, exact(), "hessian").total @ along
    ends = [float(task.val_loss(optimum(at), at, data)) for at in (lam + 1e-4 * along, lam - 1e-4 * along)]
    assert float(found) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3)
    assert abs(float(found)) > 1e-3


def test_folds_are_disjoint_and_small_sets_keep_them():
    task, data = problem(count=62)
    assert data.fold.bincount().tolist() == [15] * FOLDS
    small = random_folds(task, data, 6, 0)
    assert small.fold.bincount().tolist() == [6] * FOLDS
    assert all(small.y[small.fold == k].bincount().tolist() == [2, 2, 2] for k in range(FOLDS))
    rows = {tuple(row.tolist()) for row in data.x}
    assert {tuple(row.tolist()) for row in small.x} <= rows


def test_gradients_of_folds_and_classes():
    task, data = problem()
    params = task.init(stream(0, "a"))
    x, y = data.x.view(FOLDS, -1, 5), data.y.view(FOLDS, -1)
    found = fold_gradients(task, params, x, y)
    mine = FoldSet(x[1][y[1] == 2], y[1][y[1] == 2])
    expected = grad(lambda p: task.losses(task.predict(p, torch.zeros(0), mine), mine).mean())(params)
    torch.testing.assert_close(found["weight"][1, 2], expected["weight"])
    assert gradient_distance(found, {name: 2 * g for name, g in found.items()}) == pytest.approx(0, abs=1e-3)
    means = class_means(x, y, CLASSES)
    torch.testing.assert_close(means[1, 2], mine.x.mean(0))


@pytest.mark.parametrize("kind", ["gm", "dm"])
def test_condensing_brings_the_distance_down(kind):
    task, data = problem(count=240)
    start = random_folds(task, data, 3, 0)
    made = condensed(task, data, start, kind, Matching(60, 0.05, inner=1), 0)
    assert torch.equal(made.y, start.y)
    assert torch.equal(made.fold, start.fold)
    x, y = data.x.view(FOLDS, -1, 5), data.y.view(FOLDS, -1)

    def distance(small):
        folds, labels = small.x.view(FOLDS, -1, 5), small.y.view(FOLDS, -1)
        if kind == "dm":
            return float((class_means(folds, labels, CLASSES) - class_means(x, y, CLASSES)).square().sum())
        params = task.init(stream(5, "fresh"))
        wanted = fold_gradients(task, params, x, y)
        return float(gradient_distance(fold_gradients(task, params, folds, labels), wanted))

    assert distance(made) < 0.7 * distance(start)


@pytest.mark.parametrize("shape", [(5,), (1, 8, 8)])
def test_alignment_learns_a_validation_set(shape):
    net = ConvNet(1, CLASSES, (8, 8), width=4) if len(shape) == 3 else None
    task, data = problem(shape, 48, net)
    small = random_folds(task, data, 3, 0)
    start = FoldSet(data.x[:6], data.y[:6])
    recipe = Recipe(steps=20, lr=0.02)
    s_val, before, after = learned_val(
        task, data, small, start, recipe, 0, points=2, steps=60, lr=0.05, system=48
    )
    assert after < (0.7 if net is None else 0.9) * before
    assert s_val.x.shape == start.x.shape
    lam = torch.eye(FOLDS)
    scores = fold_scores(task, trained(task, lam, small, recipe, 0), lam, s_val)
    assert len(set(scores["loss"])) == FOLDS


def test_no_ranking_shares_its_start_or_its_batches_with_the_truth(monkeypatch):
    """Early stopping would otherwise be the beginning of the training that judges it."""
    seen = []

    def watched(task, lam, data, recipe, seed, role="folds"):
        seen.append((role, data.x))
        return trained(task, lam, data, recipe, seed, role)

    monkeypatch.setattr(cross_validation, "trained", watched)
    what = CrossValidation.at("smoke")
    (record,) = what.run(what.units([100])[0], Work())
    assert record["methods"].keys() == set(ROWS)
    (role, images), *others = seen
    assert len(others) == len(ROWS)
    assert role not in {other for other, _ in others}
    (early,) = (x for _, x in others if x.shape == images.shape)
    assert not torch.equal(early, images)
    torch.testing.assert_close(early.double().sum(0), images.double().sum(0))
