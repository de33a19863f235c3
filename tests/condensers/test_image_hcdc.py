"""HCDC on images, end to end on a tiny relaxed cell: alignment, and what a plan refuses."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from light_space import LightSpace
from quick_hcdc import Interrupting, content, poor_start, tiny_table
from scipy import stats
from tiny_images import tiny_image_data
from torch import nn

import hcdc.condensers.validation._batched as batched
import hcdc.condensers.validation._run as aligning
import hcdc.condensers.validation._sequential as sequential
import hcdc.condensers.validation._trained as probed
from hcdc.condensers import (
    Alignment,
    Companions,
    Plan,
    companion_configs,
    condense,
    expectations,
    plan,
    probe_configs,
)
from hcdc.condensers.validation import Probes, Weighted
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.datasets import CondensedDataset, Images, data
from hcdc.evaluation import evaluate
from hcdc.networks import gumbel_noise
from hcdc.spaces import Finite, NASBench201, PolynomialFilter, halves
from hcdc.tasks import ImageTask
from hcdc.training import _streams, predictors
from hcdc.truth import TableTruth, Truth
from recipes import change_recipes

SPACE = NASBench201(channels=2)
QUICK = {
    "trajectories": 2,
    "points": 1,
    "holdout": 2,
    "steps": 12,
    "check": 4,
    "batch": 2,
    "nodes": 6,
    "iterations": 2,
    "lr": 0.003,
}


def short_recipe(**settings):
    """Two steps and one initialisation, whatever is asked for."""
    return Recipe(**{**settings, "steps": 2, "seeds": 1, "batch": min(6, settings["batch"])})


@pytest.fixture(scope="module", autouse=True)
def short_recipes():
    with pytest.MonkeyPatch.context() as patch:
        change_recipes(patch, short_recipe)
        poor_start(patch)
        yield


@pytest.fixture(scope="module")
def task():
    return ImageTask(tiny_image_data(1, 4))


def make(task, options=QUICK, seed=0, val_method="aligned", space=SPACE, **arguments):
    return condense(
        task, space, "hcdc", train_size=6, val_size=15, seed=seed, options=options, val_method=val_method,
        **arguments,
    )  # fmt: skip


@pytest.fixture(scope="module")
def aligned(task):
    """A copy, the alignment at each step of S_val, and sizes of what was trained on."""
    losses, sizes = [], []
    step, train_many = aligning.Run.apply, aligning.train_many

    def apply(run, gradient, number, loss):
        losses.append(float(loss))
        step(run, gradient, number, loss)

    def train(bound, params, lam, data, recipe):
        sizes.append(len(data))
        return train_many(bound, params, lam, data, recipe)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligning.Run, "apply", apply)
        patch.setattr(aligning, "train_many", train)
        small = make(task)
    return small, losses, sizes


def test_s_val_is_moved_and_hypergradients_are_aligned(aligned, task):
    small, losses, sizes = aligned
    assert len(losses) == 12
    assert losses[-1] < losses[0] - 0.05
    start = task.sample("val", 15, 0)
    assert torch.equal(small.val.y, start.y)
    assert 0.001 < float((small.val.x - start.x).abs().mean()) < 12 * 0.0031
    assert small.val.weight is None
    held = [look["held_out"] for look in small.record["history"][1:]]
    assert [look["step"] for look in small.record["history"]] == [0, 4, 8, 12]
    assert all(0 <= value <= 2 for value in held)
    assert sorted(sizes) == [6] * 4 + [34] * 4  # two points and two held out: S_train and all of T_train
    random = condense(task, SPACE, "random", train_size=6, val_size=15)
    assert torch.equal(small.train.x, random.train.x)


def test_the_copy_says_how_it_was_made(aligned):
    small = aligned[0]
    meta = small.meta
    condensing_half = {config_hash(config) for config in halves(SPACE, 0)[0]}
    assert set(meta["candidates"]) == condensing_half  # a mixture may hold any of them
    assert len(meta["probes"]["lam"]) == len(meta["probes"]["score"]) == 4
    assert small.record["full_trainings"] == 4
    assert small.record["probe_seconds"] == 0.0
    for lam in meta["probes"]["lam"]:
        edges = torch.tensor(lam).view(6, 5)
        torch.testing.assert_close(edges.sum(1), torch.ones(6))
    assert meta["preset"] == "images"
    assert meta["settings"]["val"]["anchors"] == 0.0
    assert meta["metric"] == "loss"
    again = CondensedDataset.from_bytes(small.to_bytes())
    assert again.to_bytes() == small.to_bytes()


@pytest.mark.parametrize(
    ("nodes", "sizes"), [(6, (6, 15)), (18, (18, 15)), (1, (3, 12)), (100, (27, 15)), (0, (34, 18))]
)
def test_derivatives_are_taken_at_few_images_of_every_class(nodes, sizes, task):
    """One a class at least, of T_val four times as many, and no more than the smallest class has: 9 of
    T_train, 5 of T_val; 0 is all."""
    bound = task.bind(SPACE)
    run = aligning.Run(
        bound, SPACE, task.sample("train", 6, 0), task.sample("val", 6, 0), 0, Alignment(nodes=nodes),
        Recipe(), Recipe(), torch.device("cpu"), Progress(), Checkpoint(None),
    )  # fmt: skip
    drawn = run.original("holdout", 0)
    assert tuple(len(part) for part in drawn) == sizes
    if nodes:
        for part in drawn:
            assert len(part.y.bincount(minlength=3).unique()) == 1
        assert torch.equal(run.original("holdout", 0)[0].x, drawn[0].x)
    curved = run._curved("holdout")
    assert len(curved) == (nodes if 0 < nodes < 6 else 6)


def test_alignment_trains_and_solves_by_the_recipes(task, monkeypatch):
    """Weight decay in training and in the linear systems, augmentation in both, BatchNorm's statistics in the
    loss on S_val; of the original by the full recipe, of the copy by its own."""
    seen = {}
    for name in ("train_many", "batched_best_response", "batched_hypergradient", "anchored_gradient"):
        module = batched if name == "anchored_gradient" else aligning
        plain = getattr(module, name)

        def watched(bound, params, lam, *rest, _name=name, _plain=plain, **more):
            seen.setdefault(_name, []).append((bound, rest))
            return _plain(bound, params, lam, *rest, **more)

        monkeypatch.setattr(module, name, watched)
    recipe = {"weight_decay": 0.07, "augment": "flip-crop", "statistics": "train"}
    few = {**QUICK, "trajectories": 1, "steps": 2, "check": 1}
    small = make(task, few, recipe=recipe)
    assert small.meta["calibrated_recipe"].items() >= recipe.items()
    assert small.meta["relaxed_recipe"]["augment"] == "crop"
    s_train = small.train.x
    for bound, (train, given) in seen["train_many"]:
        original = len(train) == 34
        assert given.weight_decay == bound.weight_decay == (task.weight_decay if original else 0.07)
        assert given.augment == ("crop" if original else "flip-crop")
        if original:
            assert given.as_dict() == small.meta["relaxed_recipe"]
    for bound, (train, *_) in seen["batched_best_response"]:
        assert bound.weight_decay == 0.07
        assert train.x.shape == s_train.shape
        assert not torch.equal(train.x, s_train)  # augmented
    for bound, _ in seen["batched_hypergradient"]:
        assert bound.weight_decay == task.weight_decay
        assert bound.reference is None
    for bound, _ in seen["anchored_gradient"]:
        assert torch.equal(bound.reference, s_train)
    assert content(small) != content(make(task, few, recipe={**recipe, "statistics": "batch"}))
    light = functools.partial(make, task, few, space=LightSpace())
    assert content(light(recipe=recipe)) != content(light(recipe={**recipe, "weight_decay": 3e-4}))


GDAS = {**QUICK, "points": 2, "steps": 4, "check": 2, "relaxation": "gdas"}


@pytest.fixture(scope="module")
def drawn(task):
    """A copy made with drawn operations, what each training was given as (examples, lambda), the reports.

    Its network is light: which operations are drawn, and when, does not depend on what they compute.
    """
    trainings, train_many = [], aligning.train_many

    def train(bound, params, lam, data, recipe):
        trainings.append((len(data), lam.clone()))
        return train_many(bound, params, lam, data, recipe)

    progress = Interrupting()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligning, "train_many", train)
        small = make(task, GDAS, progress=progress, space=LightSpace())
    return small, trainings, progress.reports


def test_one_draw_of_operations_a_point_for_the_original_and_the_copy(drawn, task):
    small, trainings, _ = drawn
    start = task.sample("val", 15, 0)
    assert torch.equal(small.val.y, start.y)
    assert 0.001 < float((small.val.x - start.x).abs().mean()) < 4 * 0.0031
    assert small.meta["settings"]["val"]["relaxation"] == "gdas"
    original, copy = (torch.cat([lam for size, lam in trainings if size == n]) for n in (34, 6))
    assert torch.equal(original, copy)
    assert len(original) == 6  # two held out, then two trajectories at two points
    keys = [("holdout", 0), ("holdout", 1), ("point0", 0), ("point0", 1), ("point1", 0), ("point1", 1)]
    noise = torch.stack([gumbel_noise(stream(0, "gumbel", *key)) for key in keys]).float()
    cells = torch.stack([SPACE.encode(config) for config in halves(SPACE, 0)[0][:2]]).float()
    logits = original - noise
    torch.testing.assert_close(logits[2:4], cells.clamp_min(0.01).log())
    torch.testing.assert_close((logits[4:] - logits[2:4]).norm(dim=1), torch.full((2,), 0.25))  # step_lam
    hard = [SPACE.decode(row) for row in original]
    assert len({config["cell"] for config in hard}) > 2
    encoded = [SPACE.encode(hard[i]).tolist() for i in (2, 3, 4, 5, 0, 1)]
    assert small.meta["probes"]["lam"] == encoded  # what was trained on the original: a cell
    met = {config_hash(config) for config in halves(SPACE, 0)[0]}
    met |= {config_hash(SPACE.counterpart(config)) for config in hard}
    assert set(small.meta["candidates"]) == met


def test_an_interrupted_run_continues_to_the_same_bytes(drawn, task, tmp_path):
    """Stopped among the original hypergradients, and again among the steps of S_val."""
    small, _, reports = drawn
    path = tmp_path / "state"
    for stop in (1, reports - 2):
        with pytest.raises(KeyboardInterrupt):
            make(task, GDAS, checkpoint=path, progress=Interrupting(stop), space=LightSpace())
    saved = {file.name for file in tmp_path.iterdir()}
    assert {"state.original-holdout", "state.original-point0", "state.val"} <= saved
    trained, train_many = [], aligning.train_many

    def counting(bound, params, lam, data, recipe):
        trained.append(len(data))
        return train_many(bound, params, lam, data, recipe)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligning, "train_many", counting)
        continued = make(task, GDAS, checkpoint=path, space=LightSpace())
    assert set(trained) == {6}  # nothing is trained on the original again
    assert content(continued) == content(small)
    assert continued.to_bytes() == small.to_bytes()
    assert list(tmp_path.iterdir()) == []


def test_other_draws_give_other_bytes(task):
    least = {**GDAS, "trajectories": 1, "points": 1, "steps": 1, "check": 1, "iterations": 1}
    light = functools.partial(make, task, space=LightSpace())
    small = content(light(least))
    assert content(light(least)) == small
    assert content(light(least, seed=1)) != small
    assert content(light({**least, "tau": 5.0})) != small
    assert content(light({**least, "relaxation": "softmax"})) != small


def test_algorithm_1_draws_anew_when_lambda_moves(task, monkeypatch):
    seen: dict[str, list[torch.Tensor]] = {"original": [], "copy": []}
    hypergradient, gradient = sequential.batched_hypergradient, sequential.alignment_gradient

    def original(bound, params, lam, *rest, **more):
        if bound.smooth:
            seen["original"].append(lam[0].clone())
        return hypergradient(bound, params, lam, *rest, **more)

    def copy(bound, params, lam, *rest):
        seen["copy"].append(lam[0].clone())
        return gradient(bound, params, lam, *rest)

    monkeypatch.setattr(sequential, "batched_hypergradient", original)
    monkeypatch.setattr(sequential, "alignment_gradient", copy)
    first = {"schedule": "sequential", "response": "shared", "theta_steps": 4, "lam_every": 2}
    small = make(task, {**GDAS, **first, "trajectories": 1}, space=LightSpace())
    assert torch.equal(torch.stack(seen["original"]), torch.stack(seen["copy"]))
    points = torch.stack(seen["copy"])  # a trajectory of four steps
    assert points.shape == (4, 30)
    assert torch.equal(points[0], points[1])
    assert torch.equal(points[2], points[3])
    assert float((points[0] - points[2]).norm()) > 1  # more than two steps of .25
    assert not torch.equal(small.val.x, task.sample("val", 15, 0).x)
    assert len(small.record["history"]) == 1
    assert small.record["full_trainings"] == 0


def test_recipes_of_images(task, monkeypatch):
    change_recipes(monkeypatch, Recipe)
    made = plan(task, SPACE, train_size=30 - 3, val_method="probes", truth_epochs=7)
    assert made.full == Recipe(
        steps=7, lr=0.1, weight_decay=5e-4, optimizer="sgd", batch=32, augment="crop", clip=5.0
    )
    assert made.calibrated == Recipe(
        steps=20, lr=0.05, weight_decay=3e-4, seeds=1, metric="loss", optimizer="sgd", batch=27, clip=5.0
    )
    assert plan(task, SPACE, "random", train_size=6).calibrated.metric == "accuracy"
    assert made.way == Probes(probe_steps=20, ridge=1.0, companions=60)  # the preset of images
    less = plan(task, SPACE, train_size=6, val_method="both", options={"companions": 0}).way
    assert (less.probe_steps, less.companions, less.anchors) == (20, 0, 0.0)


@pytest.mark.parametrize(("epochs", "seeds"), [(1, 1), (20, 5), (75, 16), (999, 16)])
def test_a_trial_on_the_copy_costs_no_more_than_a_full_training(epochs, seeds, task, monkeypatch):
    """By the examples met: an epoch has 32 of 34 images, and 10 epochs on six images are 20 steps of 6."""
    change_recipes(monkeypatch, Recipe)
    made = plan(task, SPACE, train_size=6, truth_epochs=epochs)
    full, small = made.full, made.calibrated
    assert small.seeds == seeds
    assert seeds == 1 or small.seeds * small.steps * small.batch <= full.steps * full.batch
    assert plan(task, SPACE, train_size=6, truth_epochs=epochs, recipe={"seeds": 7}).calibrated.seeds == 7


def test_the_recipe_of_images_may_be_changed(task):
    changes = {"steps": 9, "batch": 5, "augment": "flip-crop", "statistics": "train", "optimizer": "adamw"}
    made = plan(task, SPACE, train_size=6, val_method="probes")
    other = plan(task, SPACE, train_size=6, val_method="probes", recipe=changes)
    assert other.calibrated == dataclasses.replace(made.calibrated, **changes)
    with pytest.raises(InputError, match="augment 'mixup' is not known"):
        plan(task, SPACE, train_size=6, recipe={"augment": "mixup"})


def test_the_recipe_on_the_full_data_may_be_changed(task, monkeypatch):
    change_recipes(monkeypatch, Recipe)
    made = plan(task, SPACE, train_size=6, truth_epochs=7)
    changes = {"lr": 0.3, "augment": "flip-crop", "batch": 10, "seeds": 2}
    other = plan(task, SPACE, train_size=6, truth_epochs=7, full_recipe=changes)
    assert other.full == dataclasses.replace(made.full, **changes, steps=7 * 3)  # of 34 images
    assert other.meta["full_recipe"] == other.full.as_dict()
    assert other.calibrated == made.calibrated
    assert plan(task, SPACE, train_size=6, full_recipe={"steps": 9, "batch": 0}).full.steps == 9
    assert plan(task, SPACE, train_size=6, full_recipe={"batch": 0}, truth_epochs=7).full.steps == 7
    with pytest.raises(InputError, match="full_recipe setting 'metric' is not known"):
        plan(task, SPACE, train_size=6, full_recipe={"metric": "loss"})
    assert plan(task, SPACE, train_size=6, full_recipe={"optimizer": "adam"}).full.optimizer == "adam"
    with pytest.raises(InputError, match="optimizer 'lion' is not known"):
        plan(task, SPACE, train_size=6, full_recipe={"optimizer": "lion"})


def test_coloured_images_are_mirrored_too(task):
    coloured = ImageTask(tiny_image_data(3, 4))
    assert plan(coloured, SPACE, train_size=6).full.augment == "flip-crop"
    assert plan(task, SPACE, train_size=6).full.augment == "crop"


@pytest.mark.parametrize(("count", "batch"), [(1, 32), (30, 51), (300, 256)])
def test_an_epoch_of_many_images_has_larger_batches(task, count, batch, monkeypatch):
    """34 images, so many times."""
    change_recipes(monkeypatch, Recipe)
    train = task.data.train
    many = Images(train.x.repeat(count, 1, 1, 1), train.y.repeat(count))
    big = ImageTask(dataclasses.replace(task.data, train=many))
    assert plan(big, SPACE, "random", train_size=6).full.batch == batch


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"train_size": 6.0}, "train_size 6.0: give a whole number"),
        ({"train_size": "6"}, "train_size '6': give a whole number"),
        ({"train_size": True}, "train_size True: give a whole number"),
        ({"val_size": 4.5}, "val_size 4.5: give a whole number"),
        ({"seed": 1.5}, "seed 1.5: give a whole number"),
        ({"truth_epochs": 0}, "truth_epochs 0: at least 1 is needed"),
        ({"task": "digits"}, "task is str; give a task"),
        ({"space": "nasbench201"}, "space is str; give a space"),
        ({"truth": "table.csv"}, "truth is str; give a table"),
    ],
)
def test_arguments_of_another_kind_are_refused(task, arguments, words):
    given = {"task": task, "space": SPACE, "train_size": 6, **arguments}
    with pytest.raises(InputError, match=words):
        plan(given.pop("task"), given.pop("space"), val_method="probes", **given)


@pytest.mark.parametrize("given", ["digits", (torch.zeros(4, 1, 4, 4), torch.zeros(4)), None])
def test_a_task_of_images_needs_images(given):
    with pytest.raises(InputError, match=rf"data is {type(given).__name__}, not images; pass what hcdc.data"):
        ImageTask(given)


def test_a_table_about_other_images_or_networks_is_refused(task):
    truth = TableTruth(None, "cifar10")
    with pytest.raises(InputError, match=r"cifar10 has 10 classes of 3 x 32 x 32 .* has 3 of 1 x 4 x 4"):
        plan(task, SPACE, train_size=6, val_method="probes", truth=truth)
    with pytest.raises(InputError, match="the task has another model"):
        plan(ImageTask(task.data, FACTORY), SPACE, train_size=6, val_method="probes", truth=truth)


def test_a_table_is_refused_where_there_are_no_images():
    with pytest.raises(InputError, match="results on images, but the task is a table"):
        plan(tiny_table(), tiny_table().space(), train_size=6, truth=TableTruth(None, "cifar10"))


def test_statistics_of_the_training_images_are_refused_before_the_work(task):
    with pytest.raises(InputError, match="full_recipe setting 'statistics' is not known"):
        plan(task, SPACE, train_size=6, full_recipe={"statistics": "train"})
    with pytest.raises(InputError, match="recipe setting statistics 'train': your own modules"):
        plan(ImageTask(task.data, FACTORY), SPACE, train_size=6, recipe={"statistics": "train"})


def test_the_start_is_kept_where_nothing_is_better_and_after_an_interruption(task, tmp_path, monkeypatch):
    monkeypatch.setattr(batched.Batched, "objective", lambda run, held: 1.0 + len(run.history))
    counting = Interrupting(phase="original hypergradients and S_val")
    light = functools.partial(make, task, space=LightSpace())
    small = light(progress=counting)
    start = task.sample("val", 15, 0)
    assert torch.equal(small.val.x, start.x)
    assert [look["held_out"] for look in small.record["history"]] == [1, 2, 3, 4]
    stop = Interrupting(counting.reports - 1, "original hypergradients and S_val")
    with pytest.raises(KeyboardInterrupt):
        light(progress=stop, checkpoint=tmp_path / "run")
    assert light(checkpoint=tmp_path / "run").to_bytes() == small.to_bytes()


def test_weighted_examples_may_be_of_any_class(task):
    """Three classes of 6, 5 and 7 images: 17 cannot be equally many of each."""
    with pytest.raises(InputError, match="class"):
        plan(task, SPACE, train_size=6, val_size=17, val_method="probes")
    assert plan(task, SPACE, train_size=6, val_size=17, val_method="weighted").val_size == 17
    assert plan(task, SPACE, train_size=27, val_method="weighted").val_size == 11
    lacking = task.data.val
    lacking = Images(lacking.x[lacking.y < 2], lacking.y[lacking.y < 2])
    other = ImageTask(dataclasses.replace(task.data, val=lacking))
    assert plan(other, SPACE, train_size=27, val_method="weighted").val_size == 11


def test_a_model_of_your_own_has_a_default_that_works(task):
    for model in (FACTORY, "space"):
        assert plan(ImageTask(task.data, model), SPACE, train_size=6).meta["val_method"] == "real"


def test_sizes_of_images(task):
    assert plan(task, SPACE, "random", train_size=9).val_size == 4  # two fifths
    assert plan(task, SPACE, "random", train_size=3).val_size == 3  # one a class
    crowded = ImageTask(tiny_image_data(1, 4))
    assert plan(crowded, SPACE, "random", train_size=27).val_size == 11
    few = tiny_image_data(1, 4)
    few = type(few)(**{**vars(few), "val": few.train.__class__(few.val.x[:9], torch.arange(9) % 3)})
    assert plan(ImageTask(few), SPACE, "random", train_size=27).val_size == 9  # all that is balanced


PROBING = {"val_method": "probes"}
FACTORY = functools.partial(lambda config: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)))


@pytest.mark.parametrize(
    ("model", "space", "arguments", "words"),
    [
        (
            FACTORY,
            Finite("width", list(range(12))),
            {"val_method": "aligned"},
            "no relaxed network, so there are no",
        ),
        ("space", PolynomialFilter(order=2, width=4), {"method": "random"}, "builds no image network"),
        ("space", SPACE, {"train_size": 30}, "train_size 30 is 10 images per class, but class 1"),
        (
            "space",
            SPACE,
            {"val_method": "aligned", "val_size": 18},
            "val_size 18 is 6 images per class, but class 1",
        ),
        ("space", SPACE, {"method": "random", "val_size": 18}, "val_size 18 is 6 images per class"),
        (
            "space",
            SPACE,
            {"val_method": "aligned", "options": {"fanout": "5"}},
            "of val_method 'aligned' is not for image tasks",
        ),
        (
            "space",
            SPACE,
            {"val_method": "aligned", "options": {"relaxation": "gads"}},
            "'gdas'? choose one of: gdas, softmax",
        ),
        (
            "space",
            SPACE,
            {"val_method": "probes", "options": {"probs": 5}},
            "'probs' is not known; did you mean 'probes'",
        ),
        ("space", SPACE, {**PROBING, "options": {"probes": 2.5}}, "'probes' must be int"),
        ("space", SPACE, {**PROBING, "options": {"calibrate": 1}}, "'probes' must be bool, got 1"),
        ("space", SPACE, {**PROBING, "options": {"calibrate": "true"}}, "must be bool"),
        ("space", SPACE, {**PROBING, "options": {"calibrated": True}}, "did you mean 'calibrate'"),
        ("space", SPACE, {"val_method": "weigthed"}, "did you mean 'weighted'"),
        (
            "space",
            SPACE,
            {"method": "random", "val_method": "probes"},
            "learns S_val, which is method 'hcdc'",
        ),
    ],
)
def test_a_bad_plan_is_refused_before_any_work(model, space, arguments, words, monkeypatch):
    monkeypatch.setattr(Plan, "run", lambda *a, **k: pytest.fail("work was begun"))
    given = {"method": "hcdc", "train_size": 6, **arguments}
    with pytest.raises(InputError) as caught:
        condense(ImageTask(tiny_image_data(1, 4), model), space, **given)
    assert words in str(caught.value)


@pytest.mark.parametrize("val_method", ["aligned", "both", "probes", "weighted"])
def test_one_network_for_all_candidates_has_no_order(val_method, monkeypatch):
    monkeypatch.setattr(Plan, "run", lambda *a, **k: pytest.fail("work was begun"))
    with pytest.raises(InputError, match="model 'convnet' is one network for all candidates of a space"):
        make(ImageTask(tiny_image_data(1, 8), "convnet"), {}, val_method=val_method)
    assert plan(ImageTask(tiny_image_data(1, 8), "convnet"), SPACE, "random", train_size=6)


class Table(Truth):
    """The same result for everybody."""

    def score(self, config, part="val", fidelity=None):
        return 0.5

    def seconds(self, config):
        return 1.0

    def known(self, config):
        return True

    def spec(self):
        return {"name": "fake"}

    def words(self):
        return "table"


def test_a_table_is_for_probes(task):
    with pytest.raises(InputError, match="truth: val_method 'aligned' needs no full-data results of probes"):
        plan(task, SPACE, train_size=6, val_method="aligned", truth=Table())
    with_table = plan(task, SPACE, train_size=6, truth=Table())
    assert with_table.meta["val_method"] == "weighted"
    assert with_table.meta["truth"] == {"name": "fake"}
    assert with_table.meta["metric"] == "loss"
    assert with_table.way == Weighted(probe_steps=20, ridge=1.0, companions=60)
    named = plan(task, SPACE, train_size=6, val_method="weighted", truth=Table())
    assert named.key() == with_table.key()
    probes = plan(task, SPACE, train_size=6, val_method="probes", truth=Table())
    assert probes.meta["val_method"] == "probes"
    assert probes.key() != with_table.key()
    assert plan(task, SPACE, train_size=6).meta["val_method"] == "real"  # without a table
    assert plan(task, SPACE, "random", train_size=6, truth=Table()).meta["val_method"] == "same"
    both = plan(task, SPACE, train_size=6, val_method="both", truth=Table())
    assert both.way.anchors == 0.0  # the probes are the anchors
    assert both.key() != plan(task, SPACE, train_size=6, val_method="both").key()
    for val_method, aligns, probes in (
        ("aligned", True, False),
        ("probes", False, True),
        ("weighted", False, True),
        ("random", False, False),
    ):
        made = plan(task, SPACE, train_size=6, val_method=val_method)
        assert (isinstance(made.way, Alignment), bool(made.way.asked(SPACE, 0))) == (aligns, probes)


def test_both_is_alignment_first_then_probes_from_there(task, monkeypatch):
    moved = dataclasses.replace(task.sample("val", 15, 0), x=torch.full((15, 1, 4, 4), 0.5))
    learned = aligning.Learned(moved, ["aligned"], [{"step": 1}], {"lam": [[0.0]], "score": [0.1]}, 3)
    monkeypatch.setattr("hcdc.condensers.validation.aligned.learn_validation", lambda *a, **k: learned)
    trained, begun, told = [], [], []

    def train(bound, space, configs, train, recipe, **options):
        trained.append(train)
        return [config_hash(config) for config in configs]

    def beside(bound, networks, expected, seed, config, metric):
        told.append(expected)
        return Companions(networks, [0.1] * len(networks))

    def examples(bound, networks, scores, start, config, **options):
        begun.append((networks, scores, start, options["companions"]))
        return dataclasses.replace(start, x=start.x + 1), [{"step": 10}]

    monkeypatch.setattr(probed, "predictors", train)
    monkeypatch.setattr(probed, "check_trained", lambda *a: None)
    monkeypatch.setattr(probed, "make_companions", beside)
    monkeypatch.setattr("hcdc.condensers.validation.probes.learn_examples", examples)
    small = make(task, {"probes": 4, "companions": 5}, val_method="both")
    (networks, scores, start, companions), probes = begun[0], small.meta["probes"]
    assert networks == [config_hash(config) for config in probe_configs(SPACE, 4, 0)]
    assert networks == [config_hash(config) for config in probes["configs"]]
    others = [config_hash(config) for config in companion_configs(SPACE, 4, 5, 0)]
    assert companions.networks == others
    assert len({*networks, *others}) == 9
    wanted = expectations(SPACE, probes["configs"], scores, companion_configs(SPACE, 4, 5, 0))
    assert wanted.std() > 0
    np.testing.assert_array_equal(told[0], wanted)
    assert [torch.equal(part.x, small.train.x) for part in trained] == [True]  # together, on S_train
    assert start is moved
    assert torch.equal(small.val.x, moved.x + 1)
    assert small.record["history"] == [{"step": 1}, {"step": 10}]
    assert small.record["full_trainings"] == 3 + 4
    assert probes["score"] == scores  # those of the probes, not of the trajectories
    assert set(small.meta["candidates"]) == {"aligned", *networks, *others}
    make(task, {"probes": 4, "companions": 0}, val_method="probes")
    assert begun[1][3].networks == []
    assert told[1].shape == (0,)
    assert torch.equal(begun[1][2].x, task.sample("val", 15, 0).x)  # without alignment: real images


# --- the recipe on the copy ---------------------------------------


CALIBRATING = {"probes": 4, "probe_steps": 2, "calibrate": True}


def without_steps(val_method, options):
    """Weights are fitted without steps."""
    dropped = ("probe_steps",) if val_method == "weighted" else ()
    return {name: value for name, value in options.items() if name not in dropped}


TWENTY = {"train_size": 20, "val_size": 10, "truth_epochs": 1}


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


def calibrated(
    task, companions=0, seed=0, val_method="probes", options=CALIBRATING, space=SPACE, **arguments
):
    options = without_steps(val_method, {**options, "companions": companions})
    return condense(
        task, space, "hcdc", **TWENTY, val_method=val_method, seed=seed, options=options, **arguments
    )


def planned(task, val_method="probes", space=SPACE, **options):
    options = without_steps(val_method, {**CALIBRATING, "companions": 0, **options})
    return plan(task, space, "hcdc", **TWENTY, val_method=val_method, options=options)


@pytest.fixture(scope="module", params=[("probes", 0, 1), ("probes", 4, 0), ("weighted", 4, 2)], ids=str)
def copied(request, digits, tmp_path_factory):
    """Val method, number of companions, seed and a copy; by seeds 1 and 2 another recipe than planned."""
    val_method, companions, seed = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HCDC_CACHE", str(tmp_path_factory.mktemp("cache")))
        return *request.param, calibrated(digits, companions, seed, val_method)


def loss_order(task, space, small, recipe, seed=0):
    """Spearman's correlation of full-data scores and minus the losses on T_val of the probes, by hand."""
    probes = small.meta["probes"]
    networks = predictors(
        task, space, probes["configs"], small.train, recipe, seed=seed, role="probe", device="cpu"
    )
    real = task.chosen("val", torch.arange(len(task.val)))
    with torch.no_grad():
        losses = [torch.stack([task.loss(o, real) for o in predict(real)]).mean() for predict in networks]
    return stats.spearmanr(probes["score"], [-float(loss) for loss in losses]).statistic


