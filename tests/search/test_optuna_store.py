"""A search in an Optuna journal: resume, links, faults, and what Optuna itself makes of it."""

import json
import math
import os
import sys

import numpy as np
import pytest
from tests.search.clocks import Stops, bowl, full, told, trainings

from hcdc import HcdcError, InputError, spaces
from hcdc.search import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    LineStore,
    OptunaStore,
    Outcome,
    TrialPruned,
    from_dimension,
    from_optuna,
    open_store,
    search,
    to_dimension,
    to_optuna,
)
from hcdc.search._dimensions import distributions_of

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("quick")


def journal(path):
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


@pytest.mark.parametrize(
    "dist",
    [
        FloatDistribution(0.0, 1.0),
        FloatDistribution(1e-4, 1.0, log=True),
        FloatDistribution(0.0, 1.0, step=0.25),
        IntDistribution(1, 9),
        IntDistribution(1, 64, log=True),
        IntDistribution(0, 10, step=5),
        CategoricalDistribution(("a", None, True, 3, 0.5)),
    ],
)
def test_distributions_go_both_ways(dist):
    theirs = to_optuna(dist)
    assert type(theirs).__name__ == type(dist).__name__
    assert from_optuna(theirs) == dist
    back = from_dimension(to_dimension("p", dist))
    rng = np.random.default_rng(0)
    for value in [dist.draw(rng) for _ in range(20)]:
        assert theirs._contains(theirs.to_internal_repr(value))
        assert back.contains(value)
    if dist.values == math.inf or isinstance(dist, CategoricalDistribution):
        assert back == dist


def test_dimensions_of_spaces():
    found = distributions_of(spaces.Training())
    for dimension in spaces.Training().dimensions():
        dist = found[dimension.name]
        assert isinstance(dist, IntDistribution) == dimension.whole
        assert to_dimension(dimension.name, dist).distribution == dimension.distribution
    assert distributions_of(spaces.NASBench201()) == {}  # thousands of choices in every trial


def test_interrupted_and_continued_gives_the_same(clock, tmp_path):
    calls, again = [], []
    lines = search(bowl(clock, calls), full(), budget=60, seed=1, storage=tmp_path / "whole.jsonl")
    stop = Stops(len(calls), 0.04, 0.4, 0.8)

    def run():
        return search(bowl(clock, again, stop), full(), budget=60, seed=1, storage=tmp_path / "s.log")

    found = stop.until_done(run)
    assert told(found) == told(lines)
    assert len(again) == len(calls) + 3  # only the trials that were stopped ran again
    assert sum(len(study.trials) for study in found.studies.values()) == len(calls)
    before = (tmp_path / "s.log").read_bytes()
    run()
    assert (tmp_path / "s.log").read_bytes() == before  # a finished search runs and writes nothing
    assert len(again) == len(calls) + 3


def test_one_study_per_rung_with_linked_trials(clock, tmp_path):
    found = search(bowl(clock), full(), budget=120, seed=0, storage=tmp_path / "s.log")
    names = ["subset:0.1", "short:0.25", "full"]
    assert list(found.studies) == names
    read = {
        name: optuna.load_study(study_name=f"search/{name}", storage=journal(tmp_path / "s.log"))
        for name in names
    }
    assert [t.number for t in read["full"].trials] == [t.number for t in found.study.trials]
    for below, name in zip([None, *names], names):
        study = read[name]
        assert study.direction.name == "MAXIMIZE"
        for trial in study.trials:
            attrs = trial.user_attrs
            assert attrs["rung"] == name
            assert attrs["data"] == full().fingerprint
            assert trial.duration.total_seconds() == pytest.approx(attrs["seconds"], abs=1e-5)
            assert set(trial.params) == {"x", "y"}
            assert trial.distributions["y"] == optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
            if below is not None:
                link = attrs["below"]
                assert link["rung"] == below
                assert read[below].trials[link["trial"]].params == trial.params
    again = [t.value for t in found.study.trials if t.user_attrs["repeat"] > 0]
    assert sorted(again) == sorted(score for one in found.finalists for score in one["scores"][1:])
    assert found.study.best_value >= found.score
    assert found.score in again
    assert "open_studies" not in found.to_json()


