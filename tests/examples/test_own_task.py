"""examples/own_task.py brings its own data, task, space, condenser, way to S_val and rival, from outside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hcdc
import hcdc.cli
from hcdc.core.plugins import import_module_or_file
from hcdc.testing import SpaceConformance, TaskConformance

FILE = Path(__file__).parents[2] / "examples" / "own_task.py"
QUICK = {"steps": 20, "seeds": 1}
RIVALS = {"random-val", "real-val", "high-band"}


def own():
    return import_module_or_file(str(FILE))


class TestSignalTask(TaskConformance):
    def make(self):
        return own().SignalTask(hcdc.data("signals")), own().Bands()


class TestBands(SpaceConformance):
    def make(self):
        return own().Bands()


def test_in_python(tmp_path):
    """Condense, save, load, inspect, evaluate, report; the file names what it was made by."""
    task = own().SignalTask(hcdc.data("signals"))
    small = hcdc.condense(
        task, own().Bands(), train_method="loudest", val_method="central", train_size=12, val_size=9,
        options={"power": 1}, recipe=QUICK, full_recipe=QUICK,
    )  # fmt: skip
    again = hcdc.CondensedDataset.load(small.save(tmp_path / "s.hcdc"))
    told = dict(again.summary())
    assert told["kind"] == "signal, format 1"
    assert told["classes"] == "3: slow, medium, fast"
    assert (told["train"], told["val"]) == ("12 signals", "9 signals")
    made = {key: again.meta[key] for key in ("train_method", "val_method", "kind_module")}
    assert made == {"train_method": "loudest", "val_method": "central", "kind_module": "own_task"}
    assert (again.meta["task"], again.meta["space"]) == ({"name": "signal"}, {"name": "bands"})
    assert again.meta["settings"]["val"] == {"power": 1}
    loud = task.part("train").x.square().sum(1)[task.train.y == 0].max()
    assert float(again.train.x.square().sum(1)[again.train.y == 0].max()) == float(loud)
    found = hcdc.evaluate(again, candidates=6, rivals=sorted(RIVALS))
    assert {rival.name for rival in found.rivals} == RIVALS
    by_name = {rival.name: rival for rival in found.rivals}
    assert list(by_name["high-band"].proxy) == [config["band_3"] for config in found.configs]
    pytest.importorskip("matplotlib")
    assert "signals" in hcdc.report(found, tmp_path / "report.html").read_text()


def command(capsys, *arguments):
    """Standard output of the command, which must succeed."""
    with pytest.raises(SystemExit) as left:
        hcdc.cli.main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert not left.value.code, captured.err
    return captured.out


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    brought = ("--import", FILE)
    quick = [f"{flag}={value}" for flag, value in QUICK.items()]
    recipes = [text for each in quick for text in ("--recipe", each, "--full-recipe", each)]
    made = ("--dataset", "signals", "--train-size", 12, "--val-method", "central", "--out", "s.hcdc")
    command(capsys, "condense", *brought, *made, "--train-method", "loudest", "--set", "power=1", *recipes)
    told = command(capsys, "inspect", "s.hcdc", *brought)
    assert "12 signals" in told
    assert f"next: hcdc evaluate s.hcdc --import {FILE}" in told
    command(capsys, "evaluate", "s.hcdc", *brought, "--candidates", 6, "--device", "cpu", "--quiet")
    judged = json.loads(Path("s.evaluation.json").read_text())
    assert "high-band" in {rival["name"] for rival in judged["rivals"]}
    without = [sys.executable, "-m", "hcdc", "inspect", "s.hcdc"]
    refused = subprocess.run(without, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "hcdc: 's.hcdc' cannot be opened: kind 'signal' is defined in module 'own_task'; import it first, or "
        "pass --import own_task"
    ]
    pytest.importorskip("matplotlib")
    command(capsys, "report", "s.evaluation.json", *brought)
    assert "signals" in Path("report.html").read_text()


def test_other_spaces_and_other_data_are_refused():
    task, bands = own().SignalTask(hcdc.data("signals")), own().Bands()
    with pytest.raises(hcdc.InputError, match="space 'polynomial-filter' does not fit signals"):
        hcdc.condense(task, hcdc.spaces.PolynomialFilter(), "random", train_size=12)
    graph = hcdc.GraphTask(hcdc.data("embedded"))
    with pytest.raises(hcdc.InputError, match="space 'bands' builds no graph network"):
        hcdc.condense(graph, bands, "random", train_size=30)
    with pytest.raises(hcdc.InputError, match="method 'loudest' condenses signals"):
        hcdc.condense(graph, hcdc.spaces.PolynomialFilter(), "loudest", train_size=30)
