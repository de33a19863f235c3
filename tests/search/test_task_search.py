"""`hcdc.search` on a task and a space, on a table of results, and on one copy alone."""

import math
import sys
from types import MappingProxyType

import numpy as np
import pytest

import hcdc
from hcdc import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.search import LineStore, Outcome, Rung, Store, TaskProblem, prepare
from hcdc.search._task_problem import CHEAP, TrainedRung
from hcdc.spaces import NASBenchGraph
from hcdc.truth import Truth
from recipes import change_recipes
from search_prices import priced

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3)).astype(np.float32)
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(np.int64)


@pytest.fixture
def task(monkeypatch):
    """Trainings of milliseconds."""
    change_recipes(monkeypatch, lambda **given: hcdc.Recipe(**{"steps": 40, "lr": 0.1, **given}))
    return hcdc.TableTask(hcdc.data((X, Y)), "logistic")


def small(task, **options):
    recipe = {"steps": 5, "seeds": 1}
    return hcdc.condense(
        task,
        task.space(),
        "random",
        train_size=20,
        val_method="real",
        recipe=recipe,
        checkpoint=None,
        **options,
    )


def test_a_task_and_a_space_are_searched_within_the_budget(task, monkeypatch):
    priced(monkeypatch)
    found = hcdc.search(task, task.space(), budget="5m", rungs=["short:0.1"])
    assert [rung.name for rung in found.rungs] == ["short:0.1", "full"]
    assert set(found.best) == {d.name for d in task.space().dimensions()}
    assert 200 < found.seconds <= 330
    assert found.score > 0.8
    assert found.full_trainings > 4


def test_a_ready_copy_is_a_rung(task, tmp_path, monkeypatch):
    priced(monkeypatch)
    path = small(task).save(tmp_path / "a.hcdc")
    found = hcdc.search(task, task.space(), budget="5m", copies=path)  # one is as good as a list
    assert {rung.name for rung in found.rungs} == {"copy", "short:0.1", "full"}
    assert found.rung("copy").candidates > 0
    assert found.rung("copy").file == str(path)
    assert found.trust["copy"].against in ("short:0.1", "full")
    assert {d.name for d in found.trust["copy"].dimensions} <= {d.name for d in task.space().dimensions()}


def test_a_copy_may_be_named_among_the_rungs(task, tmp_path, monkeypatch):
    """As for an objective; the same rungs as with ``copies``."""
    priced(monkeypatch)
    first, second = (small(task, seed=seed).save(tmp_path / f"{seed}.hcdc") for seed in (0, 1))
    problem = prepare(task, task.space(), rungs=f"copy:{first},short:0.1,copy:{second}")
    assert [rung.name for rung in problem.rungs] == ["copy", "copy:2", "short:0.1", "full"]
    assert [rung.file for rung in problem.rungs[:2]] == [str(first), str(second)]
    other = prepare(task, task.space(), [first, second], ["short:0.1"])
    assert problem.spec() == other.spec()
    found = hcdc.search(task, task.space(), budget="2m", rungs=f"copy:{first},full")
    assert [rung.name for rung in found.rungs] == ["copy", "full"]
    assert found.rung("copy").candidates > 0
    with pytest.raises(InputError, match=r"none\.hcdc"):
        prepare(task, task.space(), rungs=["copy:none.hcdc"])
    with pytest.raises(InputError, match="fingerprint"):
        prepare(hcdc.TableTask(hcdc.data((X + 1, Y)), "logistic"), task.space(), rungs=[f"copy:{first}"])


def test_a_copy_of_other_data_is_refused(task):
    other = hcdc.TableTask(hcdc.data((X + 1, Y)), "logistic")
    with pytest.raises(InputError, match="fingerprint"):
        hcdc.search(task, task.space(), copies=[small(other)])


def forecasts(monkeypatch, copy, full):
    """Prices of the copy (with one initialisation) and of a full training."""
    monkeypatch.setattr(
        TrainedRung, "forecast", lambda self, configs, budget: full if self.name == "full" else copy
    )


