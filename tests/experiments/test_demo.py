"""The demo with everything cut down; the whole of it is marked slow."""

import json
import time

import pytest

from recipes import change_recipes

pytest.importorskip("matplotlib")

import hcdc.experiments._demo as demo
from hcdc import CondensedDataset, InputError, Recipe
from hcdc.core.progress import Progress
from hcdc.experiments import run_demo

SHORT = {
    "random": {},
    "gcond": {"epochs": 2, "outer": 2},
    "hcdc": {"trajectories": 4, "holdout": 4, "steps": 2, "batch": 2, "check": 1, "iterations": 2},
}
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
    """A demo of seconds: 3 filters of width 2, 2 training steps, next to no condensing."""
    whole = demo.condense

    def condense(task, space, method, **arguments):
        return whole(task, space, method, **arguments, options=SHORT[method])

    monkeypatch.setattr(demo, "condense", condense)
    monkeypatch.setattr(demo, "CANDIDATES", 3)
    monkeypatch.setattr(demo, "BUDGET", "1s")
    monkeypatch.setattr(demo, "WIDTH", 2)
    change_recipes(monkeypatch, lambda **given: Recipe(**{"steps": 2, **given}))


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
    result = run_demo(tmp_path / "out", "cpu", 3, progress)
    assert [e.method for e in result.evaluations] == ["random", "gcond", "hcdc"]
    for e in result.evaluations:
        small = CondensedDataset.load(tmp_path / "out" / f"{e.method}.hcdc")
        assert (small.meta["preset"], small.meta["seed"], len(small.train)) == ("demo", 3, demo.TRAIN_SIZE)
        assert json.loads((tmp_path / "out" / f"{e.method}.evaluation.json").read_text()) == e.to_json()
        assert e.truth == result.evaluations[0].truth
    rivals = [{rival.name for rival in e.rivals} for e in result.evaluations]
    assert {"real-val", "early-stopping"} <= rivals[0] & rivals[2]
    assert all(path.stat().st_size > 1000 for path in result.figures)
    page = result.report.read_text()
    assert "Shortened runs (preset 'demo'): gcond; hcdc." in page
    assert json.loads((tmp_path / "out" / "search.json").read_text()) == result.found.to_json()
    assert result.found.full_trainings > 0
    assert (
        json.dumps(result.found.best).replace('"', "&quot;") in (tmp_path / "out" / "search.html").read_text()
    )
    assert progress.index == progress.count == demo.PHASES
    assert any("hcdc: searching 3 filters" in text for text in reports)
    assert not list((tmp_path / "out").glob(".*.ckpt*"))

    monkeypatch.setattr(demo, "write_figures", lambda *_: [])
    monkeypatch.setattr(demo, "search", lambda *_, **__: result.found)
    monkeypatch.setattr(demo, "write_report", lambda *_: tmp_path)
    again = run_demo(tmp_path / "again", "cpu", 3)
    for first, second in zip(result.evaluations, again.evaluations):
        assert without_times(first) == without_times(second)
        name = f"{first.method}.hcdc"
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        run_demo(tmp_path / "file" / "out")


@pytest.mark.slow
def test_the_whole_demo_keeps_its_budget(tmp_path):
    before = time.process_time()
    result = run_demo(tmp_path)
    assert time.process_time() - before < 480  # four minutes on two cores
    agreement = {e.method: e.spearman for e in result.evaluations}
    assert agreement["hcdc"] > max(agreement["random"], agreement["gcond"])
