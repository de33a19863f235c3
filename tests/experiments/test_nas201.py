"""Protocol nas201 on a few images with a made-up table: who judges, what is recorded, what is kept."""

import json

import numpy as np
import pytest
import torch
from small_cifar import figures, write_images, write_table

from hcdc.core import records
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.datasets import CondensedDataset, Images, data
from hcdc.experiments.nas201_rankings import on_same_cells, rankings
from hcdc.experiments.reproductions import nas201, reproduce
from hcdc.experiments.reproductions._frame import Work
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask

QUICK = {"probes": 4, "companions": 0, "probe_steps": 2, "pool": 20}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    images, table = write_images(folder / "images.npz"), write_table(folder / "table.csv")
    return {"datasets": f"{images}:cifar10", "table_file": str(table)}


@pytest.fixture
def command(sources, tmp_path):
    """Runs the protocol with some settings more; returns the records so far."""
    out = tmp_path / "out.jsonl"

    def run(seeds=(7,), **changes):
        plain = {"methods": "hcdc", "recipes": nas201.RECIPES, "options": {"hcdc": QUICK}}
        reproduce(nas201.NAS201.at("smoke", {**sources, **plain, **changes}), seeds, out)
        return list(records.read(out))

    run.out = out
    return run


def table_says(cells, column):
    return [figures()[cell][column] / 100 for cell in cells]


def test_records_of_hcdc_hold_every_judge_and_what_was_known(command, tmp_path):
    truth, *found = command(modes="probes,weighted")
    assert {(r["label"], r["draw"]) for r in found} == {
        ("random-val", None), ("real-val", None), ("hcdc-probes", 0), ("hcdc-weighted", 0),
    }  # fmt: skip
    assert truth["cells"] == [c["cell"] for c in nas201.judging_cells(3)]
    assert truth["val"] == table_says(truth["cells"], "c10_valid_200")
    assert truth["test"] == table_says(truth["cells"], "c10_test_200")
    assert truth["val12"] == table_says(truth["cells"], "c10_valid_12")
    for r in found:
        assert len(r["loss"]) == len(r["score"]) == 3
        assert (r["recipe"]["steps"], r["seed"], r["initialisations"]) == (1, 7, 1)
        assert r["judge_seconds"] > 0
        assert r["condense_seconds"] > 0
        for what in ("loss", "score"):
            assert np.shape(r["repeats"][what]) == (3, 1)
            np.testing.assert_allclose(np.mean(r["repeats"][what], 1), r[what], atol=2e-5)
    assert len({tuple(r["loss"]) for r in found}) == 4  # every validation set judges in its own way
    learned = [r for r in found if r["label"].startswith("hcdc")]
    for r in learned:
        assert r["probe_scores"] == table_says(r["probes"], "c10_valid_200")
        assert r["probe_tests"] == table_says(r["probes"], "c10_test_200")
        assert {part: len(losses) for part, losses in r["probe_losses"].items()} == {"random": 4, "real": 4}
        assert r["settings"]["companions"] == 0
    assert learned[0]["probes"] == learned[1]["probes"]
    base, rows = rankings([truth, *found])  # the tables read them
    assert len(on_same_cells(base, rows, all_rows=True)[1]) == len(rows) > 8
    # copies that are kept are not made again, and say which candidates they met
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out-copies").glob("*.hcdc")}
    assert len(files) == 3
    judges = {config_hash(c) for c in NASBench201().candidates()[: 1512 + 3]}
    for file in files:
        assert not judges & set(CondensedDataset.load(file).meta["candidates"])
    again = command(modes="weighted")[len(found) + 2 :]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out-copies").glob("*.hcdc")} == files
    for r in again:
        (old,) = [o for o in found if (o["label"], o["draw"]) == (r["label"], r["draw"])]
        assert (r["loss"], r["condense_seconds"] > 0) == (old["loss"], True)


