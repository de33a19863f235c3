"""`hcdc evaluate` on images: what it says and refuses before the first training."""

import re

import numpy as np
import pytest
import torch
from command_line import assert_refused, files, hcdc_run

from hcdc.condensers import condense, training_seconds
from hcdc.core.recipe import Recipe
from hcdc.datasets import data
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask

SPACE = NASBench201(channels=2, cells=1)
SHORT = {"full_recipe": {"steps": 2}, "recipe": {"steps": 2, "seeds": 1}}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with images of noise whose validation part has no third class, and a copy of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HCDC_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    parts = {}
    for part, y in (("train", np.arange(60) % 3), ("val", np.arange(12) % 2), ("test", np.arange(12) % 3)):
        parts |= {f"x_{part}": rng.integers(0, 256, (len(y), 8, 8), dtype=np.uint8), f"y_{part}": y}
    np.savez(tmp_path / "noise.npz", **parts)
    save("a.hcdc", SPACE)
    return tmp_path


def save(name, space, model="space"):
    task = ImageTask(data("noise.npz"), model)
    condense(task, space, "random", train_size=6, val_method="real", **SHORT).save(name)


def evaluate(capsys, *arguments, file="a.hcdc"):
    return hcdc_run(capsys, "evaluate", file, "--device", "cpu", *arguments)


def test_validation_images_without_a_class_are_judged_with(place, capsys):
    code, out, err = evaluate(capsys, "--candidates", "3")
    assert code == 0, err
    assert re.search("^candidates +3 of ", out, re.MULTILINE)
    assert "real-val-loss" in out
    assert "random-val" not in out


def test_a_prediction_takes_whatever_validation_images_there_are(place):
    task = ImageTask(data("noise.npz"))
    assert training_seconds(task, SPACE, Recipe(optimizer="sgd", batch=10, steps=2), "cpu") > 0


def test_the_lines_have_the_number_of_candidates_that_are_judged(place, capsys, monkeypatch):
    class Few(NASBench201):
        def candidates(self):
            return super().candidates()[1000:1006]

    for module in ("_judges", "_evaluate"):
        monkeypatch.setattr(f"hcdc.evaluation.{module}.from_spec", lambda _: Few(channels=2, cells=1))
    code, out, err = evaluate(capsys, "--candidates", "80", "--no-rivals")
    assert code == 0, err
    assert re.search("^candidates +3 of ", out, re.MULTILINE)
    assert "3 full-data trainings" in out
    assert (
        "80 candidates were asked for, but only 3 judge the copy: space 'nasbench201' has 6, of which" in err
    )


@pytest.mark.parametrize("given", ["option", "environment"])
def test_a_cache_that_is_a_file_is_refused(place, capsys, monkeypatch, given):
    monkeypatch.setenv("HCDC_CACHE", str(place / "noise.npz"))
    before = files(place)
    arguments = ("--cache", "noise.npz") if given == "option" else ()
    found = evaluate(capsys, "--candidates", "3", "--quiet", *arguments)
    assert_refused(place, before, *found, "noise.npz' for full-data results: File exists")


def test_one_network_for_all_candidates_is_refused_before_anything_is_said(place, capsys):
    save("b.hcdc", SPACE, "convnet")
    before = files(place)
    found = evaluate(capsys, "--candidates", "3", file="b.hcdc")
    assert_refused(place, before, *found, "model 'convnet' is one network for all candidates")
    given = ("--dataset", "noise.npz", "--train-size", "6", "--val-method", "real", "--device", "cpu")
    code, out, err = hcdc_run(capsys, "condense", *given, "--model", "convnet", "--out", "c.hcdc")
    assert code == 0, err
    assert out.splitlines()[-1].endswith("next: train on it in Python, hcdc.CondensedDataset.load('c.hcdc')")


def test_a_class_without_validation_images_is_said_to_have_none(place, capsys):
    before = files(place)
    given = ("--dataset", "noise.npz", "--method", "random", "--out", "b.hcdc", "--train-size", "6")
    found = hcdc_run(capsys, "condense", *given, "--val-images-per-class", "1")
    assert_refused(place, before, *found, "class 2 ('2') has no val images; add some, or use the real ones")


def own_network(config):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))


def test_a_model_of_ones_own_is_judged_in_python(place, capsys):
    save("own.hcdc", SPACE, own_network)
    before = files(place)
    result = evaluate(capsys, file="own.hcdc")
    said = ":own_network', and a file holds no code; pass the task in Python, hcdc.evaluate(copy, task=...)"
    assert_refused(place, before, *result, said)


def test_data_from_memory_is_judged_in_python(place, capsys):
    x, y = np.zeros((60, 8, 8), np.uint8), np.arange(60) % 3
    condense(ImageTask(data((x, y))), SPACE, "random", train_size=6, val_method="real", **SHORT).save(
        "m.hcdc"
    )
    before = files(place)
    result = evaluate(capsys, file="m.hcdc")
    assert_refused(
        place, before, *result, "in Python, hcdc.evaluate(copy, task=...) or copy.score(config, task=...)"
    )
