"""Trials on a real Ray cluster of two nodes with one processor each."""

import dataclasses
import os
import time

import pytest
from tests.search.clocks import back_and_forth, full
from tests.two_nodes import cluster

from hcdc import HcdcError, InputError
from hcdc.search import Executor, Ladder, ObjectiveProblem, RayExecutor, Store, search

ray = pytest.importorskip("ray")
__all__ = ["cluster"]


def objective(trial, data):
    """Finds its optimum at x = 0.3 with kind b; says where it ran."""
    x = trial.suggest_float("x", -1.0, 1.0)
    trial.set_user_attr("process", os.getpid())
    trial.set_user_attr("node", os.environ.get("RAY_NODE", ""))
    for epoch in range(data.epochs(4)):
        trial.report(back_and_forth(trial), epoch)
        if trial.should_prune():
            raise RuntimeError("given up")
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        return 0.5 - trial.suggest_float("late", 0, 1)
    return 1 - (x - 0.3) ** 2


class Steady(Executor):
    """Another executor, as if every trial took seconds that depend on its data alone."""

    def __init__(self, inner, batch):
        self.inner, self.batch = inner, batch

    def run(self, objective, full, data, jobs):
        for ran in self.inner.run(objective, full, data, jobs):
            given = getattr(data, "keywords", {})
            share = given["fraction"] * given["effort"].epochs if given else 1.0
            yield dataclasses.replace(ran, seconds=4.0 * share)


class Timeless(Store):
    """A store for which deciding takes no time; keeps what it was told."""

    def __init__(self):
        super().__init__()
        self.told = {}

    def tell(self, rung, repeat, outcome):
        super().tell(rung, repeat, outcome)
        self.told[rung, repeat, str(outcome.config)] = outcome

    def note(self, key, value):
        return super().note(key, 0.0 if key.startswith("overhead") else value)


def climbed(executor):
    problem, store = ObjectiveProblem(objective, full(), executor=executor), Timeless()
    problem.scout(store, 0)
    found = Ladder(problem, 200.0, 0, store).climb().to_json()
    del found["environment"]
    ran = {
        key: (str(outcome.score), outcome.told["params"], outcome.told["distributions"], outcome.state)
        for key, outcome in store.told.items()
    }
    attrs = [outcome.told["user_attrs"] for outcome in store.told.values()]
    return found, ran, attrs


def test_two_nodes_give_the_same_as_one_process(cluster):
    one, ran_one, _ = climbed(Steady(Executor(), 8))
    many, ran_many, attrs = climbed(Steady(RayExecutor(cluster.address), 8))
    assert many == one
    assert ran_many == ran_one
    assert {some["node"] for some in attrs} <= {"head", "second"}
    assert os.getpid() not in {some["process"] for some in attrs}
    states = {state for *_, state in ran_many.values()}
    assert states == {"complete", "failed"}  # the median rule was followed on the nodes too


def test_a_batch_runs_on_both_nodes_at_once(cluster, tmp_path):
    """Each trial waits for the other one, and a node has one processor."""

    def meets(trial, data):
        (tmp_path / str(trial.suggest_float("x", 0, 1))).touch()
        trial.set_user_attr("node", os.environ["RAY_NODE"])
        for _ in range(3000):
            if len(list(tmp_path.iterdir())) == 2:
                return 1.0
            time.sleep(0.01)
        raise RuntimeError("the other trial did not start")

    problem = ObjectiveProblem(meets, full(), executor=RayExecutor(cluster.address, batch=2))
    found = list(problem.trials(problem.rungs[-1], [{"x": 0.25}, {"x": 0.75}], 0))
    assert [outcome.score for outcome in found] == [1.0, 1.0]
    assert {outcome.told["user_attrs"]["node"] for outcome in found} == {"head", "second"}