def test_changes_of_a_mode_share_probes_and_networks_and_stand_beside_the_model(command, monkeypatch):
    trained, usual = [], nas201.Work.copy

    def copy(work, planned, networks=None):
        before = set() if networks is None else set(networks.parent.iterdir())
        made = usual(work, planned, networks)
        if networks is not None:
            names = {file.name for file in set(networks.parent.iterdir()) - before}
            trained.append((planned.meta["val_method"], sum(".network" in name for name in names)))
        return made

    monkeypatch.setattr(nas201.Work, "copy", copy)
    quick = {"hcdc": {**QUICK, "companions": 4}}
    modes = "probes,probes+model+top,weighted,weighted+top"
    truth, *found = command(modes=modes, options=quick, judges=8, draws=2)
    assert trained[:4] == [("probes", 8), ("probes", 0), ("weighted", 0), ("weighted", 0)]
    assert [count for _, count in trained[4:]] == [8, 0, 0, 0]  # another draw
    by_name = {(r["label"], r["draw"]): r for r in found}
    assert len(by_name) == len(found) == 2 + 2 * 5
    assert truth["changes"] == ["probes+model+top", "weighted+top"]
    changed = by_name["hcdc-probes+model+top", 1]
    assert (changed["settings"]["target"], changed["settings"]["objective"]) == ("model", "top")
    assert by_name["hcdc-probes", 1]["settings"]["target"] == "ridge"
    for draw in (0, 1):
        rows = [by_name[f"hcdc-{mode}", draw] for mode in modes.split(",")] + [by_name["model", draw]]
        assert all(r["probes"] == rows[0]["probes"] for r in rows)
        assert len({tuple(r["loss"]) for r in rows}) == 5
        assert all(r["probe_scores"] == table_says(r["probes"], "c10_valid_200") for r in rows)
    model = by_name["model", 0]
    assert len(model["loss"]) == 8
    assert model["judge_seconds"] > by_name["real-val", None]["judge_seconds"]
    with pytest.raises(InputError, match="change of --set modes 'tops' is not known; did you mean 'top'"):
        command(modes="probes+tops")


def test_the_truth_can_be_trained_here(command, sources, tmp_path, monkeypatch):
    """As in the paper: so many epochs and seeds on all training images, for judges and probes."""
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "cache"))
    name = sources["datasets"] + nas201.TRAINED
    options = {"hcdc": QUICK, "truth": {"epochs": 1, "seeds": 2}}
    truth, *found = command(datasets=name, table_file="nowhere.csv", judges=4, cells=3, options=options)
    assert truth["dataset"] == "cifar10-trained"
    assert len(truth["cells"]) == len(truth["val"]) == len(truth["test"]) == 3
    assert "val12" not in truth
    (cache,) = (tmp_path / "cache").glob("*.jsonl")
    results = [json.loads(line) for line in cache.read_text().splitlines()]
    assert len(results) == 3 + 4  # judges and probes
    assert all(len(r["repeats"]["val.score"]) == 2 for r in results)
    (learned,) = (r for r in found if r["label"] == "hcdc-probes")
    scores = {r["config"]["cell"]: r["values"]["val.score"] for r in results}
    assert learned["probe_scores"] == pytest.approx([scores[cell] for cell in learned["probes"]])
    table = nas201.NAS201.at("smoke", {"datasets": name}).table([truth, *found])
    assert any("0.74 ± 0.21" in row for row in table.rows)  # beside the paper's
    with pytest.raises(InputError, match="epochs, seeds"):
        command(datasets=name, options={"truth": {"images": 3}})


def test_copies_are_judged_by_both_recipes(command):
    _, one, two = command(methods="random", cells=2)
    assert [(r["label"], r["recipe_name"]) for r in (one, two)] == [
        ("random", "calibrated"),
        ("random", "published"),
    ]
    assert [(r["recipe"]["steps"], r["recipe"]["metric"]) for r in (one, two)] == [
        (1, "loss"),
        (50, "accuracy"),
    ]
    for r in (one, two):
        assert all(len(r[f"{part}.{what}"]) == 2 for part in ("val", "real") for what in ("loss", "score"))
        assert np.shape(r["real.repeats"]["loss"]) == (2, 1)
        assert r["making"]["condense_seconds"] > 0


