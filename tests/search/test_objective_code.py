"""A storage belongs to the code of its objective, and a finished search in it is not repeated."""

import functools
import json
import subprocess
import sys

import pytest
from tests.search.clocks import bowl, full, told

from hcdc import HcdcError, InputError
from hcdc.search import search
from hcdc.search._code import code_fingerprint

BODY = """
def objective(trial, data):
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return sum(k for k in range(3)) + (kind in {"a", "b", "c"})
"""


def made(source, path="one.py"):
    names = {}
    exec(compile(source, path, "exec"), names)
    return names["objective"]


def test_comments_docstrings_and_places_do_not_matter():
    told = BODY.replace("data):\n", 'data):\n    """Told."""\n    # and more\n\n')
    assert code_fingerprint(made(BODY)) == code_fingerprint(made(told, "elsewhere/two.py"))


@pytest.mark.parametrize(
    ("old", "new"), [('"kind",', '"sort",'), ("sum(", "-sum("), ("range(3)", "range(4)"), ("k for", "-k for")]
)
def test_what_is_computed_matters(old, new):
    assert code_fingerprint(made(BODY)) != code_fingerprint(made(BODY.replace(old, new)))


def test_another_process_finds_the_same():
    """Sets of texts have another order there."""
    code = f"names = {{}}; exec({BODY!r}, names)\nfrom hcdc.search._code import code_fingerprint\n"
    code += "print(code_fingerprint(names['objective']))"
    for seed in "12":
        ran = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ran.stdout.strip() == code_fingerprint(made(BODY))


def scaled(factor, inner=lambda x: x):
    calls, count = [], 0

    def objective(trial, data):
        nonlocal count
        count += 1
        calls.append(trial)
        return factor * inner(1.0)

    return objective


def test_what_the_scope_around_holds():
    one = scaled(2)
    before = code_fingerprint(one)
    one(None, None)  # its own counters are no part of it
    assert code_fingerprint(one) == before == code_fingerprint(scaled(2))
    assert len({before, code_fingerprint(scaled(3)), code_fingerprint(scaled(2, lambda x: -x))}) == 3


class Called:
    def __call__(self, trial, data):
        return 1.0


def test_other_callables():
    assert code_fingerprint(Called()) == code_fingerprint(Called.__call__)
    parts = [functools.partial(scaled, 2), functools.partial(scaled, 3), functools.partial(scaled, factor=2)]
    assert len({code_fingerprint(part) for part in parts}) == 3
    assert code_fingerprint(max) is None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["s.jsonl", "s.log"])
def test_a_storage_refuses_an_edited_objective(clock, tmp_path, name):
    if name == "s.log":
        pytest.importorskip("optuna")

    def objective(trial, data):
        clock.spend(1.0)
        return trial.suggest_float("a", 0, 1)

    whole = search(objective, full(), budget=20, storage=tmp_path / name)

    def objective(trial, data):
        clock.spend(1.0)
        return -trial.suggest_float("a", 0, 1)

    with pytest.raises(InputError, match=r"an objective with different code, .*; name another storage"):
        search(objective, full(), budget=20, storage=tmp_path / name)
    assert whole.best["a"] > 0.5


@pytest.mark.usefixtures("quick")
def test_a_storage_of_an_earlier_version_continues(clock, tmp_path):
    path = tmp_path / "s.jsonl"
    found = search(bowl(clock), full(), budget=20, storage=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("key") == "problem":
            assert line["value"].pop("code")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert search(bowl(clock), full(), budget=20, storage=path).best == found.best


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["s.jsonl", "s.log"])
def test_a_finished_search_is_read_not_repeated(clock, tmp_path, monkeypatch, name):
    if name == "s.log":
        pytest.importorskip("optuna")

    def run(budget):
        return search(bowl(clock), full(), budget=budget, storage=tmp_path / name)

    found = run(20)
    with monkeypatch.context() as without:
        without.setattr("hcdc.search._search.Ladder", None)
        again = run(20)
    assert told(again) == told(found)
    assert again.environment == found.environment
    assert run(40).seconds > found.seconds  # a larger budget goes on
    pytest.importorskip("optuna")
    assert again.study.best_value == found.study.best_value


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["s.jsonl", "s.log"])
@pytest.mark.parametrize("edited", [True, False])
def test_a_storage_without_a_success_begins_anew(clock, tmp_path, name, edited):
    """The mistake may have been in the objective or in a function that it calls."""
    if name == "s.log":
        pytest.importorskip("optuna")
    path, broken = tmp_path / name, [True]

    def helper():
        if broken.pop():
            raise ValueError("a mistake")
        broken.append(False)

    def mended(trial, data):
        clock.spend(1.0)
        return trial.suggest_float("a", 0, 1)

    def objective(trial, data):
        clock.spend(1.0)
        broken.append(broken[-1])
        helper()
        return trial.suggest_float("a", 0, 1)

    with pytest.raises(HcdcError, match="a mistake"):
        search(objective, full(), budget=20, storage=path)
    broken[:] = [False]
    found = search(mended if edited else objective, full(), budget=20, storage=path)
    assert found.score is not None
    assert not any("failed" in text for text in found.warnings)
    assert search(mended if edited else objective, full(), budget=20, storage=path).best == found.best


@pytest.mark.parametrize("name", ["s.jsonl", "s.log"])
def test_a_storage_of_a_refused_objective_begins_anew(clock, tmp_path, name):
    if name == "s.log":
        pytest.importorskip("optuna")

    def objective(trial, data):
        return trial.suggest_float("a", 1, 0)

    with pytest.raises(InputError, match="low 1 and high 0"):
        search(objective, full(), budget=20, storage=tmp_path / name)
    assert search(bowl(clock), full(), budget=20, storage=tmp_path / name).best
