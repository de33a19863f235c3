"""The door for a user's own objective: rungs, faults, interruption, budget; without Optuna."""

import json
import math
import time

import numpy as np
import pytest
import torch
from tests.search.clocks import Stops, X, Y, back_and_forth, bowl, full, told, trainings

import hcdc
from hcdc import CondensedDataset, FullData, HcdcError, InputError
from hcdc.datasets import Rows
from hcdc.search import LineStore, ObjectiveProblem, Store, TrialPruned, open_store, parse_budget, search


def test_the_room_can_be_called():
    assert callable(hcdc.search)
    assert hcdc.search.search is search
    with pytest.raises(InputError, match="objective is a int"):
        hcdc.search(3, full())


def test_finds_the_optimum_within_the_budget(clock):
    calls = []
    found = search(bowl(clock, calls), full(), budget="4m", seed=0)
    assert found.score > 0.95  # the optimum is 1, a fresh score has noise of .01
    assert abs(found.best["x"] - 0.3) < 0.2
    assert set(found.best) == {"x", "y"}
    assert found.seconds == pytest.approx(clock.now)
    assert clock.now <= 1.1 * 240
    assert clock.now >= 0.7 * 240
    kinds = {(epochs, size) for epochs, size, _ in calls}
    assert kinds == {(40, 10), (10, 100), (40, 100)}  # subset, short, full
    assert [rung.name for rung in found.rungs] == ["subset:0.1", "short:0.25", "full"]
    assert sum(size == 100 and epochs == 40 for epochs, size, _ in calls) == found.full_trainings
    assert found.warnings == []


