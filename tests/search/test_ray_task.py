"""Searches of a task on a real Ray cluster of two nodes: each trains a part of the candidates."""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.search.test_ray import Timeless
from tests.two_nodes import cluster

import hcdc
from hcdc.core.configs import config_hash
from hcdc.search import Executor, Ladder, LadderSettings, RayExecutor, TaskProblem, search
from recipes import change_recipes
from search_prices import priced

pytest.importorskip("ray")
__all__ = ["cluster"]
rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3)).astype(np.float32)
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(np.int64)
PARTS = 2
"""Candidates that train together are divided into so many parts."""


class Noting(hcdc.TableTask):
    """Notes where each training begins; the first one elsewhere kills its process."""

    def init(self, generator):
        node = os.environ.get("RAY_NODE", "")
        if self.notes and node:
            (Path(self.notes) / node).touch()
            if not (flag := Path(self.notes) / "killed").exists():
                flag.touch()
                os.kill(os.getpid(), 9)
        return super().init(generator)


def noting(notes=""):
    task = Noting(hcdc.data((X, Y)), "logistic")
    object.__setattr__(task, "notes", str(notes))
    return task


def climbed(task, executor):
    problem, store = TaskProblem(task, task.space(), ["short:0.1"], executor=executor), Timeless()
    assert {rung.batch for rung in problem.rungs} == {8}  # as in one process
    settings = LadderSettings(waves=2, pool=60, draws=16)
    found = Ladder(problem, 300.0, 0, store, settings).climb().to_json()
    del found["environment"]
    return found, {key: (outcome.score, outcome.state) for key, outcome in store.told.items()}


def test_two_nodes_train_the_same_as_one_process(cluster, tmp_path, monkeypatch):
    """A worker that dies costs its own part, which is trained again."""
    change_recipes(monkeypatch, lambda **given: hcdc.Recipe(**{"steps": 40, "lr": 0.1, **given}))
    priced(monkeypatch)
    here = Executor()
    here.batch = PARTS
    one, ran_one = climbed(noting(), here)
    many, ran_many = climbed(noting(tmp_path), RayExecutor(cluster.address, batch=PARTS))
    assert many == one
    assert ran_many == ran_one
    assert one["full_trainings"] > 10
    assert {path.name for path in tmp_path.iterdir()} == {"head", "second", "killed"}


class Deadly(hcdc.TableTask):
    """Kills its process."""

    def init(self, generator):
        os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_a_part_that_always_kills_its_worker_fails(cluster):
    task = Deadly(hcdc.data((X, Y)), "logistic")
    rung = TaskProblem(task, task.space(), executor=RayExecutor(cluster.address, batch=2)).rungs[-1]
    configs = task.space().sample(9, np.random.default_rng(0))
    found = list(rung.run(configs, 0))
    assert [config_hash(outcome.config) for outcome in found] == [config_hash(config) for config in configs]
    assert {(outcome.state, outcome.note) for outcome in found} == {
        ("failed", "WorkerCrashedError: its worker died")
    }


class Refusing(hcdc.TableTask):
    """Has a sentence of its own."""

    def init(self, generator):
        raise hcdc.InputError("layers 0: at least 1 is needed")


def test_what_a_task_says_is_told_as_it_is(cluster):
    task = Refusing(hcdc.data((X, Y)), "logistic")
    rung = TaskProblem(task, task.space(), executor=RayExecutor(cluster.address, batch=1)).rungs[-1]
    with pytest.raises(hcdc.InputError, match=r"^layers 0: at least 1 is needed$"):
        list(rung.run(task.space().sample(1, np.random.default_rng(0)), 0))


def test_the_search_itself(cluster, quick, monkeypatch, tmp_path):
    change_recipes(monkeypatch, lambda **given: hcdc.Recipe(**{"steps": 40, "lr": 0.1, **given}))
    priced(monkeypatch)
    task = noting()
    given = {"budget": "3m", "rungs": "short:0.1", "backend": "ray", "address": cluster.address}
    found = search(task, task.space(), storage=tmp_path / "s.jsonl", **given)
    assert found.full_trainings > 5
    assert found.seconds <= 198
    again = search(task, task.space(), storage=tmp_path / "s.jsonl", **given)
    assert again.best == found.best
