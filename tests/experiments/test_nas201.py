"""Protocol nas201 on digits with a made-up table: who judges, what is recorded, what the table says."""

import contextlib
import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

from hcdc.condensers import expectations, learn_validation
from hcdc.condensers.validation._batched import Batched
from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.seeds import derive, numpy_stream
from hcdc.datasets import CondensedDataset, Images
from hcdc.experiments import nas201
from hcdc.experiments.nas201 import Protocol, companion_cells, judging_cells, probe_cells, split_within
from hcdc.spaces import NASBench201


def made_up(cell, column):
    """Accuracies that differ from cell to cell, and from column to column."""
    return 50 + 40 * float(numpy_stream(0, cell, column).random())


class Table:
    def __init__(self, path):
        self.path = path

    def lookup(self, cell, column):
        return made_up(cell, column)


@pytest.fixture
def protocol(monkeypatch, tmp_path):
    monkeypatch.setattr(nas201, "NASBench201Table", Table)
    made = Protocol("digits", "none.csv", "cifar10", 2, 1, 6, 3, tmp_path / "out.jsonl", "cpu")
    made.calibrated = dataclasses.replace(made.calibrated, steps=2, seeds=1)
    made.probing = nas201.probing_settings(probes=4, companions=4, probe_steps=2, pool=30)
    return made


def test_judges_probes_companions_and_tuning_cells_are_apart():
    tuning = {c["cell"] for c in NASBench201().candidates()[:1512]}
    judges = {c["cell"] for c in judging_cells(512)}
    probes = {c["cell"] for draw in range(20) for c in probe_cells(draw, 20, 512)}
    companions = {c["cell"] for seed in range(5) for c in companion_cells(seed, 60)}
    assert len(judges) == 512
    assert len(probes) > 300
    assert len(companions) > 200
    groups = (tuning, judges, probes, companions)
    assert not any(a & b for i, a in enumerate(groups) for b in groups[i + 1 :])
    assert probe_cells(3, 20, 512) == probe_cells(3, 20, 512) != probe_cells(4, 20, 512)


def test_records_of_hcdc_hold_every_judge_and_what_was_known(protocol):
    protocol.write_truth()
    protocol.hcdc(7, "random", range(2), ["probes", "weighted"], whole=True)
    truth, *found = records.read(protocol.out)
    labels = [(r["label"], r["draw"]) for r in found]
    assert labels == [
        ("random-val", None), ("hcdc-probes", 0), ("hcdc-weighted", 0), ("hcdc-probes", 1),
        ("hcdc-weighted", 1), ("real-val", None),
    ]  # fmt: skip
    assert truth["cells"] == [c["cell"] for c in judging_cells(6)]
    assert truth["val"] == [made_up(cell, "c10_valid_200") / 100 for cell in truth["cells"]]
    assert truth["test"] == [made_up(cell, "c10_test_200") / 100 for cell in truth["cells"]]
    for r in found:
        assert len(r["loss"]) == len(r["score"]) == 6
        assert np.isfinite(r["loss"]).all()
        assert r["recipe"]["steps"] == 2
        assert r["seed"] == 7
        assert r["judge_seconds"] > 0
        assert json.loads(json.dumps(r)) == r
    learned = [r for r in found if r["label"].startswith("hcdc")]
    for r in learned:
        assert r["probe_scores"] == [made_up(cell, "c10_valid_200") / 100 for cell in r["probes"]]
        assert {len(v) for v in r["probe_losses"].values()} == {4}
        assert not set(r["probes"]) & set(truth["cells"])
    assert learned[0]["probes"] == learned[1]["probes"] != learned[2]["probes"]
    assert len({tuple(r["loss"]) for r in found}) == 6  # every validation set judges in its own way


