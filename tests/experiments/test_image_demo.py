"""The demo of images with everything cut down; the whole of it is marked slow."""

import json
import os
import time

import pytest

from recipes import change_recipes

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

import hcdc.cli
import hcdc.experiments._image_demo as demo
from hcdc import CondensedDataset, InputError, Recipe
from hcdc.core.progress import Progress
from hcdc.experiments import run_image_demo

TIMES = (
    "condense_seconds",
    "proxy_seconds",
    "full_seconds",
    "break_even_trials",
    "break_even_against",
    "break_even_note",
    "environment",
    "rivals",
)


@pytest.fixture
def short(monkeypatch):
    """A demo of seconds: 3 cells with one channel, 2 training steps, next to no condensing."""
    copies = {
        "random": demo.Copy("random", None),
        "dm": demo.Copy("dm", "random", {"iterations": 2, "batch": 4, "width": 4}),
        "hcdc-weighted": demo.Copy("hcdc", "weighted", {"probes": 4, "companions": 0}, rivals=True),
        "hcdc-probes": demo.Copy("hcdc", "probes", {"probes": 4, "probe_steps": 2, "companions": 0}),
    }
    given = {"COPIES": copies, "CANDIDATES": 3, "CELLS": 1, "CHANNELS": 1, "TRAIN_SIZE": 20, "PROBES": 4}
    for name, value in given.items():
        monkeypatch.setattr(demo, name, value)
    steps = {"steps": 2, "seeds": 1}
    change_recipes(monkeypatch, lambda **given: Recipe(**{**given, **steps}))


def without_times(evaluation):
    return {
        k: v
        for k, v in evaluation.to_json().items()
        if k not in TIMES and not k.endswith("seconds_per_candidate")
    }


@pytest.mark.usefixtures("short")
def test_the_demo_writes_copies_evaluations_figures_and_a_page(tmp_path, monkeypatch):
    reports = []
    progress = Progress(every=0.0)
    progress.report = lambda text, **_: reports.append(text)
    cache = os.environ["HCDC_CACHE"]
    result = run_image_demo(tmp_path / "out", "cpu", 3, progress)
    assert os.environ["HCDC_CACHE"] == cache
    assert not os.path.exists(cache)  # full-data results, of probes too, are in the demo's own folder
    assert len(list((tmp_path / "out" / "full-data-results").glob("*.jsonl"))) == 1
    for name, e in zip(demo.COPIES, result.evaluations):
        small = CondensedDataset.load(tmp_path / "out" / f"{name}.hcdc")
        assert (e.method, e.val_method) == (small.meta["method"], small.meta["val_method"])
        assert (small.meta["seed"], len(small.train), e.preset) == (3, 20, "demo")
        assert json.loads((tmp_path / "out" / f"{name}.evaluation.json").read_text()) == e.to_json()
        assert e.truth == result.evaluations[0].truth
        assert "a second seed agrees by" in e.truth_source
    assert {rival.name for rival in result.evaluations[2].rivals} >= {"real-val", "one-seed-full"}
    written = {path.name for path in result.figures}
    assert written >= {"ranks.png", "scatter.png", "images-hcdc-weighted.png", "images-hcdc-probes.png"}
    assert all(path.stat().st_size > 1000 for path in result.figures)
    page = result.report.read_text()
    assert "(shortened)" in page
    assert "Shortened runs (preset 'demo'): dm" in page
    assert "mean absolute change per pixel" in page
    assert progress.index == progress.count == demo.PHASES
    assert any("hcdc-probes: searching 3 cells" in text for text in reports)
    assert not list((tmp_path / "out").glob(".*.ckpt*"))

    monkeypatch.setattr(demo, "write_figures", lambda *_: [])
    monkeypatch.setattr(demo, "image_grid", lambda *_, **__: tmp_path)
    monkeypatch.setattr(demo, "write_report", lambda *_: tmp_path)
    made = dict(zip(demo.COPIES, result.evaluations))
    monkeypatch.setattr(demo, "COPIES", {name: demo.COPIES[name] for name in ("random", "hcdc-probes")})
    again = run_image_demo(tmp_path / "again", "cpu", 3)
    for name, second in zip(demo.COPIES, again.evaluations):
        first = made[name]
        assert without_times(first) == without_times(second)
        file = f"{name}.hcdc"
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_doubtful_truth_is_said():
    shortened, sure = demo._notes(0.9)
    assert "shortened" in shortened
    assert sure.endswith("Spearman 0.90")
    assert "much of the truth is chance" in demo._notes(0.25)[1]
    assert demo._notes(0.25)[1].endswith("about 0.50")
    assert demo._notes(float("nan"))[1].endswith("about 0.00")


def test_the_command_takes_images(tmp_path, monkeypatch, capsys):
    asked = []

    def run(out, *_):
        asked.append(out)
        raise InputError("that is enough")

    monkeypatch.setattr("hcdc.experiments.run_image_demo", run)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        hcdc.cli.main(["demo", "--images", "--device", "cpu"])
    assert "that is enough" in capsys.readouterr().err
    assert [str(out) for out in asked] == [os.path.join("demo-out", "images")]


@pytest.mark.slow
def test_the_whole_demo_keeps_its_budget(tmp_path):
    before = time.process_time()
    result = run_image_demo(tmp_path)
    assert time.process_time() - before < 480  # four minutes on two cores
    assert all(e.spearman > 0.3 for e in result.evaluations)
