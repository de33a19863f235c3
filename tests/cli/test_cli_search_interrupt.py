"""A real Ctrl-C during a search: one sentence, finished trials kept, and the same result in the end."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import hcdc

FEW = 8
"""Trials that are finished when the signal is sent."""
CLOCKED = """
import functools, sys, time

class Clock:
    # time that passes in trials alone, so that equal searches take equal decisions
    now = 0.0

    def __call__(self):
        return self.now

time.perf_counter = Clock()
import hcdc.search._search as search

search.LadderSettings = functools.partial(search.LadderSettings, waves=3, pool=60, draws=16)
from hcdc.cli import main

main(sys.argv[1:])
"""
UNHURRIED = """
import sys, time
from hcdc.search import LineStore

tell = LineStore.tell

def slowly(self, *given):
    tell(self, *given)
    time.sleep(0.05)  # long enough for a signal, also on a busy machine

LineStore.tell = slowly
from hcdc.cli import main

main(sys.argv[1:])
"""
OBJECTIVE = """
import time
import numpy as np
import hcdc

x, y = np.zeros((40, 1), np.float32), np.arange(40) % 2

def data():
    return hcdc.FullData((x, y), (x, y))

def objective(trial, data):
    at = trial.suggest_float("x", 0.0, 1.0)
    time.sleep(0.03)  # long enough for a signal
    seconds = 4.0 * data.epochs(16) / 16 * len(data.train[1]) / 40
    time.perf_counter.now += round(seconds * 1024) / 1024  # sums are exact
    return 1 - (at - 0.3) ** 2
"""


def started(place, arguments):
    """The command as a process on which Ctrl-C works, whatever the shell of the tests does."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments), "--quiet"], cwd=place, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def trials(storage):
    """Finished trials in a storage, in order, without their seconds."""
    lines = storage.read_text().splitlines() if storage.exists() else []
    kept = [line for line in map(json.loads, lines) if line["event"] == "outcome"]
    return [(line["rung"], line["repeat"], line["config"], line["score"]) for line in kept]


def ladder(place):
    (place / "mine.py").write_text(OBJECTIVE)
    return ["-c", CLOCKED, "search", "--objective", "mine.py:objective", "--budget", "60s"]


def copy_alone(place):
    """Limited by the number of trials, so no clock decides anything."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in rng.normal(size=(120, 2))]
    (place / "rows.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    task = hcdc.TableTask(hcdc.data(place / "rows.csv", target="label"), "logistic")
    small = hcdc.condense(
        task, task.space(), "random", train_size=30, val_method="real", recipe={"steps": 20, "seeds": 1},
        checkpoint=None,
    )  # fmt: skip
    small.save(place / "a.hcdc")
    return ["-c", UNHURRIED, "search", "a.hcdc", "--trials", "40", "--device", "cpu"]


@pytest.mark.parametrize("kind", [ladder, copy_alone])
def test_an_interrupted_search_ends_as_one_that_was_not(kind, tmp_path):
    command, kept = kind(tmp_path), tmp_path / "s.jsonl"
    given = [*command, "--storage", kept.name, "--json", "r.json"]
    running = started(tmp_path, given)
    for _ in range(10_000):
        if len(trials(kept)) >= FEW or running.poll() is not None:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    sentence = "hcdc: interrupted; finished trials are in s.jsonl, and the same command continues\n"
    assert (running.returncode, out, err) == (130, "", sentence)
    before = trials(kept)
    assert len(before) >= FEW
    assert not (tmp_path / "r.json").exists()

    def ended(arguments, name):
        process = started(tmp_path, arguments)
        err = process.communicate(timeout=300)[1]
        assert process.returncode == 0, err
        document = json.loads((tmp_path / name).read_text())
        for real in ("environment",) if kind is ladder else ("environment", "seconds", "rungs", "cost"):
            document.pop(real)
        return document

    continued = ended(given, "r.json")
    whole = ended([*command, "--storage", "w.jsonl", "--json", "w.json"], "w.json")
    assert trials(kept)[: len(before)] == before
    assert trials(kept) == trials(tmp_path / "w.jsonl")
    assert len(trials(kept)) > len(before)
    assert continued == whole