def test_the_file_has_the_recipe_that_ranks_the_probes_best(copied, digits):
    val_method, companions, seed, small = copied
    tried = small.meta["recipes_tried"]
    around = digits.recipes_around(planned(digits, val_method).calibrated)
    assert [entry["recipe"] for entry in tried] == [recipe.as_dict() for recipe in around]
    assert len(tried) == 6
    for recipe, entry in zip(around, tried):
        assert entry["probe_spearman"] == pytest.approx(loss_order(digits, SPACE, small, recipe, seed))
    reached = [entry["probe_spearman"] for entry in tried]
    assert len(set(reached)) > 1
    best = reached.index(max(reached))
    assert small.meta["calibrated_recipe"] == tried[best]["recipe"]
    assert small.meta["calibrated_recipe"]["metric"] == small.meta["metric"] == "loss"
    assert small.meta["settings"]["val"]["calibrate"] is True
    assert small.meta["settings"]["val"]["companions"] == companions
    assert len(small.meta["candidates"]) == 4 + companions
    assert small.record["full_trainings"] == 4  # the recipes cost none


def test_an_equal_command_gives_an_equal_file(copied, digits):
    val_method, companions, seed, small = copied
    again = calibrated(digits, companions, seed, val_method)
    assert again.to_bytes() == small.to_bytes()
    loaded = CondensedDataset.from_bytes(small.to_bytes())
    assert loaded.meta == small.meta
    assert loaded.to_bytes() == small.to_bytes()


