"""Trials that fail are told, and a stand-in on which all fail is left out."""

import dataclasses
import logging
import re

import pytest
from tests.search.clocks import bowl, full, told
from tests.search.problems import Three

from hcdc import HcdcError
from hcdc.search import Ladder, LadderSettings, plan, search

QUICK = LadderSettings(waves=4, pool=120, draws=24)


def boom(trial, data):
    raise ValueError("boom")


def too_few(trial, data):
    if len(data.train[1]) < 50:
        raise ValueError("too few rows")


def at(function, line):
    return f"[test_failures.py:{function.__code__.co_firstlineno + line}]"


BOOM = f"ValueError: boom {at(boom, 1)}"
TOO_FEW = f"ValueError: too few rows {at(too_few, 2)}"


@pytest.mark.usefixtures("quick")
def test_failing_trials_are_told_with_the_commonest_reason(clock):
    count = 0

    def fault(trial, data):
        nonlocal count
        count += 1
        if count % 4 == 3:
            raise KeyError(f"column {count % 3}")
        if count % 16 == 1:
            raise RuntimeError("rare")

    found = search(bowl(clock, fault=fault), full(), budget=60, seed=0)
    (text,) = [text for text in found.warnings if "trials failed" in text]
    assert "; most often KeyError: 'column" in text
    failed, total = (int(word) for word in text.split() if word.isdigit())
    assert total >= sum(rung.candidates for rung in found.rungs) + len(found.finalists)
    assert 0.2 * total < failed < 0.4 * total


def test_an_objective_that_leaves_the_program_has_failed_in_that_trial(clock):
    def fault(trial, data):
        if trial.params["x"] > 0.5:
            raise SystemExit(3)

    found = search(bowl(clock, fault=fault), full(), budget=40, seed=0)
    assert found.score is not None
    assert any("trials failed; most often SystemExit: 3" in text for text in found.warnings)


@pytest.mark.usefixtures("quick")
def test_a_stand_in_on_which_the_objective_fails_is_left_out(clock, tmp_path):
    def run():
        return search(bowl(clock, fault=too_few), full(), budget=60, storage=tmp_path / "s.jsonl")

    found = run()
    assert [rung.name for rung in found.rungs] == ["short:0.25", "full"]
    assert any(
        f"'subset:0.1' is left out: the objective fails on it ({TOO_FEW})" in w for w in found.warnings
    )
    assert found.rungs[0].once == pytest.approx(5 * 0.4 + 1, rel=0.01)
    assert abs(found.best["x"] - 0.3) < 0.4
    assert told(run()) == told(found)


def test_an_objective_that_fails_everywhere_is_soon_given_up(clock):
    calls = []

    def fault(trial, data):
        raise KeyError("target")

    with pytest.raises(HcdcError, match="first trials all failed, also on rung 'full': KeyError: 'target'"):
        search(bowl(clock, calls, fault), full(), budget=60)
    assert [call[:2] for call in calls] == [(40, 10)] * 5 + [(10, 100), (40, 100)]


def test_first_trials_that_fail_are_logged_once_with_their_count(clock, caplog):
    caplog.set_level(logging.INFO, "hcdc")
    with pytest.raises(HcdcError):
        search(bowl(clock, fault=boom), full(), budget=60)
    failed = [line for line in caplog.messages if line.endswith(f": {BOOM}") and "failed" in line]
    assert failed == [
        f"5 trials failed on rung 'subset:0.1': {BOOM}",
        f"1 trial failed on rung 'short:0.25': {BOOM}",
        f"1 trial failed on rung 'full': {BOOM}",
    ]


def test_trials_that_fail_while_a_plan_is_made_are_logged_once(clock, caplog):
    def fault(trial, data):
        if trial.params["x"] > 0:
            raise ValueError("boom")

    caplog.set_level(logging.INFO, "hcdc")
    plan(bowl(clock, fault=fault), full(), budget=600)
    (told,) = [line for line in caplog.messages if "failed while" in line]
    why = re.escape(f"ValueError: boom {at(fault, 2)}")
    assert re.fullmatch(rf"\d+ trials failed while the plan was made: {why}", told)


@pytest.mark.parametrize("number", [0, 1])
def test_a_rung_of_the_ladder_on_which_candidates_fail_is_dropped(number):
    problem = Three()
    rung = problem.rungs[number]
    run = rung.run
    rung.run = lambda configs, seed: (
        dataclasses.replace(o, score=float("nan"), state="failed", note="it failed")
        for o in run(configs, seed)
    )
    found = Ladder(problem, 600.0, settings=QUICK).climb()
    dropped = found.rung(rung.name)
    assert dropped.note == "the first five candidates all failed: it failed"
    assert (dropped.candidates, dropped.failed, dropped.pays) == (5, 5, False)
    assert any("so it was dropped: it failed" in text for text in found.warnings)
    assert Three.truth(found.best) > -0.05


def test_a_failure_names_the_line_of_the_objective():
    def objective(trial, data):
        return data.trian[trial.suggest_int("n", 0, 3)]

    with pytest.raises(HcdcError, match=re.escape(f"no attribute 'trian' {at(objective, 1)}")):
        search(objective, full(), budget=20)