@pytest.mark.parametrize(("copy", "seeds"), [(0.049, 1), (0.02, 2), (0.001, 3), (0.051, 0)])
def test_a_copy_is_made_only_if_it_is_cheap(task, monkeypatch, copy, seeds):
    forecasts(monkeypatch, copy, 1.0)
    problem = TaskProblem(task, task.space(), make_copy=True)
    store = Store()
    problem.scout(store, 0, 600.0)
    names = [rung.name for rung in problem.rungs]
    assert names == ([] if not seeds else ["copy"]) + ["short:0.1", "full"]
    if seeds:
        assert problem.rungs[0].recipe.seeds == seeds
        assert problem.rungs[0].share == pytest.approx(seeds * copy)
        assert problem.rungs[0].share <= CHEAP
        assert problem.rungs[0].once > 0
    forecasts(monkeypatch, 10.0, 1.0)  # what was measured first holds
    again = TaskProblem(task, task.space(), make_copy=True)
    again.scout(store, 0, 600.0)
    assert [rung.name for rung in again.rungs] == names
    assert again.spec() == problem.spec()


def test_a_short_budget_makes_no_copy(task, monkeypatch):
    forecasts(monkeypatch, 0.001, 1.0)
    problem = TaskProblem(task, task.space(), make_copy=True)
    problem.scout(Store(), 0, 60.0)
    assert [rung.name for rung in problem.rungs] == ["short:0.1", "full"]


def test_a_forecast_is_close_to_the_clock(task):
    """Within 2x of a training, plus the noise of a busy machine."""
    rung = TaskProblem(task, task.space()).rungs[-1]
    configs = task.space().sample(8, numpy_stream(0, "test"))
    list(rung.run(configs, 0))
    true = min(sum(o.seconds for o in rung.run(configs, 0)) / 8 for _ in range(3))
    assert rung.forecast(configs, 1e6) < 4 * true
    assert rung.forecast(configs, 1e6) > true / 4


def distance(config):
    """Squared distance of the penalties from 1, in powers of ten."""
    return float(sum(np.log10(value) ** 2 for value in config.values()))


class Listed(Truth):
    """Best where all penalties are 1; a full training takes 100 seconds."""

    parts = ("val", "test")
    fidelities = MappingProxyType({12: 0.06})

    def score(self, config, part="val", fidelity=None):
        return 1 - distance(config) / 50 - (0.1 if fidelity else 0.0)

    def seconds(self, config):
        return 100.0

    def known(self, config):
        return True

    def check(self, task):
        pass

    def words(self):
        return "list"

    def spec(self):
        return {"name": "list"}


def test_a_table_gives_its_short_and_full_trainings(task):
    found = hcdc.search(task, task.space(), budget=3000, truth=Listed())
    assert [rung.name for rung in found.rungs] == ["short:12", "full"]
    assert found.rung("short:12").price == pytest.approx(6.0)
    assert found.score > 0.97
    assert found.parts == {"test": found.score}
    assert 2000 < found.seconds <= 3300


class Widest(Listed):
    """Best where most operations are GIN layers."""

    def score(self, config, part="val", fidelity=None):
        return list(config.values()).count("gin") / 10 - (0.1 if fidelity else 0.0)