def test_without_calibration_the_recipe_is_the_planned_one(digits):
    small = calibrated(digits, options={**CALIBRATING, "calibrate": False})
    made = planned(digits, calibrate=False)
    assert small.meta["calibrated_recipe"] == made.calibrated.as_dict()
    assert "recipes_tried" not in small.meta
    assert made.way.calibrate is False
    assert planned(digits).way.calibrate is True
    assert planned(digits).key() != made.key()
    assert (
        made.key()
        == plan(
            digits,
            SPACE,
            **TWENTY,
            val_method="probes",
            options={"probes": 4, "probe_steps": 2, "companions": 0},
        ).key()
    )  # it is off where nothing is said


def taking(number, monkeypatch):
    """Let the recipe of that number be chosen; returns it once it is."""
    chosen = []

    def choose(task, truth, recipes, trained, seed, config, *_):
        assert len(truth) == len(trained(recipes[0])) == 4
        chosen.append(recipes[number])
        return recipes[number], [{"recipe": recipes[number].as_dict(), "probe_spearman": 0.5}]

    monkeypatch.setattr(probed, "choose_recipe", choose)
    return chosen


@pytest.mark.parametrize("number", range(6))
def test_probes_and_companions_are_trained_by_the_chosen_recipe(number, digits, monkeypatch):
    chosen, asked = taking(number, monkeypatch), []

    def train(task, space, configs, train, recipe, **options):
        asked.append((configs, recipe))
        assert {key: options[key] for key in ("seed", "role", "device")} == {
            "seed": 0,
            "role": "probe",
            "device": "cpu",
        }
        return [len(configs)] * len(configs)

    monkeypatch.setattr(probed, "predictors", train)
    monkeypatch.setattr(probed, "check_trained", lambda *a: None)
    monkeypatch.setattr(probed, "make_companions", lambda *a: None)
    monkeypatch.setattr(
        "hcdc.condensers.validation.probes.learn_examples",
        lambda task, networks, scores, start, *a, **k: (start, networks),
    )
    small = calibrated(digits, companions=4)
    probes, beside = probe_configs(SPACE, 4, 0), companion_configs(SPACE, 4, 4, 0)
    usual = digits.recipes_around(planned(digits).calibrated)
    assert chosen == [usual[number]]
    assert asked == [(probes, usual[0]), (probes + beside, usual[number])]
    assert small.meta["calibrated_recipe"] == usual[number].as_dict()
    assert small.record["history"] == [8] * 4  # probes alone, of all that were trained together