def test_every_draw_has_its_probes_and_what_they_let_one_expect_of_the_companions(protocol, monkeypatch):
    """All are trained once and recorded once; each draw learns from its own."""
    calls = {name: [] for name in ("predictors", "make_companions", "learn_examples", "weigh_examples")}

    def watch(name):
        real = getattr(nas201, name)

        def call(*given, **options):
            made = real(*given, **options)
            calls[name].append((given, options, made))
            return made

        monkeypatch.setattr(nas201, name, call)

    for name in calls:
        watch(name)
    protocol.hcdc(7, "random", range(2), ["probes", "weighted"], whole=False)
    draws = [probe_cells(derive(7, "draw", draw), 4, 6) for draw in range(2)]
    beside = companion_cells(7, 4)
    ((given, _, networks),) = calls["predictors"]
    assert given[2] == [*draws[0], *draws[1], *beside]
    recorded = {id(options["slopes"]) for _, options, _ in calls["learn_examples"]}
    assert len(recorded) == 1
    told = []
    for k, probes in enumerate(draws):
        scores = [made_up(c["cell"], "c10_valid_200") / 100 for c in probes]
        (_, companions, expected, *_), _, made = calls["make_companions"][k]
        assert companions == networks[8:]
        told.append(expectations(NASBench201(), probes, scores, beside))
        np.testing.assert_array_equal(expected, told[k])
        (_, own, truth, *_), options, _ = calls["learn_examples"][k]
        assert own == networks[4 * k : 4 * k + 4]
        assert truth == scores
        assert options["companions"] is made
        weighed = calls["weigh_examples"][k][0]
        assert weighed[1:3] == (own, scores)
        assert weighed[-1] is made
    assert np.abs(told[0] - told[1]).max() > 0.01


TIMED = ("condense_seconds", "judge_seconds", "environment")


def untimed(found):
    """Records without what differs from run to run."""
    return [{key: r[key] for key in r if key not in TIMED} for r in found]


def again(*_, **__):
    pytest.fail("made again")


GIVEN = (7, "random", range(2), ["probes", "weighted"], True)
NAMES = ["random", "probes-0", "weighted-0", "probes-1", "weighted-1"]


@pytest.fixture
def judging(protocol, monkeypatch):
    """S_train and the validation sets of each judging."""
    found, judge = [], protocol.judge

    def watched(trains, parts, *rest):
        found.append((trains[0], dict(parts[0])))
        return judge(trains, parts, *rest)

    monkeypatch.setattr(protocol, "judge", watched)
    return found


def test_validation_sets_that_are_kept_are_not_made_again(protocol, judging, tmp_path, monkeypatch):
    """They judge as those that were not kept, and their records say the same."""
    kept = tmp_path / "kept"
    protocol.hcdc(*GIVEN, keep=kept, judge=False)
    assert not protocol.out.exists()  # nothing is judged yet
    assert not judging
    assert {file.suffix for file in kept.iterdir()} == {".hcdc", ".json", ".validation"}  # S_train among them
    protocol.hcdc(*GIVEN)
    plain = list(records.read(protocol.out))
    assert len(plain) == 6
    monkeypatch.setattr(nas201, "condense", again)
    monkeypatch.setattr(nas201, "predictors", again)
    protocol.hcdc(*GIVEN, keep=kept)
    found = list(records.read(protocol.out))[6:]
    assert untimed(found) == untimed(plain)
    (train, parts), (train_again, parts_again) = judging
    assert same(train_again, train)
    assert list(parts_again) == list(parts)
    assert all(same(parts_again[name], parts[name]) for name in parts)
    with safe_open(kept / "hcdc-random-7.validation", framework="pt") as file:
        told = json.loads(file.metadata()["state"])
    assert list(told) == NAMES
    assert found[1]["condense_seconds"] == told["probes-0"]["condense_seconds"]
    assert found[0]["condense_seconds"] == found[5]["condense_seconds"]
    assert found[5]["condense_seconds"] == told["random"]["condense_seconds"]
    protocol.hcdc(*GIVEN, keep=kept, judge=False)
    assert len(list(records.read(protocol.out))) == 12