def test_a_table_of_graph_networks_is_searched_without_pyg(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    task = hcdc.GraphTask(hcdc.data("embedded"))
    problem = TaskProblem(task, NASBenchGraph(), rungs=["short:12"], truth=Widest())
    few = problem.space.candidates()[:5]
    assert problem.hint(few) is not None
    np.testing.assert_array_equal(problem.features(few)[:, -1], problem.hint(few))
    found = hcdc.search(task, NASBenchGraph(), budget=300, truth=Widest())
    assert found.full_trainings > 0
    assert found.score == Widest().score(found.best)


def told(found):
    document = found.to_json()
    for rung in document["rungs"]:
        rung.pop("price"), rung.pop("seconds")
    return {key: document[key] for key in ("best", "score", "rungs", "warnings", "spec")}


def test_a_copy_alone_gives_a_configuration_without_a_score(task, tmp_path):
    copy = small(task)
    found = hcdc.search(copy, trials=20)
    assert (found.score, found.interval, found.full_trainings) == (None, (None, None), 0)
    assert [(rung.name, rung.candidates) for rung in found.rungs] == [("copy", 20)]
    assert set(found.best) == {d.name for d in task.space().dimensions()}
    assert "the copy alone chose it" in found.warnings[0]
    assert told(hcdc.search(copy, trials=20, storage=tmp_path / "s.jsonl")) == told(found)


def test_a_copy_alone_continues_where_it_stopped(task, tmp_path, monkeypatch):
    copy = small(task)
    whole = hcdc.search(copy, trials=24)
    runs = []
    real = TrainedRung.run

    def run(self, configs, seed):
        if len(runs) == 2:
            raise KeyboardInterrupt
        runs.append(len(configs))
        return real(self, configs, seed)

    monkeypatch.setattr(TrainedRung, "run", run)
    with pytest.raises(KeyboardInterrupt):
        hcdc.search(copy, trials=24, storage=tmp_path / "s.jsonl")
    monkeypatch.setattr(TrainedRung, "run", real)
    assert told(hcdc.search(copy, trials=24, storage=tmp_path / "s.jsonl")) == told(whole)
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 25  # the problem and 24 outcomes


class Bowl(Rung):
    name, batch = "copy", 4

    def run(self, configs, seed):
        for config in configs:
            yield Outcome(config, -distance(config), 0.01)


class Counted(Bowl):
    """Counts the trials that it runs, and stops after ``most`` of them."""

    def __init__(self):
        self.ran, self.most = 0, math.inf

    def run(self, configs, seed):
        for outcome in super().run(configs, seed):
            if self.ran == self.most:
                raise KeyboardInterrupt
            self.ran += 1
            yield outcome


@pytest.fixture
def on_copy(task, tmp_path, monkeypatch):
    """Searches the same copy again and again, and says how many trials each search ran."""
    rung, copy = Counted(), small(task)
    monkeypatch.setattr(TaskProblem, "_copy", lambda *_: rung)

    def run(trials, storage=None, most=math.inf):
        rung.ran, rung.most = 0, most
        found = hcdc.search(copy, trials=trials, storage=storage and tmp_path / storage)
        return found, rung.ran

    return run


@pytest.mark.parametrize("storage", ["s.jsonl", "s.log"])
def test_more_trials_on_a_copy_continue_with_those_in_the_storage(on_copy, storage):
    first, ran = on_copy(40, storage)
    assert ran == 40
    more, ran = on_copy(60, storage)
    assert ran == 20
    assert more.rungs[0].candidates == 60
    assert distance(more.best) <= distance(first.best)
    again, ran = on_copy(60, storage)
    assert (told(again), ran) == (told(more), 0)
    fewer, ran = on_copy(40, storage)
    assert (told(fewer), ran) == (told(first), 0)
    between, ran = on_copy(50, storage)
    assert (between.best, between.rungs[0].candidates, ran) == (more.best, 60, 0)


def test_the_best_of_the_stored_trials_on_a_copy_can_win(on_copy, monkeypatch):
    """By now all new trials fail."""
    first, _ = on_copy(40, "s.jsonl")
    failing = lambda _, configs, seed: (Outcome(c, math.nan, 0.01, "failed") for c in configs)  # noqa: E731
    monkeypatch.setattr(Counted, "run", failing)
    more, _ = on_copy(60, "s.jsonl")
    assert more.best == first.best
    assert (more.rungs[0].candidates, more.rungs[0].failed) == (60, 20)


@pytest.mark.parametrize("most", [5, 16, 30])
def test_interrupted_trials_on_a_copy_end_as_uninterrupted_ones(on_copy, most):
    whole, _ = on_copy(40)
    with pytest.raises(KeyboardInterrupt):
        on_copy(40, "s.jsonl", most)
    found, ran = on_copy(40, "s.jsonl")
    assert (told(found), ran) == (told(whole), 40 - most)
    further, _ = on_copy(60, "s.jsonl")
    on_copy(40, "t.jsonl")
    with pytest.raises(KeyboardInterrupt):
        on_copy(60, "t.jsonl", most // 2)
    found, ran = on_copy(60, "t.jsonl")
    assert (told(found), ran) == (told(further), 20 - most // 2)


def test_the_model_beats_random_trials_on_a_copy(task, monkeypatch):
    """A bowl with its top at penalties of 1: with 60 trials the model comes closer than random ones."""
    monkeypatch.setattr(TaskProblem, "_copy", lambda *_: Bowl())
    near = hcdc.search(small(task), trials=60)
    blind = task.space().sample(60, numpy_stream(1, "test"))
    assert distance(near.best) < min(map(distance, blind))


def test_what_cannot_be_searched_is_refused(task, tmp_path):
    with pytest.raises(InputError, match="alone cannot be searched"):
        hcdc.search(task)
    with pytest.raises(InputError, match="truth: a table"):
        hcdc.search(lambda trial, data: 0.0, hcdc.FullData((X, Y), (X, Y)), truth=Listed())
    hcdc.search(small(task), trials=3, storage=tmp_path / "s.jsonl")
    with pytest.raises(InputError, match="the storage holds a search with"):
        hcdc.search(task, task.space(), budget=2, storage=tmp_path / "s.jsonl")
    assert LineStore(tmp_path / "s.jsonl").outcome("full", 0, {}) is None
