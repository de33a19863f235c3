"""The command on images: digits cut down to 200, networks of 2 channels, trainings of two steps."""

import csv
import dataclasses
import functools
import gzip
import itertools
import json
import re

import numpy as np
import pytest
from command_line import assert_refused, files, hcdc_run

import hcdc.condensers.validation._trained as probed
from hcdc import CondensedDataset, Recipe
from hcdc.cli.evaluate import judge_lines
from hcdc.condensers import Plan, make_reducer, plan, training_seconds
from hcdc.datasets import data
from hcdc.evaluation import cost, reopen_task
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.truth import COLUMNS, NASBench201Table, TableTruth
from recipes import change_recipes

pytest.importorskip("sklearn")

SPACE = "nasbench201,cells=1,channels=2"
LEARN = ("--val-method", "probes", "--probes", "4", "--set", "probe_steps=2", "--truth-epochs", "1")
FEW = ("--set", "companions=4")


@functools.cache
def digits():
    """Twenty training and eight test images of each digit, ``[m, 8, 8]``."""
    from sklearn.datasets import load_digits

    found = load_digits()
    some = np.concatenate([np.flatnonzero(found.target == c)[:28].reshape(1, -1) for c in range(10)])
    x, y = (found.images * 15).astype(np.uint8), found.target.astype(np.int64)
    train, test = some[:, :20].ravel(), some[:, 20:].ravel()
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


@functools.cache
def colours():
    """Random images of CIFAR-10's form: 8 training and 2 test images per class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 8)
    x = rng.integers(0, 256, (80, 32, 32, 3), dtype=np.uint8)
    return {"x_train": x, "y_train": y, "x_test": x[::4], "y_test": y[::4]}


@functools.cache
def table_text(cells=5**6):
    """A table with every cell (or the first ones), whose accuracies are arbitrary and all different."""
    rows = []
    for k, numbers in enumerate(itertools.product(range(5), repeat=6)):
        rows.append(f"{k},{'-'.join(map(str, numbers))}," + ",".join([str(20 + k / 1000)] * len(COLUMNS)))
        if len(rows) == cells:
            break
    return "\n".join([",".join(["index", "ops", *COLUMNS]), *rows]) + "\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own with the digits in it; two training steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "cache"))
    short = {"steps": 2, "seeds": 1}
    change_recipes(monkeypatch, lambda **given: Recipe(**{**given, **short}))
    np.savez(tmp_path / "digits.npz", **digits())
    return tmp_path


def condense(capsys, *arguments, out="a.hcdc", dataset="digits.npz", method="random", per_class=3):
    size = () if per_class is None else ("--images-per-class", per_class)
    return hcdc_run(
        capsys, "condense", "--dataset", dataset, "--method", method, "--space", SPACE, *size, "--out", out,
        "--device", "cpu", *arguments,
    )  # fmt: skip


# --- the way through ----------------------------------------------------------------------------------------


def test_from_images_to_a_page(place, capsys):
    code, out, err = condense(capsys, *LEARN, *FEW, "--val-images-per-class", "1", method="hcdc")
    assert code == 0, err
    assert "S_train 30 (3 per class), S_val 10 (1 per class)" in out
    assert "1 x 8 x 8 pixels" in out
    assert "4 full-data trainings" in out
    assert "(estimate from a few steps)" in out
    assert out.splitlines()[-1].startswith("wrote a.hcdc")
    assert out.splitlines()[-1].endswith("next: hcdc evaluate a.hcdc")
    small = CondensedDataset.load(place / "a.hcdc")
    assert (small.kind, small.meta["space"]["channels"], len(small.train)) == ("image", 2, 30)
    assert small.meta["settings"]["val"]["probes"] == 4
    assert small.train.y.bincount().tolist() == [3] * 10

    code, out, err = hcdc_run(capsys, "inspect", "a.hcdc")
    assert code == 0, err
    assert "3 per class, 1 x 8 x 8 pixels of" in out
    assert "4 candidates, results: trained on the full data" in out

    code, out, err = hcdc_run(capsys, "evaluate", "a.hcdc", "--candidates", "4", "--device", "cpu")
    assert code == 0, err
    assert "4 full-data trainings" in out
    assert out.splitlines()[-1].startswith("wrote a.evaluation.json; next: hcdc report a.evaluation.json")
    found = json.loads((place / "a.evaluation.json").read_text())
    assert (found["kind"], len(found["truth"]), found["truth_source"]) == ("image", 4, None)

    pytest.importorskip("matplotlib")
    code, _, err = hcdc_run(capsys, "report", "a.evaluation.json", "--out", "page.html")
    assert code == 0, err
    page = (place / "page.html").read_text()
    assert "Images of the copies" in page
    assert "mean absolute change per pixel" in page  # the images before learning were found again

    (place / "digits.npz").unlink()
    assert hcdc_run(capsys, "report", "a.evaluation.json", "--out", "page.html")[0] == 0
    page = (place / "page.html").read_text()
    assert "Images of the copies" in page
    assert "mean absolute change" not in page

    assert condense(capsys, out="other.hcdc", dataset="digits.npz")[0] == 2  # gone
    (place / "a.hcdc").write_bytes(b"something else")
    assert hcdc_run(capsys, "report", "a.evaluation.json", "--out", "page.html")[0] == 0
    assert "Images of the copies" not in (place / "page.html").read_text()


CALIBRATE = (*LEARN, "--set", "companions=0", "--set", "calibrate=true")


@pytest.fixture
def last_recipe(monkeypatch):
    """Whatever the probes say, the last recipe is taken: BatchNorm's statistics of the training images."""
    choose = probed.choose_recipe

    def last(task, truth, recipes, *rest):
        _, tried = choose(task, truth, recipes, *rest)
        return recipes[-1], tried

    monkeypatch.setattr(probed, "choose_recipe", last)


