"""Arguments of `hcdc.search` in the forms that people write, and refusals before anything runs."""

import inspect
import pydoc

import numpy as np
import pytest

import hcdc
from hcdc import InputError
from hcdc.search import parse_budget
from hcdc.search._trial import Trial

X, Y = np.zeros((40, 1)), np.arange(40) % 2


def full(**options):
    return hcdc.FullData((X, Y), (X, Y), **options)


def objective(trial, data):
    return trial.suggest_float("x", 0.0, 1.0) * data.epochs(10) / 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400), ("1h 30 min", 5400), ("500ms", 0.5), ("30sec", 30), ("90 min", 5400),
        ("2 hours", 7200), ("1.5h", 5400), ("1 day", 86400), (20, 20), ("20", 20), ("1 minute 5 secs", 65),
    ],
)  # fmt: skip
def test_budgets_are_read_as_people_write_them(text, seconds):
    assert parse_budget(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["soon", "", "-3", "1h30", "3 weeks", "0s", True, "nan", "1h,30m", "h"])
def test_other_budgets_are_refused(text):
    with pytest.raises(hcdc.InputError, match="give a positive number of seconds"):
        parse_budget(text)


def test_rungs_may_be_one_text():
    found = hcdc.search(objective, full(), rungs="subset:0.2, short:0.5", budget="300ms")
    assert [rung.name for rung in found.rungs] == ["subset:0.2", "short:0.5", "full"]


@pytest.mark.parametrize("seed", ["a", -1, 0.5, True])
def test_a_seed_is_a_whole_number(seed):
    for call in (hcdc.search, hcdc.plan, hcdc.trust):
        with pytest.raises(hcdc.InputError, match=r"seed .*: give a whole number, 0 or more"):
            call(objective, full(), seed=seed)


@pytest.mark.parametrize("name", ["", "none/s.jsonl", "none/s.log"])
def test_a_storage_that_cannot_be_written_is_refused_at_once(tmp_path, name):
    def never(trial, data):
        raise AssertionError("nothing may run")

    with pytest.raises(hcdc.InputError, match=r"this is a folder|does not exist; create it first"):
        hcdc.search(never, full(), storage=tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_range_that_changes_is_named_as_such():
    trial = Trial({"a": 3.61})
    with pytest.raises(hcdc.InputError, match="a range must be the same in every trial"):
        trial.suggest_float("a", 0, 1)


def test_a_copy_alone_has_a_budget_only_if_one_was_given():
    task = hcdc.TableTask(hcdc.data((np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2)))
    short = {"steps": 5, "seeds": 1}
    small = hcdc.condense(task, task.space(), "random", train_size=10, recipe=short, full_recipe=short)
    assert hcdc.search(small, trials=3).budget is None
    assert hcdc.search(small, trials=3, budget="1m").budget == 60
    with pytest.raises(hcdc.InputError, match="a copy alone does not use rungs, groups; leave it out"):
        hcdc.search(small, trials=3, rungs="short:0.1", groups={"both": "a + b"})


def test_help_shows_the_call_and_its_arguments_first():
    told = pydoc.render_doc(hcdc.search, renderer=pydoc.plaintext)
    assert told.index("budget: Seconds, or a text") < told.index("PACKAGE CONTENTS")
    assert inspect.signature(hcdc.search).parameters["budget"].default is None


@pytest.mark.parametrize("trials", [2.5, True, 1])
def test_a_number_of_trials_is_whole(trials):
    with pytest.raises(InputError, match=f"trials {trials}: "):
        hcdc.search(objective, full(), budget=2, trials=trials)