@pytest.mark.parametrize("number", [1, 5])
def test_evaluation_trains_by_the_chosen_recipe(number, digits, monkeypatch, tmp_path):
    """Twice the steps, and statistics of the training images: scores are those of it, not of the planned."""
    (recipe,) = [digits.recipes_around(planned(digits).calibrated)[number]]
    taking(number, monkeypatch)
    small = CondensedDataset.load(calibrated(digits).save(tmp_path / "copy.hcdc"))
    assert Recipe.from_dict(small.meta["calibrated_recipe"]) == recipe
    judged = evaluate(small, candidates=3, rivals=False)
    losses = {}
    for one in (recipe, planned(digits).calibrated):
        networks = predictors(
            digits, SPACE, judged.configs, small.train, one, seed=0, role="judge", device="cpu"
        )
        losses[one] = [float(digits.loss(predict(small.val)[0], small.val)) for predict in networks]
    assert judged.proxy == pytest.approx([-loss for loss in losses[recipe]], rel=1e-4)
    other = losses[planned(digits).calibrated]
    assert all(abs(a - b) > 1e-4 for a, b in zip(losses[recipe], other))


def test_a_file_from_before_the_setting_is_judged_by_the_batch(digits, tmp_path):
    """Recipes without 'statistics' and settings without 'calibrate'."""
    small = calibrated(digits, options={**CALIBRATING, "calibrate": False})
    meta = json.loads(json.dumps(small.meta))
    for name in ("full_recipe", "calibrated_recipe"):
        assert meta[name].pop("statistics") == "batch"
    assert meta["settings"]["val"].pop("calibrate") is False
    file = CondensedDataset(small.train, small.val, meta).save(tmp_path / "old.hcdc")
    old = CondensedDataset.load(file)
    assert "statistics" not in old.meta["calibrated_recipe"]
    assert Recipe.from_dict(old.meta["calibrated_recipe"]).statistics == "batch"
    one, two = (evaluate(copy, candidates=3, rivals=False) for copy in (small, old))
    for key in ("proxy", "truth", "test", "configs"):
        assert getattr(one, key) == getattr(two, key)