@pytest.mark.parametrize("storage", [None, "s.log"])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_optunas_plots_work(clock, tmp_path, storage):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pytest.importorskip("sklearn")
    found = search(bowl(clock), full(), budget=40, storage=storage and tmp_path / storage)
    plots = optuna.visualization.matplotlib
    for study in found.studies.values():
        line = plots.plot_optimization_history(study)
        scores = [t.value for t in study.trials if t.value is not None]
        assert np.asarray(line.collections[0].get_offsets())[:, 1] == pytest.approx(scores)
        bars = plots.plot_param_importances(study)
        assert {text.get_text() for text in bars.get_yticklabels()} == {"x", "y"}
    matplotlib.pyplot.close("all")


def test_conditional_failed_and_pruned_trials(clock, tmp_path):
    """Every fourth trial fails, and every fourth is pruned."""

    def objective(trial, data):
        clock.spend(data.epochs(10) * len(data.train[1]) / 1000)
        n = trial.suggest_int("n", 1, 4)
        kind = trial.suggest_categorical("kind", ["a", "b"])
        trial.set_user_attr("number", trial.number)
        trial.report(0.25, 1)
        z = trial.suggest_float("z", 0, 1) if kind == "a" else 0.0
        if trial.number % 4 == 2:
            raise TrialPruned
        if trial.number % 4 == 3:
            raise ValueError("no")
        return n + z

    found = search(objective, full(), budget=30, storage=tmp_path / "s.log")
    states, kinds = set(), set()
    for trial in found.studies["subset:0.1"].trials:
        kind = trial.params["kind"]
        expected = {2: "PRUNED", 3: "FAIL"}.get(trial.user_attrs["number"] % 4, "COMPLETE")
        states.add(expected)
        kinds.add(kind)
        assert trial.state.name == expected
        assert ("z" in trial.params) == (kind == "a")
        assert trial.intermediate_values == {1: 0.25}
        assert (trial.value is None) == (expected != "COMPLETE")
        assert trial.user_attrs["note"].startswith({"FAIL": "ValueError: no"}.get(expected, ""))
    assert states == {"COMPLETE", "PRUNED", "FAIL"}
    assert kinds == {"a", "b"}
    again = search(objective, full(), budget=30, storage=tmp_path / "s.log")
    assert told(again) == told(found)


def test_outcomes_survive_the_journal(tmp_path):
    store = OptunaStore(tmp_path / "s.log")
    store.open({"data": "d"}, {"x": FloatDistribution(0.0, 1.0)})
    kept = Outcome({"x": 0.1 + 0.2, "y": [1]}, 0.5, 1.5, values={"loss": 2.0}, parts={"test": 0.25})
    lost = Outcome({"x": 3.0}, math.nan, 0.5, "failed", note="it failed")
    for outcome in (kept, lost):
        store.tell("full", 0, outcome)
    store.note("audit", [1, 2])
    again = OptunaStore(tmp_path / "s.log")
    assert again.outcome("full", 0, kept.config) == kept
    assert again.outcome("full", 1, kept.config) is None
    found = again.outcome("full", 0, lost.config)
    assert (found.state, found.note, math.isnan(found.score)) == ("failed", "it failed", True)
    assert again.noted("audit") == again.note("audit", [3]) == [1, 2]
    assert [t.params for t in again.studies()["full"].trials] == [{"x": 0.1 + 0.2}, {}]


def test_stale_trials_and_other_studies(clock, tmp_path):
    path = tmp_path / "s.log"
    whole = search(bowl(clock), full(), budget=30, storage=path)
    other = optuna.create_study(storage=journal(path), study_name="mine")
    other.ask()
    optuna.load_study(storage=journal(path), study_name="search/full").ask()
    assert told(search(bowl(clock), full(), budget=30, storage=path)) == told(whole)
    states = [t.state.name for t in optuna.load_study(storage=journal(path), study_name="search/full").trials]
    assert states[-1] == "FAIL"
    mine = optuna.load_study(storage=journal(path), study_name="mine")
    assert [t.state.name for t in mine.trials] == ["RUNNING"]


def test_mixed_studies_are_refused(clock, tmp_path):
    path = tmp_path / "s.log"
    found = search(bowl(clock), full(), budget=30, storage=path)
    optuna.load_study(storage=journal(path), study_name="search/full").add_trial(
        found.studies["subset:0.1"].trials[0]
    )
    with pytest.raises(InputError, match=r"'search/full' in .* mixes rungs: trial \d+ has rung subset:0.1"):
        search(bowl(clock), full(), budget=30, storage=path)
    path = tmp_path / "down.log"
    optuna.create_study(storage=journal(path), study_name="search/full")
    with pytest.raises(InputError, match="is not maximised"):
        search(bowl(clock), full(), budget=30, storage=path)