def same(one, two):
    """Whether two labelled sets are equal to the last bit."""
    if (one.weight is None) != (two.weight is None):
        return False
    pairs = [(one.x, two.x), (one.y, two.y)] + ([] if one.weight is None else [(one.weight, two.weight)])
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def test_weights_are_kept(protocol, judging, tmp_path, monkeypatch):
    """Those of weighted sets; the other sets have none."""
    protocol.hcdc(*GIVEN, keep=tmp_path)
    monkeypatch.setattr(nas201, "predictors", again)
    protocol.hcdc(*GIVEN, keep=tmp_path)
    (_, made), (_, kept) = judging
    assert list(kept) == [*NAMES, "real"]
    for name, part in kept.items():
        assert (part.weight is not None) == name.startswith("weighted"), name
        assert same(part, made[name])
    weights = [kept[f"weighted-{draw}"].weight for draw in range(2)]
    assert all(float(weight.std()) > 0.01 for weight in weights)
    assert not torch.equal(*weights)


def test_packed_sets_are_unpacked_as_they_were(protocol):
    x, y = torch.rand(4, 3, 2, 2), torch.arange(4)
    parts = {"plain": Images(x, y), "weighted-0": Images(x + 1, y.flip(0), torch.rand(4))}
    tensors = nas201.packed(parts)
    assert sorted(tensors) == ["plain/x", "plain/y", "weighted-0/weight", "weighted-0/x", "weighted-0/y"]
    found = protocol.unpacked(tensors)
    assert list(found) == list(parts)
    assert all(same(found[name], part) for name, part in parts.items())


def changed(protocol, **fields):
    for name, value in fields.items():
        setattr(protocol, name, value)


QUICK = {"probes": 4, "companions": 4, "probe_steps": 2, "pool": 30}
OTHERS = {
    "nothing": lambda p: GIVEN,
    "cells of copies": lambda p: changed(p, some=2),
    "seed": lambda p: (8, *GIVEN[1:]),
    "train method": lambda p: (7, "herding", *GIVEN[2:]),
    "draws": lambda p: (*GIVEN[:2], range(1), *GIVEN[3:]),
    "modes": lambda p: (*GIVEN[:3], ["weighted"], True),
    "probes": lambda p: changed(p, probing=nas201.probing_settings(**{**QUICK, "probes": 5})),
    "companions": lambda p: changed(p, probing=nas201.probing_settings(**{**QUICK, "companions": 0})),
    "ridge": lambda p: changed(p, probing=nas201.probing_settings(**QUICK, ridge=2.0)),
    "judging cells": lambda p: changed(p, cells=NASBench201().candidates()[1000:1006]),
    "number of judges": lambda p: changed(p, cells=judging_cells(7)),
    "options": lambda p: changed(p, options={"dm": {"iterations": 3}}),
    "alignment": lambda p: changed(p, alignment={"trajectories": 3}),
    "recipe": lambda p: changed(p, calibrated=dataclasses.replace(p.calibrated, steps=3)),
    "data": lambda p: changed(p, shared={**p.shared, "data": "other"}),
    "benchmark": lambda p: changed(p, shared={**p.shared, "dataset": "cifar100"}),
    "sizes": lambda p: changed(p, val_size=20, shared={**p.shared, "val_size": 20}),
    "record file": lambda p: changed(p, out=p.out.with_name("other.jsonl")),
}


def test_sets_kept_under_other_settings_are_not_read(protocol, tmp_path, monkeypatch):
    protocol.hcdc(*GIVEN, keep=tmp_path, judge=False)
    monkeypatch.setattr(nas201, "condense", again)
    monkeypatch.setattr(nas201, "predictors", again)
    before, read = dict(vars(protocol)), []
    for name, change in OTHERS.items():
        given = change(protocol) or GIVEN
        with contextlib.suppress(pytest.fail.Exception):  # made again
            protocol.hcdc(*given, keep=tmp_path, judge=False)
            read.append(name)
        changed(protocol, **before)
    assert read == ["nothing", "cells of copies", "record file"]
    monkeypatch.setattr(nas201, "APART", 900)  # companions come from other cells
    with pytest.raises(pytest.fail.Exception, match="made again"):
        protocol.hcdc(*GIVEN, keep=tmp_path, judge=False)


