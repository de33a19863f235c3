"""`condense` and `plan`: defaults, ways to make S_val, what is refused, and what is left on disk."""

import dataclasses
import json

import pytest
import torch
from quick_hcdc import QUICK, SPACE, Interrupting, content, make, short_recipes, tiny_table
from reducer_conformance import reduce
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_graph import tiny_task

import hcdc.condensers.validation._run as aligning
from hcdc.condensers import (
    VALIDATIONS,
    Alignment,
    Probing,
    condense,
    make_reducer,
    make_validation,
    plan,
    validation_presets,
)
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset
from hcdc.spaces import GNNZoo, from_spec
from hcdc.testing import set_bytes
from hcdc.training import _lanes
from hcdc.truth import CsvTruth

pytestmark = pytest.mark.usefixtures("short_recipes")
__all__ = ["short_recipes"]


# --- an S_train that is there already ---------------------------------------------------------------------


def test_copies_may_share_one_s_train(tmp_path):
    """It is taken with what it cost, from a file too; S_val is made by the copy's own seed."""
    base = condense(tiny_task(), SPACE, "herding", train_size=6, val_method="random", seed=4)
    kept = CondensedDataset.load(base.save(tmp_path / "base.hcdc"))
    planned = plan(tiny_task(), SPACE, s_train=kept, val_method="random", seed=9)
    small = planned.run()
    assert set_bytes(small.train) == set_bytes(base.train)
    whole = condense(
        tiny_task(), SPACE, "hcdc", train_size=6, train_method="herding", val_method="random", seed=9
    )
    assert set_bytes(small.val) == set_bytes(whole.val)
    assert small.train_seconds == base.train_seconds == kept.train_seconds
    assert small.record["condense_seconds"] == sum(small.record["phases"].values())
    assert small.meta["settings"]["train"] == base.meta["settings"]["train"]
    assert (small.meta["train_method"], small.meta["seed"], small.meta["train_seed"]) == ("herding", 9, 4)
    assert "train_seed" not in base.meta
    assert planned.made(small)
    assert planned.cost().words() == "no full-data training"
    again = condense(tiny_task(), SPACE, "herding", s_train=small, val_method="random", seed=1)
    assert again.meta["train_seed"] == 4
    unknown = dataclasses.replace(base, record={})
    assert (
        condense(tiny_task(), SPACE, s_train=unknown, val_method="random").record["condense_seconds"] is None
    )


def test_a_file_without_later_settings_is_that_of_the_same_command():
    """Only defaults stand for what its version did not have."""

    def planned(method="gcondx", **options):
        given = {"train_size": 6, "val_size": 6, "train_method": method, "val_method": "probes"}
        quick = {"probes": 4, "probe_steps": 2, **options}
        return plan(tiny_task(), SPACE, options=quick, truth_epochs=2, **given)

    def without(part, *names):
        settings = {k: v for k, v in small.meta["settings"][part].items() if k not in names}
        meta = {**small.meta, "settings": {**small.meta["settings"], part: settings}}
        return dataclasses.replace(small, meta=meta)

    small = planned("random").run()
    older = without("val", "factors", "target", "objective")
    assert planned("random").made(small)
    assert planned("random").made(older)
    assert not planned("random", objective="top").made(older)
    assert not planned("random").made(without("val", "probes"))  # the plan has other than the default
    assert not planned("random", probes=5).made(older)
    assert not planned("gcondx").made(older)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train_size": 7}, "train_size 7: s_train has 6; leave it out"),
        ({"train_method": "reach"}, "s_train was made by 'random', not by 'reach'"),
        ({"method": "reach"}, "s_train was made by 'random', not by 'reach'"),
        ({"options": {"train.steps": 3}}, "setting 'train.steps': s_train is made already"),
        ({"task": tiny_table()}, "s_train is a copy of other data"),
    ],
)
def test_an_s_train_that_does_not_fit_is_refused(given, said):
    base = condense(tiny_task(), SPACE, "random", train_size=6, val_method="random")
    given = {"task": tiny_task(), "space": SPACE, "val_method": "random", **given}
    with pytest.raises(InputError, match=said):
        plan(s_train=base, **given)