def test_an_interrupted_calibration_continues_to_the_same_bytes(digits, tmp_path, monkeypatch):
    """Stopped at the last step of S_val; full-data results are known by then, and the recipe is chosen."""
    options = {**CALIBRATING, "probe_steps": 11}
    small, known, path = calibrated(digits, options=options), Interrupting(), tmp_path / "state"
    calibrated(digits, options=options, progress=known)
    with pytest.raises(KeyboardInterrupt):
        calibrated(digits, options=options, checkpoint=path, progress=Interrupting(known.reports))
    left = {"state.probes", "state.recipe", "state.scores", *(f"state.network{k}" for k in range(4))}
    assert {file.name for file in tmp_path.iterdir()} == left
    monkeypatch.setattr("hcdc.condensers.validation._probing.spearman", lambda *a: pytest.fail("tried again"))
    again = calibrated(digits, options=options, checkpoint=path)
    assert again.to_bytes() == small.to_bytes()
    assert list(tmp_path.iterdir()) == []


BESIDE = {"probes": 4, "probe_steps": 3, "companions": 5}
TRAINING = "probes and companions on the copy"


@pytest.mark.parametrize("val_method", ["probes", "weighted"])
def test_interrupted_probes_and_companions_are_not_trained_again(val_method, digits, tmp_path, monkeypatch):
    """Stopped after the first batch of two, the third and the last: nine networks are trained in all."""
    trained, train = [], _streams.train_networks
    options = without_steps(val_method, BESIDE)

    def counting(networks, *rest, **options):
        trained.append(len(networks))
        return train(networks, *rest, **options)

    def again(progress=None):
        return condense(
            digits, SPACE, "hcdc", **TWENTY, val_method=val_method, options=options,
            checkpoint=tmp_path / "state", progress=progress,
        )  # fmt: skip

    monkeypatch.setattr(_streams, "train_networks", counting)
    whole = condense(digits, SPACE, "hcdc", **TWENTY, val_method=val_method, options=options)
    assert trained == [2, 2, *[2, 2, 2, 2, 1]]  # four probes on the full data, which the cache knows then
    trained.clear()
    known = 0
    for batches, count in ((1, 2), (2, 6), (2, 9)):
        with pytest.raises(KeyboardInterrupt):
            again(Interrupting(batches, TRAINING))
        networks = [file for file in tmp_path.iterdir() if ".network" in file.name]
        assert len(networks) == count
        known += batches
        assert len(trained) == known
    steps = Interrupting(phase=TRAINING)
    small = again(steps)
    assert trained == [2, 2, 2, 2, 1]
    assert steps.steps == ["9/9"]
    assert small.to_bytes() == whole.to_bytes()
    assert list(tmp_path.iterdir()) == []