def test_sets_made_again_are_those_of_the_new_settings(protocol, judging, tmp_path):
    """They take the place of the others, which are then made again where they are asked for."""
    protocol.hcdc(*GIVEN, keep=tmp_path)
    protocol.probing = nas201.probing_settings(**{**QUICK, "probes": 5})
    for keep in (tmp_path, tmp_path, None):
        protocol.hcdc(*GIVEN, keep=keep)
    protocol.probing = nas201.probing_settings(**QUICK)
    protocol.hcdc(*GIVEN, keep=tmp_path)
    four, *fives, last = [parts for _, parts in judging]
    for name in NAMES:
        assert all(same(five[name], fives[0][name]) for five in fives)
        assert same(last[name], four[name])
        assert same(fives[0][name], four[name]) == (name == "random")
    found = list(records.read(protocol.out))
    assert [len(r["probes"]) for r in found if "probes" in r] == [4] * 4 + [5] * 12 + [4] * 4


def test_a_damaged_file_of_sets_is_made_again(protocol, judging, tmp_path):
    protocol.hcdc(*GIVEN, keep=tmp_path)
    file = tmp_path / "hcdc-random-7.validation"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    protocol.hcdc(*GIVEN, keep=tmp_path)
    (_, one), (_, two) = judging
    assert all(same(one[name], two[name]) for name in one)
    assert len(file.read_bytes()) > len(whole) - 20