# --- defaults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["random", "reach", "kcenter", "herding", "gcondx", "gcond", "hcdc"])
def test_what_each_method_does_by_default(method):
    made = plan(tiny_task(), SPACE, method, train_size=6)
    learned = method == "hcdc"
    assert made.meta["train_method"] == ("reach" if learned else method)
    assert made.meta["val_method"] == ("landscape" if learned else "same")
    assert made.val_size == 12  # 6 * 40 / 20
    assert made.meta["metric"] == made.calibrated.metric == ("loss" if learned else "accuracy")
    assert made.meta["seed"] == 0
    assert made.meta["settings"]["train"] == made.reducer.settings()
    json.dumps(made.meta)


def test_the_full_recipe_is_that_of_the_protocol(monkeypatch):
    monkeypatch.undo()
    made = plan(tiny_task(), SPACE, train_size=6)
    assert made.full == Recipe(steps=200, lr=0.01, weight_decay=5e-4, seeds=3, metric="accuracy")
    assert made.calibrated == Recipe(steps=200, lr=0.01, weight_decay=5e-4, seeds=3, metric="loss")


def test_the_recipe_on_the_copy_may_be_changed():
    made = plan(tiny_task(), SPACE, train_size=6)
    changes = {"steps": 7, "lr": 0.5, "seeds": 2, "metric": "accuracy"}
    other = plan(tiny_task(), SPACE, train_size=6, recipe=changes)
    assert other.calibrated == dataclasses.replace(made.calibrated, **changes)
    assert other.full == made.full
    assert other.meta["calibrated_recipe"] == other.calibrated.as_dict()
    assert other.key() != made.key()
    small = condense(tiny_task(), SPACE, "random", train_size=6, recipe={"steps": 3})
    assert small.meta["calibrated_recipe"]["steps"] == 3


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"step": 3}, "recipe setting 'step' is not known.*steps"),
        ({"augment": "crop"}, "recipe setting 'augment' is not known"),  # of graphs
        ({"steps": 0}, "'steps' of a recipe must be at least 1"),
        ({"steps": "many"}, "must be int, got 'many'"),
        ({"lr": -1}, "'lr' of a recipe must be more than 0"),
        ({"metric": "luck"}, "metric 'luck' is not known"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(recipe, words):
    with pytest.raises(InputError, match=words):
        plan(tiny_task(), SPACE, train_size=6, recipe=recipe)


def test_the_default_settings_of_hcdc_are_frozen():
    """The records were made with these."""
    assert make_validation("both", tiny_task()).settings() == {
        "trajectories": 80,
        "points": 2,
        "step_lam": 0.25,
        "holdout": 32,
        "steps": 500,
        "lr": 1e-3,
        "batch": 32,
        "check": 50,
        "patience": 6,
        "distance": "cosine",
        "anchors": 1.0,
        "response": "own",
        "schedule": "batched",
        "solver": "conjugate_gradient",
        "iterations": 10,
        "damping": 1e-3,
        "curvature": "gauss_newton",
        "labels": "proportional",
        "structure": "reach",
        "adjacency": False,
        "factors": 0,
        "repeats": 1,
        "theta_steps": 50,
        "lam_every": 10,
        "val_batch": 0,
        "fanout": "",
        "nodes": 0,
        "relaxation": "softmax",
        "tau": 1.0,
    }


def test_the_settings_of_a_landscape_are_frozen():
    found = make_validation("landscape", tiny_task()).settings()
    chosen = {"trainings": 32, "spread": 16, "companions": 256, "slopes": True, "steps": 120, "lr": 2e-3}
    assert {key: found[key] for key in chosen} == chosen


def test_graphs_take_a_landscape_if_the_space_is_continuous():
    assert plan(tiny_task(), SPACE, train_size=6).meta["val_method"] == "landscape"
    assert plan(tiny_task(), GNNZoo(), train_size=6).meta["val_method"] == "both"
    assert plan(tiny_table(), tiny_table().space(), train_size=6).meta["val_method"] == "both"


def test_presets_are_settings_by_name():
    presets, task = validation_presets(), tiny_task()
    assert {"default", "demo", "paper"} <= set(presets)
    known = {**Alignment().settings(), **Probing().settings()}
    for name, preset in presets.items():
        assert preset["note"]
        assert set(preset["settings"]) <= set(known)
        for way in VALIDATIONS:
            made = make_validation(way, task, name)
            plain = make_validation(way, task).settings()
            chosen = {key: value for key, value in preset["settings"].items() if key in plain}
            assert made.settings() == {**plain, **chosen}
    assert presets["images"]["settings"]["points"] > 1  # or no trajectory takes a step
    paper = make_validation("aligned", task, "paper")
    assert (paper.response, paper.schedule, paper.distance, paper.anchors) == (
        "shared",
        "sequential",
        "cosine",
        0.0,
    )
    assert make_validation("aligned", task, "paper", {"iterations": 3}).iterations == 3


def test_a_table_has_its_own_defaults():
    task = tiny_table()
    assert plan(task, task.space(), train_size=6).meta["train_method"] == "random"
    values = tiny_table(None)
    made = plan(values, values.space(), "random", train_size=6)
    assert made.full.metric == made.calibrated.metric == "loss"


def test_full_data_results_of_a_benchmark_are_for_images_alone(tmp_path):
    """Elsewhere the default way to make S_val stays what it is, and needs none."""
    table = tiny_table()
    (tmp_path / "known.csv").write_text("lr,val\n0.1,0.5\n")
    for task, space, way in ((tiny_task(), SPACE, "landscape"), (table, table.space(), "both")):
        with pytest.raises(InputError, match=f"truth: val_method '{way}' needs no full-data results"):
            plan(task, space, train_size=6, truth=CsvTruth(tmp_path / "known.csv"))


def test_val_size_has_the_classes_and_no_more_than_there_are():
    assert plan(tiny_task(), SPACE, train_size=20).val_size == 40
    assert plan(tiny_task(), SPACE, train_size=3).val_size == 6
    assert plan(tiny_task(), SPACE, train_size=3, val_size=5).val_size == 5


def test_equal_plans_have_equal_keys():
    keys = {plan(tiny_task(), SPACE, train_size=n, seed=s).key() for n in (6, 7) for s in (0, 1)}
    assert len(keys) == 4
    assert plan(tiny_task(), SPACE, train_size=6).key() in keys


# --- ways to make S_val -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["random", "kcenter", "hcdc"])
@pytest.mark.parametrize("val_method", ["same", "random", "real"])
def test_s_val_that_is_not_learned(method, val_method):
    task = tiny_task()
    options = {"steps": 5} if method == "kcenter" else {}
    small = make(task, method=method, val_method=val_method, options=options)
    reducer = make_reducer("reach" if method == "hcdc" else method, **options)
    assert set_bytes(small.train) == set_bytes(reduce(reducer, task, "train", 6))
    if val_method == "real":
        assert small.val is None
    elif val_method == "random":
        assert set_bytes(small.val) == set_bytes(task.sample("val", 9, 0))
    else:
        assert set_bytes(small.val) == set_bytes(reduce(reducer, task, "val", 9))
    assert small.meta["metric"] == "accuracy"
    assert small.meta["candidates"] == []


def test_aligned_is_both_without_anchors():
    aligned, both = make(val_method="aligned"), make(val_method="both")
    assert aligned.meta["settings"]["val"]["anchors"] == 0.0
    assert both.meta["settings"]["val"]["anchors"] == 1.0
    assert content(aligned) != content(both)
    assert content(aligned) == content(make(val_method="both", options={**QUICK, "anchors": 0.0}))
    assert {aligned.meta["metric"], both.meta["metric"]} == {"loss"}


def test_the_record_and_the_file(tmp_path):
    small = make()
    record = small.record
    assert record["condense_seconds"] == pytest.approx(sum(record["phases"].values()))
    assert set(record["phases"]) == {"train", "val"}
    assert [entry["step"] for entry in record["history"]] == [0, 1, 2, 3, 4]
    assert record["environment"]["device"].startswith("cpu")
    again = CondensedDataset.load(small.save(tmp_path / "a.hcdc"))
    assert content(again) == content(small)
    assert again.meta == small.meta
    assert from_spec(again.meta["space"]) == SPACE
    assert (again.meta["train_size"], again.meta["val_size"]) == (6, 9)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "hcd"}, "method 'hcd' is not known; did you mean 'hcdc'?"),
        ({"train_method": "gcon"}, "train_method 'gcon' is not known; did you mean 'gcond'?"),
        ({"train_method": "hcdc"}, "train_method 'hcdc' is not known"),
        ({"val_method": "align"}, "val_method 'align' is not known; did you mean 'aligned'?"),
        ({"preset": "papers"}, "preset of method 'hcdc' 'papers' is not known; did you mean 'paper'?"),
        ({"method": "gcond", "preset": "corra"}, "preset of method 'gcond' 'corra' is not known"),
        ({"method": "random", "val_method": "both"}, "method 'hcdc' with train_method 'random'"),
        ({"method": "random", "train_method": "gcond"}, "method 'random' makes S_train itself"),
        ({"options": {"epochs": 3}}, "setting of val_method 'landscape' 'epochs' is not known"),
        ({"method": "gcond", "options": {"epoch": 3}}, "did you mean 'epochs'?"),
        ({"method": "random", "options": {"epochs": 3}}, "method 'random' has no settings"),
        ({"options": {"steps": "many"}}, "setting 'steps' of val_method 'landscape' must be int, got 'many'"),
        ({"train_size": 2}, "train_size 2: there are 3 classes, so at least 3 are needed; try 15"),
        ({"train_size": 21}, "train_size 21: the original has only 20 such examples"),
        ({"val_size": 2}, "val_size 2: there are 3 classes"),
        ({"val_size": 41}, "val_size 41: the original has only 40"),
        ({"val_size": 0}, "val_size 0: there are 3 classes"),
        ({"seed": -1}, "seed -1: at least 0 is needed"),
    ],
)
def test_a_bad_argument_is_one_sentence_and_nothing_is_written(arguments, words, tmp_path):
    given = {"train_size": 6, "method": "hcdc", "checkpoint": tmp_path / "run.ckpt", **arguments}
    with pytest.raises(InputError) as error:
        condense(tiny_task(), SPACE, **given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_sizes_of_a_table_of_values():
    task = tiny_table(None)
    with pytest.raises(InputError, match="train_size 0: at least 1 is needed; try 5"):
        plan(task, task.space(), train_size=0)


@pytest.mark.parametrize("method", ["gcond", "gcondx", "reach"])
def test_methods_for_graphs_refuse_tables(method):
    task = tiny_table()
    with pytest.raises(InputError, match=f"method '{method}' condenses graphs"):
        condense(task, task.space(), method, train_size=6)


def test_a_class_without_examples_is_refused(tmp_path):
    with pytest.raises(InputError, match="class 3 has no labelled example"):
        make(tiny_task(empty_class=True), checkpoint=tmp_path / "run.ckpt")
    assert not list(tmp_path.iterdir())


# --- what is left on disk -----------------------------------------------------------------------------------


def test_checkpoints_are_removed_and_nothing_else(tmp_path):
    others = [
        "run.ckpt2",
        "run.ckpt.hcdc",
        "run.ckpt.values",
        "xrun.ckpt",
        "run.ckpt.lamp",
        "run.ckpt.network",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    file = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=file, progress=Interrupting(7))
    left = {path.name for path in tmp_path.iterdir()} - set(others)
    assert {"run.ckpt.original-holdout", "run.ckpt.original-point0", "run.ckpt.val"} <= left
    make(checkpoint=file)
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_a_failed_run_leaves_nothing(tmp_path, monkeypatch):
    def fails(*_, checkpoint, **__):
        Checkpoint(checkpoint.path, checkpoint.key).child("val").save({"x": torch.ones(1)}, {})
        raise NumericalError("the gradient of S_val is not finite")

    monkeypatch.setattr("hcdc.condensers.validation.aligned.learn_validation", fails)
    with pytest.raises(NumericalError):
        make(checkpoint=tmp_path / "run.ckpt")
    assert not list(tmp_path.iterdir())


def test_without_a_checkpoint_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make()
    assert not list(tmp_path.iterdir())


PROBED = {"probes": 4, "companions": 4, "probe_steps": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"val_method": "both", "options": {"probes": 4}},
            "'probes': val_method 'both' has no such setting; leave it out, or choose val_method 'probes' or",
        ),
        (
            {"val_method": "probes", "options": {"points": 1}},
            "'points': val_method 'probes' has no such setting; .* choose val_method 'aligned' or 'both'",
        ),
        ({"val_method": "real", "options": {"steps": 7}}, "'steps': val_method 'real' has no such setting"),
        (
            {"val_method": "probes", "train_method": "kcenter", "options": {**PROBED, "steps": 7}},
            "the setting of S_train's method 'kcenter' is 'train.steps'",
        ),
        ({"val_method": "weighted", "options": {"probe_steps": 7}}, "weighted' has no such setting"),
        ({"val_method": "aligned", "options": {"anchors": 1.0}}, "aligned' has no such .* 'both'"),
        ({"options": {"train.step": 7}, "train_method": "kcenter"}, "'step' is not known.*'steps'"),
        ({"options": {"train.steps": 7}, "train_method": "random"}, "'random' has no settings, but 'steps'"),
    ],
)
def test_settings_that_nothing_reads_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        make(**arguments)