def test_the_probes_choose_the_recipe_where_asked(place, capsys, last_recipe):
    code, out, err = condense(capsys, *CALIBRATE, "--json", "a.json", method="hcdc")
    assert code == 0, err
    small = CondensedDataset.load(place / "a.hcdc")
    assert small.meta["settings"]["val"]["calibrate"] is True
    assert len(small.meta["recipes_tried"]) == 6
    assert small.meta["calibrated_recipe"] == small.meta["recipes_tried"][-1]["recipe"]
    code, out, err = hcdc_run(capsys, "inspect", "a.hcdc")
    assert code == 0, err
    assert "statistics=train" in out
    code, out, err = hcdc_run(
        capsys, "evaluate", "a.hcdc", "--candidates", "3", "--device", "cpu", "--no-rivals"
    )
    assert code == 0, err
    assert "statistics train" in out
    assert condense(capsys, *CALIBRATE, "--quiet", out="b.hcdc", method="hcdc")[0] == 0
    assert (place / "b.hcdc").read_bytes() == (place / "a.hcdc").read_bytes()
    off = (*LEARN, "--set", "companions=0", "--set", "calibrate=false", "--quiet")
    assert condense(capsys, *off, out="c.hcdc", method="hcdc")[0] == 0
    plain = CondensedDataset.load(place / "c.hcdc")
    assert "recipes_tried" not in plain.meta
    assert plain.meta["calibrated_recipe"] == small.meta["recipes_tried"][0]["recipe"]


def test_a_calibrated_file_is_known_to_the_command_that_made_it(place, capsys, last_recipe):
    assert condense(capsys, *CALIBRATE, "--quiet", method="hcdc")[0] == 0
    code, out, err = condense(capsys, *CALIBRATE, method="hcdc")
    assert code == 0, err
    assert "made by this command" in out


def test_the_recipe_is_settings_of_the_training_on_the_copy(place, capsys):
    code, out, err = condense(capsys, "--recipe", "steps=3", "--recipe", "augment=flip-crop")
    assert code == 0, err
    assert "steps 3, " in out
    recipe = CondensedDataset.load(place / "a.hcdc").meta["calibrated_recipe"]
    assert (recipe["steps"], recipe["augment"]) == (3, "flip-crop")
    assert (
        "made by this command" in condense(capsys, "--recipe", "steps=3", "--recipe", "augment=flip-crop")[1]
    )
    for given, words in (
        ("steps", "--recipe steps: a setting is written key=value, e.g. --recipe lr=0.1"),
        ("epochs=3", "recipe setting 'epochs' is not known"),
        ("steps=0", "must be at least 1, got 0"),
    ):
        code, out, err = condense(capsys, "--recipe", given, out="b.hcdc")
        assert code == 2
        assert words in err
        assert not (place / "b.hcdc").exists()


