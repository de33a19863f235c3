"""Code of one's own through the command: spaces by --import, networks by --model."""

import sys

import numpy as np
import pytest
from command_line import assert_refused, files, hcdc_run

import hcdc
from hcdc import CondensedDataset, ImageTask, data
from hcdc.spaces import NASBench201

SPACE = """
from hcdc.spaces import PolynomialFilter, register

@register
class Own(PolynomialFilter):
    name = "own-filter"
"""
NETWORK = """
import torch
from own_layers import WIDTH

def net(config):
    width = WIDTH + sum(map(ord, str(config))) % 7
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, 3))
"""
SHORT = ("--recipe", "steps=2", "--recipe", "seeds=1", "--full-recipe", "steps=2", "--full-recipe", "seeds=1")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder to work in; its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def condense(capsys, *arguments, dataset="embedded", size=12, out="a.hcdc"):
    given = (
        "--dataset",
        dataset,
        "--method",
        "random",
        "--train-size",
        size,
        "--out",
        out,
        "--device",
        "cpu",
    )
    return hcdc_run(capsys, "condense", *given, *SHORT, *arguments)


def test_a_space_of_ones_own(place, capsys):
    before = files(place)
    refused = condense(capsys, "--space", "own-filter")
    assert_refused(place, before, *refused, "--space 'own-filter' is not known; ")
    (place / "brought.py").write_text(SPACE)
    own = ("--import", "brought.py")
    code, out, err = condense(capsys, "--space", "own-filter,order=2", *own)
    assert code == 0, err
    assert out.splitlines()[-1].endswith("next: hcdc evaluate a.hcdc --import brought.py")
    space = CondensedDataset.load("a.hcdc").meta["space"]
    assert (space["name"], space["order"]) == ("own-filter", 2)
    assert hcdc_run(capsys, "inspect", "a.hcdc", "--import", "brought")[0] == 0
    code, _, err = hcdc_run(
        capsys, "evaluate", "a.hcdc", "--candidates", "3", "--no-rivals", "--device", "cpu", *own
    )
    assert code == 0, err
    pytest.importorskip("matplotlib")
    code, _, err = hcdc_run(capsys, "report", "a.evaluation.json", *own)
    assert code == 0, err


@pytest.mark.parametrize("command", ["condense", "evaluate", "inspect", "report"])
def test_a_module_that_cannot_be_imported_is_refused(place, capsys, command):
    (place / "broken_module.py").write_text("1 / 0")
    before = files(place)
    given = ("--dataset", "embedded", "--out", "a.hcdc") if command == "condense" else ("a.hcdc",)
    found = hcdc_run(capsys, command, *given, "--import", "broken_module.py")
    assert_refused(place, before, *found, "'broken_module.py' cannot be imported: ZeroDivisionError")


@pytest.fixture
def images(place):
    """Noise in three classes."""
    rng = np.random.default_rng(0)
    parts = {}
    for part, count in (("train", 60), ("val", 12), ("test", 12)):
        parts |= {f"x_{part}": rng.integers(0, 256, (count, 8, 8), dtype=np.uint8)}
        parts |= {f"y_{part}": np.arange(count) % 3}
    np.savez(place / "noise.npz", **parts)
    (place / "models").mkdir()
    (place / "models" / "own_layers.py").write_text("WIDTH = 5")
    (place / "models" / "own_network.py").write_text(NETWORK)
    return "noise.npz"


def test_a_network_of_ones_own(images, place, capsys, monkeypatch):
    own = ("--model", "models/own_network.py:net")
    code, out, err = condense(capsys, *own, dataset=images)
    assert code == 0, err
    assert out.splitlines()[-1].endswith("next: hcdc evaluate a.hcdc --model models/own_network.py:net")
    assert CondensedDataset.load("a.hcdc").meta["task"]["model"] == "own_network:net"
    out = hcdc_run(capsys, "inspect", "a.hcdc")[1]
    assert out.splitlines()[-1] == "nothing written; next: hcdc evaluate a.hcdc --model own_network:net"
    with monkeypatch.context() as fresh:  # another process does not know the module
        fresh.delitem(sys.modules, "own_network")
        fresh.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("models")])
        out = hcdc_run(capsys, "inspect", "a.hcdc")[1]
    assert out.splitlines()[-1] == "nothing written; next: hcdc evaluate a.hcdc --model FILE.py:net"
    before = files(place)
    given = ("evaluate", "a.hcdc", "--candidates", "6", "--device", "cpu", "--no-rivals")
    assert_refused(place, before, *hcdc_run(capsys, *given), "or --model FILE.py:NAME to the command")
    code, _, err = hcdc_run(capsys, *given, *own)
    assert code == 0, err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("models/own_network.py:nett", "'models/own_network.py' has no 'nett'"),
        ("models/nothing.py:net", "nothing.py' does not exist"),
        ("models/own_network.py:WIDTH", "it must be 'space', 'convnet' or a function"),
        ("own_network.py", "'own_network.py' is not known"),
    ],
)
def test_what_is_no_network_is_refused(images, place, capsys, model, said):
    before = files(place)
    assert_refused(place, before, *condense(capsys, "--model", model, dataset=images), said)


def test_a_model_for_a_copy_without_one_is_refused(images, place, capsys):
    small = ("--space", "nasbench201,cells=1,channels=2", "--quiet")
    assert condense(capsys, *small, dataset=images)[0] == 0
    before = files(place)
    found = hcdc_run(capsys, "evaluate", "a.hcdc", "--model", "models/own_network.py:net")
    assert_refused(place, before, *found, "the copy was not made with your own model; leave it out")


def test_inspect_says_how_to_judge_data_from_memory(place, capsys):
    x, y = np.zeros((60, 8, 8), np.uint8), np.arange(60) % 3
    task = ImageTask(data((x, y)))
    made = hcdc.condense(task, NASBench201(channels=2), "random", train_size=6, val_method="real")
    made.save("m.hcdc")
    out = hcdc_run(capsys, "inspect", "m.hcdc")[1]
    assert out.splitlines()[-1].endswith(
        "next: hcdc.evaluate(small, task=...) in Python, since its data was passed in memory"
    )


@pytest.mark.parametrize(
    ("given", "target", "model"),
    [
        ((), "label", "logistic"),
        (("--model", "linear"), "label", "logistic"),
        (("--model", "mlp"), "label", "mlp"),
        (("--model", "linear"), "b", "ridge"),
        (("--model", "mlp"), "b", "mlp"),
    ],
)
def test_models_of_tables(place, capsys, given, target, model):
    pytest.importorskip("pandas")
    write_table(place)
    code, _, err = condense(capsys, *given, "--target", target, dataset="t.csv")
    assert code == 0, err
    assert CondensedDataset.load("a.hcdc").meta["task"]["model"] == model


def test_other_models_of_tables_are_refused(place, capsys):
    pytest.importorskip("pandas")
    write_table(place)
    (place / "own_network.py").write_text("def net(config): ...")
    before = files(place)
    for model, said in (("convnet", "model 'convnet' is not known"), ("own_network.py:net", "is not known")):
        run = condense(capsys, "--model", model, "--target", "label", dataset="t.csv")
        assert_refused(place, before, *run, said)


def write_table(place):
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{'yes' if a + b > 0 else 'no'}" for a, b in rng.standard_normal((60, 2))]
    (place / "t.csv").write_text("\n".join(["a,b,label", *lines]))