@pytest.mark.usefixtures("quick")
def test_the_global_streams_are_left_alone_and_trials_repeat(clock):
    before = torch.random.get_rng_state()
    one = search(bowl(clock), full(), budget=40, seed=3)
    other = search(bowl(clock), full(), budget=40, seed=3)
    assert told(one) == told(other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.usefixtures("quick")
def test_interrupted_and_continued_gives_the_same(clock, tmp_path):
    calls, again = [], []
    whole = search(bowl(clock, calls), full(), budget=60, seed=1, storage=tmp_path / "whole.jsonl")
    assert len(calls) == trainings(whole)
    stop = Stops(len(calls), 0.04, 0.4, 0.8)

    def run():
        return search(bowl(clock, again, stop), full(), budget=60, seed=1, storage=tmp_path / "s.jsonl")

    assert told(stop.until_done(run)) == told(whole)
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert sum(line["event"] == "outcome" for line in lines) == len(calls)
    assert len(again) == len(calls) + 3  # only the trials that were stopped ran again
    run()
    assert len(again) == len(calls) + 3  # a finished search runs nothing


@pytest.mark.usefixtures("quick")
def test_a_continued_search_remembers_names_and_reports(clock, tmp_path):
    """Parameters met late and reports of earlier trials come from the storage."""
    calls, stop = [], lambda: None

    def objective(trial, data):
        calls.append(trial.number)
        stop()
        x = trial.suggest_float("x", -1, 1)
        if trial.suggest_categorical("kind", ["a", "b", "c"]) == "c":
            x -= 0.3 * trial.suggest_float("late", 0, 1)
        for epoch in range(data.epochs(8)):
            clock.spend(0.5 * len(data.train[1]) / 100)
            trial.report(back_and_forth(trial), epoch)
            if trial.should_prune():
                raise TrialPruned
        return 1 - x * x

    def run(storage):
        return search(objective, full(), budget=120, seed=4, storage=tmp_path / storage)

    whole = run("whole.jsonl")
    assert whole.rung("full").failed > 0
    stop = Stops(len(calls), 0.4, 0.8)
    assert told(stop.until_done(lambda: run("s.jsonl"))) == told(whole)


@pytest.mark.usefixtures("quick")
def test_a_storage_refuses_another_search(clock, tmp_path):
    search(bowl(clock), full(), budget=20, storage=tmp_path / "s.jsonl")
    for options in ({"seed": 1}, {"rungs": ["full"]}):
        with pytest.raises(InputError, match="name another storage"):
            search(bowl(clock), full(), budget=20, storage=tmp_path / "s.jsonl", **options)
    with pytest.raises(InputError, match="the storage holds a search with data"):
        search(bowl(clock), FullData((X + 1, Y), (X, Y)), budget=20, storage=tmp_path / "s.jsonl")


@pytest.mark.usefixtures("quick")
def test_damaged_and_unwritable_storages_are_refused_in_a_sentence(clock, tmp_path, monkeypatch):
    path = tmp_path / "s.jsonl"
    search(bowl(clock), full(), budget=20, storage=path)
    content = path.read_bytes()
    path.write_bytes(content[:-7])  # a torn last line is run again
    search(bowl(clock), full(), budget=20, storage=path)
    path.write_bytes(b"no record\n" + content)
    with pytest.raises(InputError, match=r"line 1 of .* is not a record in JSON"):
        search(bowl(clock), full(), budget=20, storage=path)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hcdc.core.records.append", full_disk)
    with pytest.raises(
        HcdcError, match=r"cannot be written .No space left on device.*finished trials are kept"
    ):
        search(bowl(clock), full(), budget=20, storage=tmp_path / "t.jsonl")


@pytest.mark.usefixtures("quick")
def test_bytes_of_zero_at_the_end_of_a_storage_are_cut(clock, tmp_path):
    """A loss of power leaves them: the length of the file was written, its content was not."""
    path = tmp_path / "s.jsonl"
    whole = search(bowl(clock), full(), budget=20, storage=path)
    lines = path.read_bytes().splitlines(keepends=True)
    for tail in (bytes(4096), lines[-9][:20] + bytes(99)):
        path.write_bytes(b"".join(lines[:-9]) + tail)
        assert told(search(bowl(clock), full(), budget=20, storage=path)) == told(whole)
        assert b"\0" not in path.read_bytes()


LINES = [
    '{"event": "outcome", "rung": "full", "repeat": 0}',
    '{"event": "outcome", "rung": "full", "repeat": 0, "config": {}, "score": "good", "seconds": 1}',
    '{"event": "outcome", "rung": "full", "repeat": 0, "config": [], "score": 1, "seconds": 1}',
    '{"event": "outcome", "rung": "full", "repeat": 0, "config": {}, "score": 1, "seconds": 1, "state": ""}',
    '{"event": "note", "key": "problem", "value": 3}',
    '{"event": "note"}',
    '{"event": "other"}',
    "{}",
    "[1]",
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "s.jsonl"
    path.write_text('{"event": "note", "key": "a", "value": 1}\n' + line + "\n")
    with pytest.raises(InputError, match=r"line 2 of '.*s\.jsonl' is not a record "):
        open_store(path)


@pytest.mark.parametrize(
    "content", ["my precious notes", '{"my": "precious notes', '{"my": "notes"}', "12\n"]
)
def test_a_foreign_file_is_no_storage_and_is_left_as_it_is(clock, tmp_path, content):
    path = tmp_path / "notes.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=r"notes\.jsonl' is not a "):
        search(bowl(clock), full(), budget=20, storage=path)
    assert path.read_text() == content


@pytest.mark.usefixtures("quick")
def test_failing_trials_do_not_stop_the_search(clock):
    failed = []

    def fault(trial, data):
        if trial.number % 4 == 3:
            failed.append(len(data.train[1]))
            raise RuntimeError("out of\n memory")

    found = search(bowl(clock, fault=fault), full(), budget=60, seed=0)
    assert found.rung("subset:0.1").failed == failed.count(10) > 0
    assert abs(found.best["x"] - 0.3) < 0.4


@pytest.mark.parametrize("value", [math.nan, None, math.inf, "good", (1, 2)])
def test_values_that_are_not_numbers_fail_the_trial(clock, value):
    def objective(trial, data):
        clock.spend(1.0)
        x = trial.suggest_float("x", 0, 1)
        return value if x < 0.4 else x

    problem = ObjectiveProblem(objective, full())
    outcome = problem.trial(problem.rungs[-1], {"x": 0.1}, 0)
    assert (outcome.state, outcome.complete) == ("failed", False)
    assert outcome.note.startswith("the objective returned")
    assert problem.trial(problem.rungs[-1], {"x": 0.5}, 0).score == 0.5


def test_notes_are_one_line_and_interrupts_pass(clock):
    def objective(trial, data):
        if trial.suggest_float("x", 0, 1) < 0.4:
            raise ValueError("two\nlines")
        raise KeyboardInterrupt

    place = f"[test_search.py:{objective.__code__.co_firstlineno + 2}]"
    problem = ObjectiveProblem(objective, full())
    assert problem.trial(problem.rungs[0], {"x": 0.1}, 0).note == f"ValueError: two lines {place}"
    with pytest.raises(KeyboardInterrupt):
        problem.trial(problem.rungs[0], {"x": 0.5}, 0)


def test_an_objective_that_always_fails_ends_in_a_sentence(clock):
    def objective(trial, data):
        trial.suggest_float("x", 0, 1)
        raise KeyError("target")

    with pytest.raises(HcdcError, match=r"first trials all failed, also on rung 'full': KeyError"):
        search(objective, full(), budget=20)
    with pytest.raises(InputError, match="nothing to search"):
        search(lambda trial, data: 1.0, full(), budget=20)


@pytest.mark.usefixtures("quick")
def test_without_epochs_or_steps_there_is_no_short_rung(clock, caplog):
    def objective(trial, data):
        clock.spend(len(data.train[1]) / 50)
        return -((trial.suggest_float("x", 0, 1) - 0.5) ** 2)

    found = search(objective, full(), budget=30)
    assert [rung.name for rung in found.rungs] == ["subset:0.1", "full"]
    assert any("calls neither data.epochs nor data.steps" in text for text in found.warnings)
    assert "calls neither" in caplog.text


@pytest.mark.usefixtures("quick")
def test_what_depends_on_the_rung_is_refused(clock):
    def ranges(trial, data):
        clock.spend(1.0)
        return trial.suggest_float("x", 0, len(data.train[1]))

    with pytest.raises(
        InputError, match=r"'x' was float.*high=10.0.* and is float.*high=100.0.*on rung 'full'"
    ):
        search(ranges, full(), budget=60)

    def names(trial, data):
        clock.spend(1.0)
        if len(data.train[1]) == 100:
            return trial.suggest_float("x", 0, 1) + trial.suggest_float("z", 0, 1)
        return trial.suggest_float("x", 0, 1)

    with pytest.raises(InputError, match=r"read x = .* before and x = .*, z = .* on rung 'full'"):
        search(names, full(), budget=60)

    def swallows(trial, data):
        try:
            return ranges(trial, data)
        except Exception:
            return 0.0

    problem = ObjectiveProblem(swallows, full())
    with pytest.raises(InputError, match="a range must be the same in every trial"):
        problem.trial(problem.rungs[0], {"x": 50.0}, 0)


def test_conditional_parameters(clock):
    def objective(trial, data):
        clock.spend(2.0 * data.epochs(10) * len(data.train[1]) / 1000)
        if trial.suggest_categorical("kind", ["flat", "bowl"]) == "flat":
            return 0.5 + 0.1 * trial.suggest_float("height", 0, 1)
        return 1 - (trial.suggest_float("x", -1, 1) - 0.3) ** 2

    found = search(objective, full(), budget=80, seed=2)
    assert found.best["kind"] == "bowl"
    assert set(found.best) == {"kind", "x"}
    assert found.score > 0.98


def test_a_pruner_gives_up_bad_full_trainings_only(clock):
    given_up = []

    def objective(trial, data):
        x = trial.suggest_float("x", -1, 1)
        for epoch in range(data.epochs(8)):
            clock.spend(0.5 * len(data.train[1]) / 100)
            trial.report(epoch - x * x, epoch)
            if trial.should_prune():
                given_up.append((x, epoch, data.epochs(8), len(data.train[1])))
                raise TrialPruned
        return 1 - x * x

    found = search(objective, full(), budget=400, seed=0)  # some 40 full trainings or more
    assert given_up
    assert {given[2:] for given in given_up} == {(8, 100)}
    assert found.rung("full").failed == len(given_up)
    assert found.rung("subset:0.1").failed == 0
    assert min(abs(given[0]) for given in given_up) > abs(found.best["x"])
    assert found.score > 0.99


def test_the_median_rule_by_hand():
    late = False

    def reporting(trial, data):
        trial.report(trial.suggest_float("x", 0, 20), 0)
        if late:
            trial.report(0.0, 1)
        if trial.should_prune():
            raise TrialPruned
        return 1.0

    problem = ObjectiveProblem(reporting, full())
    rung = problem.rungs[-1]

    def state(x, rung=rung):
        return problem.trial(rung, {"x": x}, 0).state

    for x in range(1, 8):
        problem.tell(rung, problem.trial(rung, {"x": float(x)}, 0))
    assert state(0.5) == "complete"  # too few to compare with
    problem.tell(rung, problem.trial(rung, {"x": 8.0}, 0))
    assert state(4.4) == "pruned"
    assert state(4.5) == "complete"
    assert state(4.4, problem.rungs[0]) == "complete"  # full trainings alone
    late = True
    assert state(4.4) == "complete"  # nobody else has reported step 1


def copy_of(weight=None):
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    meta = {"data": {"num_classes": 2}, "metric": "loss", "calibrated_recipe": {"steps": 5}}
    return CondensedDataset(Rows(x[:8], y[:8]), Rows(x[:30], y[:30], weight), meta)


@pytest.mark.usefixtures("quick")
def test_copies_are_rungs(clock, tmp_path):
    seen = set()

    def objective(trial, data):
        cut = trial.suggest_float("cut", -1, 1)
        data.loader("train", 100)  # an epoch of the full data is one step
        seen.add((data.is_condensed, len(data.train[1]), data.steps(100)))
        clock.spend(data.steps(100) / 50)
        return data.score(np.stack([0 * data.val[0][:, 0], data.val[0][:, 0] - cut], 1))

    small = copy_of(torch.linspace(0, 1, 30))
    found = search(objective, full(), budget=40, copies=[small], rungs=["full"])
    assert [rung.name for rung in found.rungs] == ["copy", "full"]
    assert seen == {(True, 8, 5), (False, 100, 100)}
    path = small.save(tmp_path / "s.hcdc")
    named = search(objective, full(), budget=40, rungs=[f"copy:{path}", "short:3", "full"])
    assert [rung.name for rung in named.rungs] == [f"copy:{path}", "short:3", "full"]
    assert seen == {(True, 8, 5), (False, 100, 100), (False, 100, 3)}


def test_a_weighted_copy_needs_data_score(clock):
    problem = ObjectiveProblem(
        lambda trial, data: trial.suggest_float("x", 0, 1), full(), [copy_of(torch.ones(30))]
    )
    with pytest.raises(InputError, match="rung 'copy' is weighted"):
        problem.scout(Store(), 0)
    ObjectiveProblem(lambda trial, data: trial.suggest_float("x", 0, 1), full(), [copy_of()]).scout(
        Store(), 0
    )


@pytest.mark.usefixtures("quick")
def test_trials_limit_the_cheapest_rung(clock):
    found = search(bowl(clock), full(), budget="10m", trials=30)
    assert found.rungs[0].candidates == 30
    assert found.score > 0.8


@pytest.mark.usefixtures("quick")
def test_the_test_part_is_shown(clock):
    def objective(trial, data):
        clock.spend(data.epochs(10) / 10)
        x = trial.suggest_float("x", 0, 1)
        if data.test is not None:
            data.score(np.zeros(10), split="test")
        return x

    found = search(objective, FullData((X, Y), (X, Y), (X[:10], np.arange(10) % 2)), budget=40)
    assert found.parts == {"test": 0.5}


@pytest.mark.parametrize(
    ("name", "share"), [("subset:0.2", 0.2), ("short:0.5", 0.5), ("short:4", 0.1), ("short:80", 1.0)]
)
def test_rung_names(clock, name, share):
    problem = ObjectiveProblem(bowl(clock), full(), rungs=[name])
    problem.scout(Store(), 0)
    assert [rung.name for rung in problem.rungs] == [name, "full"]
    assert problem.rungs[0].share == pytest.approx(share)
    assert problem.rungs[0].once == pytest.approx(4.0 * share, rel=0.01)


@pytest.mark.parametrize("name", ["subset:2", "subset", "short:0", "short:2.5", "short:-1", "copy", "half"])
def test_unknown_rungs_are_refused(name):
    with pytest.raises(InputError, match=f"rung '{name}' is not known; write 'subset:0.1'"):
        ObjectiveProblem(lambda trial, data: 0.0, full(), rungs=[name])


def test_repeated_rungs_and_wrong_arguments_are_refused(clock):
    with pytest.raises(InputError, match="each may appear once"):
        ObjectiveProblem(bowl(clock), full(), rungs=["short:3", "short:3"])
    with pytest.raises(InputError, match=r"full is a tuple; pass hcdc.FullData"):
        search(bowl(clock), (X, Y), budget=20)
    with pytest.raises(InputError, match="trials 1: at least 2"):
        search(bowl(clock), full(), budget=20, trials=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1.5 H", 5400),
        (20, 20),
        (0.5, 0.5),
        ("7", 7),
        ("1d", 86400),
    ],
)
def test_budgets(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "ten minutes", "-5", -5, 0, "0s", math.nan, math.inf, True, None, "1h30"]
)
def test_bad_budgets_are_refused(text):
    with pytest.raises(InputError, match="give a positive number of seconds"):
        parse_budget(text)


def test_a_real_clock_is_kept(monkeypatch):
    """Trials of uneven length, and the search's own work, which takes longer on a busy machine.

    On a clock of the tests' own, other tests allow a tenth over and no more.
    """

    def objective(trial, data):
        x = trial.suggest_float("x", 0, 1)
        time.sleep((0.02 + 0.1 * x) * data.epochs(20) / 20 * len(data.train[1]) / 100)
        return -((x - 0.5) ** 2)

    monkeypatch.setenv("HCDC_COMMIT", "none")  # no calls of git
    begun = time.monotonic()
    found = search(objective, full(), budget=12)
    assert time.monotonic() - begun <= 1.3 * 12
    assert found.seconds == pytest.approx(time.monotonic() - begun, abs=1.5)


def test_outcomes_survive_the_file(clock, tmp_path):
    store = LineStore(tmp_path / "s.jsonl")
    problem = ObjectiveProblem(bowl(clock), full())
    problem.scout(store, 0)
    again = ObjectiveProblem(bowl(clock, fault=lambda *_: pytest.fail("ran again")), full())
    again.scout(LineStore(tmp_path / "s.jsonl"), 0)
    assert again.space.distributions == problem.space.distributions
    assert again.rungs[0].once == problem.rungs[0].once