def test_both_spellings_of_sizes_make_the_same_file(place, capsys):
    assert condense(capsys, "--val-images-per-class", "1", "--quiet")[0] == 0
    sizes = ("--train-size", "30", "--val-size", "10")
    assert condense(capsys, *sizes, "--quiet", per_class=None, out="b.hcdc")[0] == 0
    assert (place / "a.hcdc").read_bytes() == (place / "b.hcdc").read_bytes()
    code, out, _ = condense(capsys, "--val-images-per-class", "1")
    assert code == 0
    assert "made by this command" in out


def test_what_reducers_train_on_the_full_data_is_in_the_cost():
    task = ImageTask(data("digits"))
    told = {name: make_reducer(name).trains(task) for name in ("random", "dm", "kcenter", "herding", "tm")}
    assert told["random"] == told["dm"] == ""
    assert told["kcenter"] == told["herding"] == "one ConvNet trained for 600 steps"
    assert re.fullmatch(r"20 experts trained for \d+ epochs", told["tm"])
    once = make_reducer("tm", experts=1, start_epochs=1, target_epochs=1, iterations=1)
    assert (once.trains(task), once.loops()) == ("1 expert trained for 1 epoch", "1 iteration")

    def cost(name, **given):
        made = plan(task, NASBench201(), name, train_size=30, **given)
        return made.cost().words()

    assert cost("random") == "no full-data training"
    assert cost("dm") == "S_train and S_val by dm: 20,000 iterations for each, whose time is not predicted"
    both = rf"S_train and S_val by tm: {told['tm']} on the full data and 5,000 iterations for each"
    timed = r", about [\d,]+ s( \([\d.]+ h\))? \(estimate from a few examples\)"
    assert re.fullmatch(both + timed, cost("tm"))
    one = cost("kcenter", val_method="real")
    assert re.fullmatch(r"S_train by kcenter: one ConvNet .* \d+ steps on the full data" + timed, one)


def test_what_needs_no_full_training_says_so(place, capsys):
    code, out, err = condense(capsys)
    assert code == 0, err
    assert "no full-data training" in out
    assert "estimate" not in out
    code, out, err = condense(capsys, "--model", "convnet", "--quiet", out="b.hcdc")
    assert code == 0, err
    assert CondensedDataset.load(place / "b.hcdc").meta["task"]["model"] == "convnet"


QUICK = {"trajectories": 1, "points": 1, "holdout": 2, "steps": 1, "batch": 1, "nodes": 10, "iterations": 1}


def test_operations_are_drawn_where_asked(place, capsys):
    settings = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    gdas = ("--set", "relaxation=gdas", "--set", "tau=2", *settings)
    aligned = ("--val-method", "aligned")
    code, _, err = condense(capsys, *gdas, *aligned, "--quiet", method="hcdc")
    assert code == 0, err
    assert json.loads((place / "a.hcdc.json").read_text())["full_trainings"] == 3
    found = CondensedDataset.load(place / "a.hcdc").meta["settings"]["val"]
    assert (found["relaxation"], found["tau"]) == ("gdas", 2)
    before, known = files(place), "choose one of: gdas, softmax"
    refused = condense(capsys, "--set", "relaxation=hard", *aligned, method="hcdc", out="b.hcdc")
    assert_refused(place, before, *refused, f"relaxation 'hard' is not known; {known}")


