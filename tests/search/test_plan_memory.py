"""The memory that a plan expects: against a search in a process of its own, and where it is extrapolated."""

import ctypes
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hcdc
from hcdc import FullData
from hcdc.core.memory import held_gib

SCRIPT = """
import json, sys
import numpy as np
import pytest
import torch
import hcdc
from hcdc.core.progress import peak_memory_gib
from recipes import change_recipes
from search_prices import priced

torch.set_num_threads(1)
patch = pytest.MonkeyPatch()
change_recipes(patch, lambda **given: hcdc.Recipe(**{**given, "steps": 8}))


def graph():
    return hcdc.GraphTask(hcdc.data("embedded")), hcdc.spaces.PolynomialFilter()


def images():
    return hcdc.ImageTask(hcdc.data("digits")), hcdc.spaces.NASBench201(channels=4)


def objective():
    x = np.random.default_rng(0).normal(size=(400_000, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)

    def ridge(trial, data):
        x, y = data.train
        wide = np.concatenate([x.astype(np.float64) ** k for k in range(1, 7)], 1)
        penalty = trial.suggest_float("penalty", 1e-3, 1e3, log=True)
        weights = np.linalg.solve(wide.T @ wide + penalty * np.eye(48), wide.T @ (2 * y - 1))
        val = np.concatenate([data.val[0].astype(np.float64) ** k for k in range(1, 7)], 1)
        return data.score(values=(val @ weights > 0).astype(int))

    return ridge, hcdc.FullData((x, y), (x[:1000], y[:1000]))


what, case = sys.argv[1:]
subject, over = {"graph": graph, "images": images, "objective": objective}[case]()
if what == "plan":
    np.ones(2**27).sum()  # a GiB that is given back before the plan says nothing about the search
    print(json.dumps(hcdc.plan(subject, over, budget=60).memory_gib))
else:
    if case != "objective":
        priced(patch)  # a few trainings, however slow the machine
    found = hcdc.search(subject, over, budget=5 if case == "objective" else 60)
    assert found.full_trainings > 0
    print(json.dumps(peak_memory_gib()))
"""


def apart(case):
    """Figures in GiB of a plan and of a search, each from a process of its own; they run side by side."""
    folder = Path(__file__).resolve().parents[1]
    script = f"import sys; sys.path.insert(0, {str(folder)!r})\n{SCRIPT}"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, what, case], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for what in ("plan", "search")
    ]  # fmt: skip
    told = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], [err for _, err in told]
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


@pytest.mark.parametrize("case", ["graph", pytest.param("images", marks=pytest.mark.slow), "objective"])
def test_memory_is_within_twice_of_what_a_search_takes(case):
    said, taken = apart(case)
    assert 0.5 <= said / taken <= 2


X = np.random.default_rng(0).normal(size=(100_000, 8)).astype(np.float32)
Y = np.arange(len(X)) % 2
FULL_GIB = 0.5
"""What a full training allocates below."""


def hungry(clock, seconds, epochs):
    """A training that takes seconds and memory in proportion to its rows."""

    def objective(trial, data):
        share = len(data.train[1]) / len(X)
        clock.now += seconds * share * (data.epochs(epochs) / epochs if epochs else 1.0)
        held = np.ones(int(share * FULL_GIB * 2**30 / 8))
        time.sleep(0.03)  # several samples, also on a busy machine
        return trial.suggest_float("x", 0.0, 1.0) + 0 * held[0]

    return objective


def give_back():
    """Return what earlier tests freed to the system: a training would take it again, and memory not rise."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.mark.parametrize(("seconds", "epochs"), [(1.0, 0), (100.0, 0), (100.0, 50), (1000.0, 50)])
def test_memory_of_a_full_training_is_expected_where_none_was_run(clock, seconds, epochs):
    """All rungs are quick; or the subset alone, and rows tell the rest; or one epoch on all rows is run."""
    give_back()
    before = held_gib()[0]
    found = hcdc.plan(hungry(clock, seconds, epochs), FullData((X, Y), (X, Y)), budget="2h")
    assert found.memory_gib - before == pytest.approx(FULL_GIB, rel=0.3)


def test_one_fit_tells_the_memory_of_fits():
    """A batch of them would take as long as so many full trainings."""
    fitted = []

    def fit(config, x, y, seed):
        fitted.append(len(x))
        return lambda rows: rows[:, :2]

    task = hcdc.tasks.FittedTask(hcdc.data((X[:500], Y[:500])), fit)
    problem = hcdc.search.TaskProblem(task, hcdc.spaces.Finite("depth", [*range(20)]), [])
    assert problem.full_memory_gib({}, 0) > 0
    assert fitted == [len(task.train)]