def test_s_train_of_hcdc_is_the_copy_that_is_kept(protocol, judging, tmp_path, monkeypatch):
    """As `convnet_accuracy --keep` or another row left it; what it took is in the records."""
    protocol.copies(["herding"], 7, ["calibrated"], tmp_path)
    (file,) = tmp_path.glob("herding-7-*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "condense_seconds": 1000.0}))
    monkeypatch.setattr(nas201, "condense", again)
    made = protocol.made("herding", 7, tmp_path)
    assert isinstance(made, CondensedDataset)
    assert made.record["condense_seconds"] == 1000.0
    protocol.hcdc(7, "herding", range(1), ["weighted"], False, tmp_path)
    (of_copy, _), (of_hcdc, parts) = judging
    assert same(of_hcdc, of_copy)
    assert same(of_hcdc, made.train)
    assert same(parts["random"], made.val)
    _, random, weighted, real = records.read(protocol.out)
    assert {r["train_method"] for r in (random, weighted, real)} == {"herding"}
    assert random["condense_seconds"] == real["condense_seconds"] == 1000.0
    assert 1000 < weighted["condense_seconds"] < 1100


def test_without_companions_there_are_probes_alone(protocol):
    protocol.probing = nas201.probing_settings(**{**QUICK, "companions": 0})
    protocol.hcdc(7, "random", range(1), ["probes", "weighted"], whole=False)
    _, probes, weighted, _ = records.read(protocol.out)
    assert "companion_correlation" not in probes["history"][-1]
    for r in (probes, weighted):
        assert r["settings"]["companions"] == 0
        assert len(r["probes"]) == 4


def test_copies_are_judged_on_some_cells_by_both_recipes(protocol, monkeypatch):
    short = dataclasses.replace(nas201.published_recipe(20), steps=3, batch=10)
    monkeypatch.setattr(nas201, "published_recipe", lambda size: short)
    protocol.copies(["herding"], 1, ["calibrated", "published"])
    protocol.hcdc(8, "random", range(1), ["weighted"], whole=False)
    found = list(records.read(protocol.out))
    assert [(r["label"], r.get("recipe_name")) for r in found[:2]] == [
        ("herding", "calibrated"), ("herding", "published")
    ]  # fmt: skip
    assert [r["recipe"]["steps"] for r in found[:2]] == [2, 3]
    assert all(len(r["val.loss"]) == len(r["real.score"]) == 3 for r in found[:2])
    assert all(len(r["loss"]) == 3 for r in found[2:])


def test_copies_are_judged_together_as_alone_and_kept(protocol, tmp_path, monkeypatch):
    protocol.copies(["random", "herding"], 1, ["calibrated"], tmp_path / "kept")
    protocol.copies(["herding"], 1, ["calibrated"])
    one, two, alone = records.read(protocol.out)
    assert [r["label"] for r in (one, two, alone)] == ["random", "herding", "herding"]
    assert two["val.loss"] == alone["val.loss"] != one["val.loss"]
    monkeypatch.setattr(nas201, "condense", None)  # nothing is made again
    protocol.copies(["random", "herding"], 1, ["calibrated"], tmp_path / "kept")
    again = list(records.read(protocol.out))[3:]
    assert [r["val.loss"] for r in again] == [one["val.loss"], two["val.loss"]]
    assert all(r["making"].items() >= old["making"].items() for r, old in zip(again, (one, two)))


def test_alignment_is_a_start_for_probes_and_meets_no_judge(protocol, monkeypatch, tmp_path):
    protocol.alignment = {
        "trajectories": 1, "points": 1, "holdout": 2, "steps": 2, "check": 1, "batch": 1, "nodes": 10,
        "iterations": 1,
    }  # fmt: skip
    small = functools.partial(nas201.Unjudged, cells=1, channels=2)
    monkeypatch.setattr(nas201, "Unjudged", small)
    objective = Batched.objective  # two steps count, be the start as good as it may
    monkeypatch.setattr(Batched, "objective", lambda *a: objective(*a) if a[0].history else 9.0)
    met = []

    def watched(task, space, *rest, **options):
        met.extend(c["cell"] for c in space.candidates())
        return learn_validation(task, space, *rest, **options)

    monkeypatch.setattr(nas201, "learn_validation", watched)
    protocol.hcdc(7, "random", range(1), ["both", "aligned"], whole=False, keep=tmp_path / "kept")
    found = {r["label"]: r for r in records.read(protocol.out)}
    assert set(found) == {"random-val", "real-val", "hcdc-aligned", "hcdc-both"}
    assert found["hcdc-aligned"]["relaxed_trainings"] == 3
    assert found["hcdc-aligned"]["loss"] != found["random-val"]["loss"]
    assert found["hcdc-both"]["condense_seconds"] > found["hcdc-aligned"]["history"][-1]["step"] > 0
    tuning = {c["cell"] for c in NASBench201().candidates()[:1512]}
    assert len(met) > 3000
    assert not set(met) & (tuning | {c["cell"] for c in protocol.cells})
    # it is kept by itself, and other modes begin with it
    monkeypatch.setattr(nas201, "learn_validation", again)
    monkeypatch.setattr(nas201, "predictors", again)
    protocol.hcdc(7, "random", range(1), ["aligned"], whole=False, keep=tmp_path / "kept")
    *_, one, _ = records.read(protocol.out)
    assert untimed([one]) == untimed([found["hcdc-aligned"]])
    # for the same settings alone; of probes it asks nothing
    names = {file.name for file in (tmp_path / "kept").glob("*.validation")}
    assert names == {"hcdc-random-7.validation", "aligned-random-7.validation"}
    copy = protocol.made("random", 7, tmp_path / "kept")
    protocol.probing = nas201.probing_settings(probes=6)
    s_val, note = protocol.aligned(copy, 7, tmp_path / "kept")
    assert s_val.weight is None
    assert note["history"] == one["history"]
    protocol.alignment = {**protocol.alignment, "steps": 3}
    with pytest.raises(pytest.fail.Exception, match="made again"):
        protocol.aligned(copy, 7, tmp_path / "kept")


def test_what_is_not_known_is_refused_before_the_work(protocol):
    with pytest.raises(InputError, match=r"--modes 'nearest'.*aligned, both, probes, weighted"):
        protocol.hcdc(0, "random", range(1), ["probes", "nearest"], whole=True)
    with pytest.raises(InputError, match=r"--recipes.*'best'.*calibrated, published"):
        protocol.copies(["random"], 0, ["best"])
    assert not protocol.out.exists()


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs the command with some arguments more; returns what it asked of the protocol, and the protocol."""
    called, kept = [], []

    def noted(name):
        def call(made, *given):
            called.append((name, *given))
            kept.append(made)

        return call

    monkeypatch.setattr(nas201, "NASBench201Table", Table)
    monkeypatch.setattr(Protocol, "hcdc", noted("hcdc"))
    monkeypatch.setattr(Protocol, "copies", noted("copies"))
    plain = [
        "nas201", "--dataset", "digits", "--table", "none.csv", "--rows", "hcdc,dm", "--seeds", "5,6",
        "--modes", "weighted,both", "--draws", "3", "--judges", "4", "--per-class", "2",
        "--val-per-class", "1", "--recipes", "calibrated", "--out", str(tmp_path / "out.jsonl"),
        "--device", "cpu",
    ]  # fmt: skip

    def run(*given):
        called.clear()
        kept.clear()
        monkeypatch.setattr("sys.argv", [*plain, *map(str, given)])
        nas201.main()
        assert all(one is kept[0] for one in kept)
        return list(called), kept[0]

    run.called = called
    return run


def asked_of_hcdc(seed, keep, judge):
    return ("hcdc", seed, "random", range(3), ["weighted", "both"], False, keep, judge)


def test_the_steps_of_the_calibrated_recipe_may_be_given(command):
    _, plain = command()
    _, longer = command("--steps", 33)
    assert longer.calibrated == dataclasses.replace(plain.calibrated, steps=33)
    assert (plain.shared["steps"], longer.shared["steps"]) == (None, 33)
    _, fewer = command("--initialisations", 8)
    assert fewer.calibrated == dataclasses.replace(plain.calibrated, seeds=8)
    assert (plain.shared["initialisations"], fewer.shared["initialisations"]) == (16, 8)


def test_the_command(command, tmp_path):
    """Settings of other methods by name, and a folder that keeps what is made."""
    kept = tmp_path / "kept"
    called, made = command("--set", "dm.iterations=3", "--set", "dm.lr_img=0.5", "--keep", kept)
    expected = []
    for seed in (5, 6):
        expected += [asked_of_hcdc(seed, kept, True), ("copies", ["dm"], seed, ["calibrated"], kept)]
    assert called == expected
    assert made.arguments("dm", 0)["options"] == {"iterations": 3, "lr_img": 0.5}
    assert made.arguments("random", 0)["options"] == {}
    assert made.probing == nas201.probing_settings()
    assert [r["label"] for r in records.read(tmp_path / "out.jsonl")] == ["truth"]


def test_the_command_makes_sets_and_judges_nothing(command, tmp_path):
    """No record of the truth, and no other rows."""
    kept = tmp_path / "kept"
    called, _ = command("--make", "--keep", kept)
    assert called == [asked_of_hcdc(seed, kept, False) for seed in (5, 6)]
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("--rows", "hcdc,nearest", r"--rows 'nearest'.*dc, dm, dsa"),
        ("--modes", "probes,nearest", r"--modes 'nearest'.*aligned, both, probes, weighted"),
        ("--recipes", "best", r"--recipes 'best'.*calibrated, published"),
    ],
)
def test_the_command_refuses_what_is_not_known_before_it_writes(argument, value, words, command, tmp_path):
    with pytest.raises(InputError, match=words):
        command(argument, value)
    assert not command.called
    assert not (tmp_path / "out.jsonl").exists()


def test_sets_that_are_made_are_to_be_kept(command, tmp_path):
    with pytest.raises(InputError, match="--make makes validation sets to keep: say where with --keep"):
        command("--make")
    with pytest.raises(InputError, match="--make makes HCDC's validation sets, and --rows dm has no 'hcdc'"):
        command("--make", "--keep", tmp_path / "none", "--rows", "dm")
    assert not command.called
    assert not (tmp_path / "out.jsonl").exists()


def test_settings_of_hcdc_are_those_of_probes_and_of_alignment(command):
    _, made = command("--set", "hcdc.companions=0", "--set", "hcdc.trajectories=3", "--set", "dm.batch=4")
    assert made.probing == nas201.probing_settings(companions=0)
    assert made.probing.companions == 0 != nas201.probing_settings().companions
    assert made.alignment == {"companions": 0, "trajectories": 3}
    assert made.options == {"dm": {"batch": 4}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("dc.iterations", "--set dc.iterations: give METHOD.SETTING=NUMBER, as in dc.iterations=100"),
        ("dc.iterations=", "--set dc.iterations=: give METHOD"),
        ("dc.iterations=many", "--set dc.iterations=many: give METHOD"),
        ("dc.iterations=3,4", "--set dc.iterations=3,4: give METHOD"),
        ("companions=0", "--set companions=0: give METHOD"),
        (".companions=0", "--set .companions=0: give METHOD"),
        ("hcdc.=0", "--set hcdc.=0: give METHOD"),
        ("hcdc.companion=0", "'companion' is not known; did you mean 'companions'"),
        ("hcdc.companions=2", "'companions' of method 'hcdc' must be 0 or at least 4, got 2"),
        ('hcdc.probes="5"', "'probes' of method 'hcdc' must be int, got '5'"),
    ],
)
def test_bad_settings_are_refused_before_the_work(given, words, command, tmp_path):
    with pytest.raises(InputError) as error:
        command("--set", given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not command.called
    assert not (tmp_path / "out.jsonl").exists()


def test_the_published_recipe_is_50_epochs():
    assert [nas201.published_recipe(size).steps for size in (500, 400, 5000)] == [400, 350, 3950]


# --- 50 images a class in all -----------------------------------------------------------------------------


def test_a_set_is_split_within_its_classes():
    y = torch.tensor([2, 0, 1, 1, 2, 0, 0, 1, 2, 2, 1, 0])
    whole = Images(torch.arange(12.0).view(12, 1, 1, 1), y)
    train, val = split_within(whole, 3, seed=4)
    assert train.y.bincount().tolist() == [3, 3, 3]
    assert val.y.bincount().tolist() == [1, 1, 1]
    seen = torch.cat([train.x, val.x]).flatten().long()
    assert sorted(seen.tolist()) == list(range(12))
    assert torch.equal(torch.cat([train.y, val.y]), y[seen])
    assert torch.equal(split_within(whole, 3, seed=4)[1].x, val.x)
    assert any(not torch.equal(split_within(whole, 3, seed=k)[1].x, val.x) for k in range(3))


def test_a_total_is_split_as_the_original_is(tmp_path, monkeypatch):
    """Copies of 5 a class hold two for validation, of their own; HCDC has 3 and 2."""
    monkeypatch.setattr(nas201, "NASBench201Table", Table)
    made = Protocol("digits", "none.csv", "cifar10", 5, 2, 6, 3, tmp_path / "out.jsonl", "cpu", total=True)
    classes = made.task.num_classes
    sizes = (3 * classes, 2 * classes)
    assert (made.train_size, made.val_size, made.copied) == (*sizes, (5 * classes, 2 * classes))
    seen = []

    def judge(trains, parts, recipe, cells):
        seen.append((trains, parts, recipe))
        return [{"val.loss": [0.0], "val.score": [0.0]} for _ in trains], 1.0

    monkeypatch.setattr(made, "judge", judge)
    made.options = {"herding": {"steps": 5, "hidden": 4}}
    made.copies(["random", "herding"], 0, ["calibrated", "published"])
    assert [recipe.steps for _, _, recipe in seen] == [made.calibrated.steps, 50]
    for method, train, own in zip(("random", "herding"), *seen[0][:2]):
        assert (len(train), len(own["val"])) == sizes
        assert own["real"] is made.real
        copy = made.made(method, 0, None).train.x.flatten(1)
        both = torch.cat([train.x, own["val"].x]).flatten(1)
        assert sorted(torch.cdist(copy, both).argmin(0).tolist()) == list(range(5 * classes))
    (found,) = {(r["train_size"], r["val_size"], r["total"]) for r in records.read(tmp_path / "out.jsonl")}
    assert found == (*sizes, True)
    with pytest.raises(InputError, match="at least 2 are needed"):
        Protocol("digits", "none.csv", "cifar10", 1, 2, 6, 3, tmp_path / "none", "cpu", total=True)