def test_settings_of_what_makes_the_training_set():
    options = {**PROBED, "train.steps": 3, "train.hidden": 4}
    small = make(val_method="probes", train_method="kcenter", options=options)
    assert small.meta["settings"]["train"] == {"steps": 3, "hidden": 4}
    assert small.meta["settings"]["val"]["probes"] == 4


@pytest.mark.parametrize("val_method", ["both", "probes"])
def test_what_the_callback_raises_leaves_the_checkpoint(val_method, tmp_path, monkeypatch):
    """A full disk, say: the same call again ends with the same copy, without the work."""
    arguments = {"val_method": val_method, "checkpoint": tmp_path / "run.ckpt"}
    arguments["options"] = PROBED if val_method == "probes" else QUICK
    given = []

    def fails(small):
        given.append(small.to_bytes())
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        make(**arguments, done=fails)
    left = {path.name.removeprefix("run.ckpt.") for path in tmp_path.iterdir()}
    assert "val" in left if val_method == "both" else {"probes", "network0", "network7"} <= left
    train = aligning.train_many

    def on_the_copy(bound, params, lam, data, recipe):
        assert len(data) == 6  # S_train: what S_val is aligned at is not kept
        return train(bound, params, lam, data, recipe)

    monkeypatch.setattr(aligning, "train_many", on_the_copy)
    monkeypatch.setattr(_lanes, "train_many", lambda *a: pytest.fail("trained again"))
    small = make(**arguments, done=lambda made: given.append(made.to_bytes()))
    assert given == [small.to_bytes()] * 2
    assert list(tmp_path.iterdir()) == []


