"""Code of one's own through the command: spaces by --import, networks by --model."""

import sys

import pytest
from command_line import assert_refused, files, hcdc_run

from hcdc import CondensedDataset

SPACE = """
from hcdc.spaces import PolynomialFilter, register

@register
class Own(PolynomialFilter):
    name = "own-filter"
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
    code, _, err = condense(capsys, "--space", "own-filter,order=2", *own)
    assert code == 0, err
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