def test_a_table_takes_the_place_of_full_trainings(place, capsys, monkeypatch):
    """With a table real validation images are weighted, said or not."""
    np.savez(place / "images.npz", **colours())
    with gzip.open(place / "t.csv.gz", "wt") as file:
        file.write(table_text())
    known = ("--truth", "t.csv.gz", "--truth-dataset", "cifar10")
    learn = ("--probes", "4", *FEW, *known)
    made = {"dataset": "images.npz", "method": "hcdc", "per_class": 2}
    code, out, err = condense(capsys, *learn, **made)
    assert code == 0, err
    assert "4 full-data results from the table" in out
    looked_up = r"^full data +results from the NAS-Bench-201 table \(cifar10, 200 epochs\)$"
    assert re.search(looked_up, out, re.MULTILINE)
    assert "full recipe" not in out
    judged = "next: hcdc evaluate a.hcdc --truth t.csv.gz --truth-dataset cifar10"
    assert out.splitlines()[-1].endswith(judged)
    small = CondensedDataset.load(place / "a.hcdc")
    assert small.meta["truth"]["dataset"] == "cifar10"
    assert small.meta["val_method"] == "weighted"
    assert json.loads((place / "a.hcdc.json").read_text())["full_trainings"] == 0
    assert "made by this command" in condense(capsys, "--val-method", "weighted", *learn, **made)[1]

    monkeypatch.setattr("hcdc.evaluation._evaluate.TrainedTruth", None)  # nothing is trained on the full data
    code, out, err = hcdc_run(
        capsys, "evaluate", "a.hcdc", "--candidates", "4", "--device", "cpu", "--no-rivals", *known
    )
    assert code == 0, err
    assert "full-data training" not in out
    assert re.search(looked_up, out, re.MULTILINE)
    assert "full recipe" not in out
    found = json.loads((place / "a.evaluation.json").read_text())
    assert "NAS-Bench-201" in found["truth_source"]
    assert all(0.2 < value < 0.4 for value in found["truth"])
    assert "weights up to" in hcdc_run(capsys, "inspect", "a.hcdc")[1]


def test_what_is_trained_on_the_full_data_beside_a_table_is_said(place):
    (place / "t.csv").write_text(table_text())
    np.savez(place / "images.npz", **colours())
    task, space = ImageTask(data("images.npz")), NASBench201(cells=1, channels=2)
    table = TableTruth(NASBench201Table("t.csv"), "cifar10")
    given = {"train_size": 20, "truth": table, "options": {"probes": 4}}

    def lines(method):
        made = plan(task, space, val_method=method, **given)
        return made, dict(made.summary())

    assert "relaxed network" not in lines("weighted")[1]
    made, told = lines("both")
    assert "full recipe" not in told
    assert f"steps {made.relaxed().steps}, " in told["relaxed network"]


def test_a_copy_made_with_a_table_says_how_to_judge_it_by_the_table(place, capsys):
    assert condense(capsys, "--quiet")[0] == 0
    made = CondensedDataset.load("a.hcdc")
    small = dataclasses.replace(made, meta={**made.meta, "truth": {"name": "nasbench201"}})
    task = reopen_task(small)
    lines = dict(judge_lines(small, task, 4, "cpu", None, cost(small, task, 4, rivals=False)))
    assert "which --truth FILE would use here too" in lines["cost"]


def test_the_prediction_grows_with_the_steps():
    task = ImageTask(data("digits.npz"))
    space = NASBench201(channels=2)
    recipe = Recipe(optimizer="sgd", batch=50, lr=0.1, steps=10)
    short, long = (
        training_seconds(task, space, r, "cpu")
        for r in (recipe, Recipe(**{**recipe.as_dict(), "steps": 10_000}))
    )
    assert 0 < short < long
    assert long > 50 * short