def wide(config):
    width = config["width"]
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(), nn.Linear(36 * width, 10)
    )


def test_modules_of_a_user_choose_among_what_they_can(digits):
    """BatchNorm of a module knows the batch alone: no recipe with other statistics is tried."""
    own, space = ImageTask(digits.data, wide), Finite("width", list(range(1, 13)))
    small = calibrated(own, space=space)
    around = own.recipes_around(planned(own, space=space).calibrated)
    tried = small.meta["recipes_tried"]
    assert [entry["recipe"] for entry in tried] == [recipe.as_dict() for recipe in around]
    assert len(tried) == 5
    assert {entry["recipe"]["statistics"] for entry in tried} == {"batch"}
    for recipe, entry in zip(around, tried):
        assert entry["probe_spearman"] == pytest.approx(loss_order(own, space, small, recipe))
    reached = [entry["probe_spearman"] for entry in tried]
    assert small.meta["calibrated_recipe"] == tried[reached.index(max(reached))]["recipe"]


# --- faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("val_method", ["weighted", "probes"])
def test_probes_that_diverge_on_the_copy_are_told_with_the_recipe(val_method, digits):
    given = {"val_method": val_method, "recipe": {"lr": 1e30, "clip": 0.0, "seeds": 1}}
    with pytest.raises(NumericalError, match=r"4 of 4 probes have no finite loss .* now 1e\+30.* now 0"):
        condense(digits, SPACE, "hcdc", **TWENTY, **given, options={"probes": 4, "companions": 0})


def test_probes_that_diverge_by_every_recipe_are_told(digits):
    given = {"val_method": "probes", "recipe": {"lr": 1e30, "clip": 0.0, "seeds": 1}}
    options = {"probes": 4, "companions": 0, "calibrate": True}
    with pytest.raises(NumericalError, match=r"4 of 4 probes have no finite loss"):
        condense(digits, SPACE, "hcdc", **TWENTY, **given, options=options)


def test_more_probes_than_there_are_is_refused_before_the_work(digits):
    with pytest.raises(InputError, match=r"has only \d+ candidates"):
        plan(digits, SPACE, "hcdc", **TWENTY, val_method="weighted", options={"probes": 99999})