def aged(file, seconds):
    """Let a checkpoint say that it took so long."""
    with safe_open(file, framework="pt") as saved:
        told = {**saved.metadata(), "seconds": str(seconds)}
        tensors = {name: saved.get_tensor(name) for name in list(saved.keys())}
    save_file(tensors, file, told)


@pytest.mark.parametrize(
    ("arguments", "stop", "phase"),
    [
        ({"method": "gcond", "options": {"epochs": 4, "inner": 1, "outer": 1}}, (4, "GCond"), "train"),
        ({}, (3, "original hypergradients and S_val"), "val"),
        ({"val_method": "probes"}, (2, "probes and companions on the copy"), "val"),
        ({"val_method": "probes"}, (1, "S_val from probes"), "val"),
    ],
    ids=["S_train", "alignment", "networks", "probes"],
)
def test_seconds_of_an_interrupted_run_are_counted(arguments, stop, phase, tmp_path):
    """Those of the last state that is continued from: not the sum, not those of another phase."""
    options = PROBED if arguments.get("val_method") == "probes" else QUICK
    given = {"options": options, **arguments}
    with pytest.raises(KeyboardInterrupt):
        make(**given, checkpoint=tmp_path / "run.ckpt", progress=Interrupting(*stop))
    for k, file in enumerate(sorted(tmp_path.iterdir())):
        aged(file, 50_000 - 100 * k)
    record = make(**given, checkpoint=tmp_path / "run.ckpt").record
    seconds = dict(record["phases"])
    assert 50_000 < seconds.pop(phase) < 50_050
    assert 0 <= min(seconds.values()) <= max(seconds.values()) < 50
    assert record["condense_seconds"] == sum(record["phases"].values())