# --- refusals: one sentence, exit code 2, nothing written ---------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({"per_class": 0}, [], "--images-per-class 0: at least 1"),
        ({"per_class": -1}, [], "--images-per-class -1: at least 1"),
        ({"per_class": 19}, [], "--images-per-class 19: class 0 ('0') has only 18 train images"),
        (
            {},
            ["--val-images-per-class", "3"],
            "--val-images-per-class 3: class 0 ('0') has only 2 val images",
        ),
        ({}, ["--train-size", "30"], "set the same size"),
        ({}, ["--val-images-per-class", "1", "--val-size", "10"], "set the same size"),
        ({"per_class": None}, [], "Missing --train-size (total examples), e.g. --train-size 35"),
        ({"per_class": None}, ["--train-size", "5"], "--train-size 5: there are 10 classes"),
        ({}, ["--space", "nasbench20"], "did you mean 'nasbench201'?"),
        ({}, ["--space", "gnn-zoo"], "--space 'gnn-zoo' builds no image network"),
        ({}, ["--space", "nasbench201,channel=2"], "did you mean 'channels'?"),
        ({}, ["--space", "nasbench201,channels=two"], "channels must be int"),
        ({}, ["--space", "nasbench201,channels=0"], "at least 1"),
        ({}, ["--space", "nasbench201,channels"], "key=value"),
        ({}, ["--setting", "inductive"], "--setting inductive: 'digits' is images"),
        ({}, ["--model", "resnet"], "model 'resnet' is not known"),
        ({"method": "dmm"}, [], "did you mean 'dm'?"),
        ({"method": "gcond"}, [], "method 'gcond' condenses graphs, but 'digits' has images"),
        ({"method": "hcdc"}, ["--train-method", "reach"], "method 'reach' condenses graphs"),
        ({"method": "hcdc"}, [*LEARN, "--set", "probes=5"], "--probes 4 and --set probes=5"),
        (
            {"method": "hcdc"},
            ["--val-method", "weighted", "--probes", "3"],
            "'probes' of --val-method 'weighted' must be at least 4",
        ),
        (
            {"method": "hcdc"},
            [*LEARN, "--set", "calibrate=yes"],
            "'calibrate' of --val-method 'probes' must be bool",
        ),
        ({"method": "hcdc"}, [*LEARN, "--set", "calibrate=True"], "must be bool, got 'True'"),
        ({"method": "hcdc"}, [*LEARN, "--set", "calibrate=1"], "must be bool, got 1"),
        ({"method": "hcdc"}, [*LEARN, "--set", "companions=2"], "must be 0 or at least 4, got 2"),
        ({"method": "hcdc"}, ["--val-method", "weigted"], "did you mean 'weighted'?"),
        ({"method": "hcdc"}, ["--truth-epochs", "0"], "--truth-epochs 0: at least 1"),
        ({}, ["--truth-dataset", "cifar10"], "--truth-dataset cifar10: it needs --truth FILE"),
        ({}, ["--truth", "t.csv"], "the data is 'digits'"),
        ({}, ["--truth", "t.csv", "--truth-dataset", "cifar1"], "did you mean 'cifar10'?"),
        ({}, ["--truth", "t.csv", "--truth-dataset", "cifar10"], "there is no NAS-Bench-201 table"),
    ],
)
def test_condense_refuses(place, capsys, changes, arguments, said):
    before = files(place)
    assert_refused(place, before, *condense(capsys, *arguments, **changes), said)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--images-per-class", "3"],
        ["--train-size", "30", "--val-images-per-class", "3"],
        ["--train-size", "30", "--truth", "t.csv"],
        ["--train-size", "30", "--truth-epochs", "3"],
        ["--train-size", "30", "--model", "convnet"],
        ["--train-size", "30", "--space", "nasbench201"],
        ["--train-size", "30", "--method", "dm"],
    ],
)
def test_what_is_for_images_is_refused_elsewhere(place, capsys, arguments):
    run = hcdc_run(capsys, "condense", "--dataset", "embedded", *arguments, "--out", "a.hcdc")
    assert_refused(place, files(place), *run, "graph")