def test_judges_have_initialisations_and_real_images_of_their_seed(command):
    """The same S_train under two judge seeds: both the networks and the images differ."""
    found = command((7, 8), methods="random", recipes="calibrated", cells=2)[1:]
    assert [r["seed"] for r in found] == [7, 8]
    assert found[0]["real.repeats"] != found[1]["real.repeats"]


def test_a_total_is_split_as_the_original_is(command):
    """Copies of 5 per class hold two for validation, of their own; HCDC has 3 and 2."""
    given = {"methods": "random", "recipes": "calibrated", "total": True, "cells": 2}
    truth, found = command(per_class=5, **given)
    assert (found["train_size"], found["val_size"], found["total"]) == (30, 20, True)
    assert truth["total"]
    with pytest.raises(InputError, match="at least 2 are needed"):
        command(per_class=1, **given)


def test_a_set_is_split_within_its_classes(sources):
    task = ImageTask(data(sources["datasets"].removesuffix(":cifar10")))
    small = nas201.copy_plan(task, "random", 3, (30, 10)).run()
    whole = small.train
    part = nas201.split(small, 10, seed=4)
    assert part.train.y.bincount().tolist() == [2] * 10
    assert part.val.y.bincount().tolist() == [1] * 10
    together = torch.cat([part.train.x, part.val.x]).flatten(1)
    assert sorted(torch.cdist(whole.x.flatten(1), together).argmin(0).tolist()) == list(range(30))
    assert isinstance(part.val, Images)
    assert torch.equal(nas201.split(small, 10, seed=4).val.x, part.val.x)
    assert any(not torch.equal(nas201.split(small, 10, seed=k).val.x, part.val.x) for k in range(3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"methods": "hcdc,nearest"}, "--set methods 'nearest' is not known"),
        ({"modes": "probes,nearest"}, "--set modes 'nearest' is not known"),
        (
            {"modes": "probes,weighted+top+long"},
            "'weighted+top+long': change 'long' sets probe_steps, which val_method 'weighted' does not have",
        ),
        ({"modes": "aligned+model"}, "change 'model' sets target, which val_method 'aligned' does not have"),
        ({"modes": "probes+model"}, "target 'model' of val_method 'probes' scores companions"),
        ({"recipes": "best"}, "--set recipes 'best' is not known"),
        ({"nearest.k": 1}, "method of --set 'nearest' is not known"),
        ({"hcdc.companion": 0}, "'companion' is not known; did you mean 'companions'"),
        (
            {"hcdc.companions": 2},
            "'companions' of val_method 'probes' must be 0 or at least 4, got 2",
        ),
        ({"methods": "dm", "dm.iterations": 0}, "'iterations' of method 'dm' must be at least 1"),
        ({"table_file": "absent.csv"}, "absent.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(given, words, command):
    with pytest.raises(InputError) as error:
        command(**given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not command.out.exists()


def test_settings_go_to_the_ways_that_have_them(sources):
    """One --set serves probes and alignment; the relaxed cell is not trained here."""
    given = {"options": {"hcdc": {"companions": 0, "trajectories": 3, "ridge": 2.0}}}
    what = nas201.NAS201.at("smoke", {**sources, **given})
    protocol = nas201.Protocol(what, what.units([0])[0], Work())
    assert protocol.way("probes", 0, train_size=10).way.companions == 0
    probes = [protocol.way("probes", seed, train_size=10).way.asked(protocol.space, seed) for seed in (0, 1)]
    assert probes[0] != probes[1]  # a draw of probes is a seed
    assert protocol.way("weighted", 0, train_size=10).way.ridge == 2.0
    assert protocol.way("aligned", 0, train_size=10).way.trajectories == 3
    both = protocol.way("both", 0, train_size=10).way
    assert (both.trajectories, both.companions) == (3, 0)
    assert json.loads(json.dumps(protocol.shared)) == protocol.shared


def test_the_published_recipe_is_50_epochs():
    assert [nas201.published_recipe(size)["steps"] for size in (500, 400, 5000)] == [400, 350, 3950]