def test_torn_and_damaged_journals(clock, tmp_path, monkeypatch):
    path = tmp_path / "s.log"
    whole = search(bowl(clock), full(), budget=30, storage=path)
    content = path.read_bytes()
    for cut, zeros in ((7, 0), (len(content) // 2, 0), (len(content) // 2, 50), (len(content) // 2, 4096)):
        left = content[:-cut]
        if zeros == 4096:  # a loss of power
            left = left[: left.rfind(b"\n") + 1]
        path.write_bytes(left + bytes(zeros))
        assert told(search(bowl(clock), full(), budget=30, storage=path)) == told(whole)
    lines = content.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"\x00\xff broken\n", *lines[3:]]))
    with pytest.raises(
        InputError, match=r"line 4 of .* is not a record of an Optuna journal; restore the file"
    ):
        search(bowl(clock), full(), budget=30, storage=path)
    path.write_bytes(b'{"op_code": 4, "study_id": 0}\n')
    with pytest.raises(InputError, match=r"the Optuna journal .* is damaged"):
        search(bowl(clock), full(), budget=30, storage=path)
    path.write_bytes(content)
    with pytest.raises(InputError, match="the storage holds a search with seed"):
        search(bowl(clock), full(), budget=30, storage=path, seed=1)


def test_a_full_disk_ends_in_a_sentence_and_keeps_what_is_done(clock, tmp_path, monkeypatch):
    path, calls, again, all_calls = tmp_path / "s.log", [], [], []
    whole = search(bowl(clock, all_calls), full(), budget=30)
    assert len(all_calls) == trainings(whole)
    backend = optuna.storages.journal.JournalFileBackend
    append = backend.append_logs

    def full_disk(self, logs):
        if len(calls) == len(all_calls) // 2:
            with open(path, "ab") as handle:
                handle.write(b'{"op_code":4,"wor')
            raise OSError(28, "No space left on device")
        append(self, logs)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "append_logs", full_disk)
        with pytest.raises(
            HcdcError, match=r"cannot be written .No space left on device.*finished trials are kept"
        ):
            search(bowl(clock, calls), full(), budget=30, storage=path)
    assert told(search(bowl(clock, again), full(), budget=30, storage=path)) == told(whole)
    assert len(calls) - 1 + len(again) == len(all_calls)  # one training was lost


def test_which_store(clock, tmp_path, monkeypatch):
    assert isinstance(open_store(tmp_path / "a.jsonl"), LineStore)
    assert isinstance(open_store(tmp_path / "a.journal"), OptunaStore)
    assert isinstance(open_store(tmp_path / "a"), OptunaStore)
    open_store(tmp_path / "b.jsonl").open({"data": 1})
    (tmp_path / "b.jsonl").rename(tmp_path / "b")
    assert isinstance(open_store(tmp_path / "b"), LineStore)
    open_store(tmp_path / "c.log").open({"data": 1})
    (tmp_path / "c.log").rename(tmp_path / "c.jsonl")
    assert isinstance(open_store(tmp_path / "c.jsonl"), OptunaStore)
    (tmp_path / "d.txt").write_text("a letter")
    with pytest.raises(InputError, match="not a record of an Optuna journal"):
        open_store(tmp_path / "d.txt")
    assert (tmp_path / "d.txt").read_text() == "a letter"
    with pytest.raises(InputError, match="is an address; name a file"):
        open_store("sqlite:///s.db")
    with pytest.raises(HcdcError, match="cannot be written"):
        open_store(tmp_path / "no" / "such.log")
    with pytest.raises(InputError, match="storage is a dict; name a file"):
        open_store({})
    with pytest.raises(InputError, match=f"'{os.devnull}' is a device or a pipe; name a file"):
        open_store(os.devnull)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert isinstance(open_store(tmp_path / "e"), LineStore)


def test_optuna_says_nothing(clock, tmp_path, capfd):
    search(bowl(clock), full(), budget=20, storage=tmp_path / "s.log", sampler="tpe")
    assert capfd.readouterr() == ("", "")
    assert json.loads((tmp_path / "s.log").read_text().splitlines()[0])["study_name"] == "search"