def bad_images(name):
    arrays = {key: value.copy() for key, value in digits().items()}
    if name == "mixed shapes":
        arrays["x_test"] = arrays["x_test"][:, :7]
    elif name == "negative label":
        arrays["y_train"][3] = -1
    elif name == "label out of range":
        arrays["y_test"][3] = 12
    elif name == "fewer labels":
        arrays["y_train"] = arrays["y_train"][:-1]
    elif name == "no test":
        del arrays["x_test"]
    elif name == "nan":
        arrays = {key: v.astype(np.float32) if key[0] == "x" else v for key, v in arrays.items()}
        arrays["x_train"][2, 3, 4] = np.nan
    return arrays


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mixed shapes", "images of mixed shapes"),
        ("negative label", "label -1 is out of range"),
        ("label out of range", "label 12 is out of range; 0 .. 9 is allowed"),
        ("fewer labels", "199 labels"),
        ("no test", "lacks the arrays x_test"),
        ("nan", "NaN"),
    ],
)
def test_images_that_cannot_be_used_are_refused(place, capsys, name, said):
    np.savez(place / "bad.npz", **bad_images(name))
    assert_refused(place, files(place), *condense(capsys, dataset="bad.npz"), said)


def test_pictures_of_mixed_shapes_are_refused(place, capsys):
    pillow = pytest.importorskip("PIL.Image")
    for label, size in (("cat", 8), ("dog", 9)):
        folder = place / "pets" / label
        folder.mkdir(parents=True)
        for k in range(4):
            pillow.fromarray(np.full((size, size), k, np.uint8)).save(folder / f"{k}.png")
    assert_refused(place, files(place), *condense(capsys, dataset="pets"), "images of mixed shapes")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "there is no NAS-Bench-201 table"),
        ("truncated", "cannot be read"),
        ("damaged", "cannot be read"),
        ("without columns", "has no column c10_test_12, params_m"),
        ("no cell", "are not six numbers 0 to 4"),
        ("no number", "not a number"),
        ("few cells", "is not in this NAS-Bench-201 table of 3"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_before_the_work(place, capsys, monkeypatch, name, said):
    np.savez(place / "images.npz", **colours())
    file = place / ("t.csv.gz" if name in ("truncated", "damaged") else "t.csv")
    text = table_text(3)
    if name == "truncated":
        file.write_bytes(gzip.compress(text.encode())[:-20])
    elif name == "damaged":
        whole = bytearray(gzip.compress(text.encode()))
        whole[20:40] = b"\xff" * 20
        file.write_bytes(whole)
    elif name == "without columns":
        rows = list(csv.DictReader(text.splitlines()))
        kept = [column for column in rows[0] if column not in ("params_m", "c10_test_12")]
        file.write_text("\n".join([",".join(kept), *(",".join(row[c] for c in kept) for row in rows)]))
    elif name != "missing":
        wrong = {"no cell": ("0-0-0-0-0-1", "0-0-conv-0-0-1"), "no number": ("20.001", "many")}
        file.write_text(text.replace(*wrong.get(name, ("", ""))))
    monkeypatch.setattr(Plan, "run", None)
    run = condense(
        capsys, "--val-method", "weighted", "--truth", file.name, "--truth-dataset", "cifar10",
        dataset="images.npz", method="hcdc", per_class=2,
    )  # fmt: skip
    assert_refused(place, files(place), *run, said)


def test_a_table_is_refused_where_it_would_not_be_looked_at(place, capsys):
    np.savez(place / "images.npz", **colours())
    (place / "t.csv").write_text(table_text(3))
    table = ("--truth", "t.csv", "--truth-dataset", "cifar10")
    before = files(place)
    run = condense(capsys, *table, dataset="images.npz", per_class=2)
    assert_refused(place, before, *run, "method 'random' does not use full-data results")
    aligned = ("--val-method", "random", *table)
    run = condense(capsys, *aligned, dataset="images.npz", per_class=2, method="hcdc")
    assert_refused(place, before, *run, "--truth: --val-method 'random' needs no full-data results")


def test_a_table_about_other_data_is_refused(place, capsys):
    assert condense(capsys, "--quiet")[0] == 0
    (place / "t.csv").write_text(table_text(3))
    before = files(place)
    table = ("--truth", "t.csv", "--truth-dataset", "cifar10")
    run = condense(capsys, *table, method="hcdc", out="b.hcdc")
    assert_refused(place, before, *run, "'digits' has 10 of 1 x 8 x 8")
    run = hcdc_run(capsys, "evaluate", "a.hcdc", "--truth", "t.csv", "--truth-dataset", "cifar10")
    assert_refused(place, before, *run, "'digits' has 10 of 1 x 8 x 8")