def reporting(trial, data):
    trial.report(trial.suggest_float("x", 0, 20), 0)
    if trial.should_prune():
        raise RuntimeError("given up")
    return 1.0


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rules_are_fixed_when_a_batch_starts(elsewhere, request):
    """The median of 1 .. 8 is 4.5; with the four 10s of the batch itself it would be 6.5."""
    executor = RayExecutor(request.getfixturevalue("cluster").address) if elsewhere else Executor()
    problem = ObjectiveProblem(reporting, full(), executor=executor)
    rung, states = problem.rungs[-1], []
    for x in range(1, 9):
        problem.tell(rung, problem.trial(rung, {"x": float(x)}, 0))
    for outcome in problem.trials(rung, [{"x": x} for x in (10.0, 10.5, 11.0, 11.5, 4.6, 4.4)], 0):
        problem.tell(rung, outcome)
        states.append(outcome.state)
    assert states == ["complete"] * 5 + ["failed"]


def test_a_killed_worker_costs_its_own_trial(cluster, tmp_path):
    flag = tmp_path / "killed"

    def dies_once(trial, data):
        x = trial.suggest_float("x", -1.0, 1.0)
        time.sleep(0.02)
        if trial.number == 5 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), 9)
        return 1 - (x - 0.3) ** 2

    problem = ObjectiveProblem(dies_once, full(), executor=RayExecutor(cluster.address, batch=8))
    configs = [{"x": k / 8} for k in range(8)]
    found = list(problem.trials(problem.rungs[-1], configs, 0))
    assert flag.exists()
    assert [o.config for o in found] == configs
    assert [o.score for o in found] == pytest.approx([1 - (k / 8 - 0.3) ** 2 for k in range(8)])


@pytest.mark.slow
def test_a_trial_that_always_kills_its_worker_fails(cluster):
    def dies(trial, data):
        if trial.suggest_float("x", 0, 1) > 0.5:
            os.kill(os.getpid(), 9)
        return 1.0

    problem = ObjectiveProblem(dies, full(), executor=RayExecutor(cluster.address))
    found = list(problem.trials(problem.rungs[-1], [{"x": 0.2}, {"x": 0.8}], 0))
    assert [o.state for o in found] == ["complete", "failed"]
    assert found[1].note == "WorkerCrashedError: its worker died"


def test_an_objective_that_no_worker_can_load(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def objective(trial, data):\n    return 1.0\n")
    executor = RayExecutor(cluster.address)
    monkeypatch.syspath_prepend(tmp_path)  # after the workers' paths were fixed
    import only_here

    problem = ObjectiveProblem(only_here.objective, full(), executor=executor)
    with pytest.raises(HcdcError, match=r"a Ray worker cannot run a trial \(.*only_here"):
        problem.trial(problem.rungs[0], {}, 0)


def test_the_search_itself(cluster, tmp_path):
    def sleeps(trial, data):
        time.sleep(0.3 * data.epochs(10) / 10 * len(data.train[1]) / 100)
        return 1 - (trial.suggest_float("x", -1, 1) - 0.3) ** 2

    found = search(
        sleeps, full(), budget=10, backend="ray", address=cluster.address, storage=tmp_path / "s.log"
    )
    assert abs(found.best["x"] - 0.3) < 0.25
    assert found.seconds <= 11
    assert found.rung("full").candidates == sum(t.user_attrs["repeat"] == 0 for t in found.study.trials)
    with pytest.raises(InputError, match="pruner= works in one process only"):
        search(sleeps, full(), backend="ray", pruner=object())


def test_wrong_backends_are_refused():
    with pytest.raises(InputError, match="backend 'dask' is not known; choose 'ray'"):
        search(objective, full(), backend="dask")
    with pytest.raises(InputError, match="add backend='ray'"):
        search(objective, full(), address="auto")


def test_no_cluster_at_the_address(monkeypatch):
    def refuse(**_):
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(HcdcError, match="no Ray cluster at address 'auto': Could not find"):
        RayExecutor("auto")
