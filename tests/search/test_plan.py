"""The plan: three cases in which a ladder is not to be used, and what it extrapolates otherwise."""

import math
import time

import numpy as np
import pytest
from scipy import stats

import hcdc
from hcdc import FullData, InputError
from hcdc.core.planned import ODDS, raised
from hcdc.core.seeds import numpy_stream
from hcdc.search._plan import CHANCES, MARGIN, WORLDS, PriorWorlds, planned
from hcdc.search._regression import PRIOR_SLOPE

X = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
Y = np.arange(100) % 2


def test_a_budget_below_three_full_trainings_is_refused_a_ladder():
    found = planned({"short:0.1": 6.0, "full": 60.0}, 150.0, math.inf)
    assert not found.pays
    assert "pays for 2 full trainings, and at least 3 are needed" in found.why
    assert planned({"short:0.1": 6.0, "full": 60.0}, 1800.0, math.inf).pays


def test_a_space_that_fits_the_budget_is_trained_in_full():
    found = planned({"short:0.1": 1.0, "full": 10.0}, 1000.0, 100)
    assert not found.pays
    assert found.candidates == found.rungs[-1].candidates == 100
    assert found.seconds == {"short:0.1": 0.0, "full": 1000.0}
    assert "all 100 candidates can be trained in full" in found.why
    assert planned({"short:0.1": 1.0, "full": 10.0}, 1000.0, 1000).pays


def test_full_trainings_that_are_cheap_need_no_ladder():
    found = planned({"short:0.1": 0.01, "full": 0.1}, 1800.0, math.inf)
    assert not found.pays
    assert "so cheap that the budget pays for 18,000" in found.why


def test_stand_ins_that_cost_as_much_as_the_whole_do_not_pay():
    found = planned({"short:0.9": 9.0, "full": 10.0}, 600.0, math.inf)
    assert not found.pays
    assert "cost too much against a full training (10 s)" in found.why


def test_a_ladder_that_pays_keeps_the_budget():
    found = planned({"subset:0.1": 1.0, "short:0.25": 2.5, "full": 10.0}, 1800.0, math.inf)
    assert found.pays
    assert found.gain > MARGIN
    assert 0.8 * 1800 < sum(found.seconds.values()) <= 1800
    counts = [rung.candidates for rung in found.rungs]
    assert counts[0] > found.full_trainings == 180 > counts[-1] > 0
    document = found.to_json()
    assert document["seconds"] == {r["name"]: r["seconds"] for r in document["rungs"]}
    assert {"memory_gib", "pays", "why", "budget"} <= set(document)


def test_worlds_agree_with_order_statistics():
    """Random search is worth E[max of n]; a rung of correlation rho adds rho times its own selection."""
    worlds = PriorWorlds(2, 500, numpy_stream(0, "test"))
    error = 4 / math.sqrt(WORLDS)
    for n in (1, 10, 100):
        u = np.linspace(0, 1, 20001)[1:-1]
        expected = float(np.mean(stats.norm.ppf(u ** (1 / n))))
        assert worlds.value([0, n]) == pytest.approx(expected, abs=error)
        assert worlds.value([n, 1]) == pytest.approx(PRIOR_SLOPE * expected, abs=error)


def test_chances_agree_with_order_statistics():
    """The first of n beats the first of n others in half of the worlds."""
    worlds = PriorWorlds(1, 500, numpy_stream(0, "test"), 1000)
    assert worlds.chance([20], 20, numpy_stream(1, "test")) == pytest.approx(0.5, abs=0.05)
    assert worlds.chance([60], 20, numpy_stream(1, "test")) == pytest.approx(0.75, abs=0.05)  # 60 / 80
    assert worlds.chance([500], 500, numpy_stream(1, "test")) == 0.5  # all candidates: always tied


def test_a_chance_is_stated_where_a_ladder_is_compared():
    good = planned({"short:0.1": 1.0, "full": 10.0}, 1800.0, math.inf)
    assert 0.6 < good.chance < 1
    assert f" {good.chance:.0%} to beat random search" in str(good)
    assert good.to_json()["chance"] == good.chance
    poor = planned({"short:0.9": 9.0, "full": 10.0}, 600.0, math.inf)
    assert poor.chance == pytest.approx(raised(0.5, ODDS), abs=0.08)
    for few in (planned({"full": 60.0}, 100.0, math.inf), planned({"full": 1.0}, 100.0, 10)):
        assert few.chance is None
        assert "chance" not in str(few)


@pytest.mark.parametrize("budget", [60.0, 600.0, 1800.0])
def test_the_chance_is_that_of_the_candidates_that_are_told(budget):
    """Three full trainings are kept back to train the winners again; random search has no such ones."""
    found = planned({"short:0.1": 1.0, "full": 10.0}, budget, math.inf)
    assert found.pays
    reserve = max(1, min(3, int(0.15 * found.full_trainings)))
    short, full = (rung.candidates for rung in found.rungs)
    assert short > 0
    worlds = PriorWorlds(2, 2000, numpy_stream(0, "plan", "chance"), CHANCES)
    expected = worlds.chance([short, full - reserve], found.full_trainings, numpy_stream(0, "plan", "random"))
    assert found.chance == raised(expected, ODDS)


def test_what_a_search_learns_multiplies_the_odds():
    assert raised(0.5, 2.0) == pytest.approx(2 / 3)
    assert raised(0.25, 3.0) == pytest.approx(0.5)
    assert (raised(0.0, 2.0), raised(1.0, 2.0)) == (0.0, 1.0)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def slow(clock, seconds, calls):
    """A full training of 20 epochs takes ``seconds``."""

    def objective(trial, data):
        x = trial.suggest_float("x", 0.0, 1.0)
        spent = data.epochs(20) / 20 * len(data.train[1]) / 100
        clock.now += seconds * spent
        calls.append(spent)
        return x

    return objective


def test_an_objective_is_timed_at_its_cheapest_rung_alone(clock):
    calls = []
    found = hcdc.plan(slow(clock, 100.0, calls), FullData((X, Y), (X, Y)), budget="2h")
    # the scout and one more, ten seconds each; then one epoch on all rows, for its memory
    assert calls == pytest.approx([0.1, 0.1, 0.05])
    assert found.pays
    assert {r.name: r.price for r in found.rungs} == pytest.approx(
        {"subset:0.1": 10.0, "short:0.25": 25.0, "full": 100.0}
    )


def test_quick_rungs_are_timed_not_extrapolated(clock):
    calls = []
    found = hcdc.plan(slow(clock, 2.0, calls), FullData((X, Y), (X, Y)), budget="10m")
    assert calls == pytest.approx([0.1, *[0.1, 0.25, 1.0] * 2])
    assert found.rungs[-1].price == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(4))
def test_rungs_are_timed_on_the_same_configurations(clock, seed):
    """A trial takes .01 to 1 s, by its parameter; prices of other configurations would not compare."""
    seconds = []

    def objective(trial, data):
        size = trial.suggest_float("size", 0.01, 1.0, log=True)
        share = data.epochs(100) / 100 * len(data.train[1]) / 100
        clock.now += size * share
        if share == 1:
            seconds.append(size)
        return size

    found = hcdc.plan(objective, FullData((X, Y), (X, Y)), budget="10m", seed=seed)
    prices = {rung.name: rung.price for rung in found.rungs}
    assert prices["full"] == pytest.approx(np.mean(seconds), rel=0.01)
    assert prices["short:0.25"] / prices["full"] == pytest.approx(0.25, rel=0.05)
    assert len(seconds) >= 3


def test_an_objective_with_few_configurations_is_trained_in_full(clock):
    def objective(trial, data):
        clock.now += data.epochs(10) * len(data.train[1]) / 100
        return trial.suggest_int("k", 1, 4) + float(trial.suggest_categorical("b", [True, False]))

    found = hcdc.plan(objective, FullData((X, Y), (X, Y)), budget="10m")
    assert (found.pays, found.candidates) == (False, 8)
    assert "all 8 candidates can be trained in full" in found.why


def test_a_task_is_timed_on_a_few_steps():
    task = hcdc.TableTask(hcdc.data((X, Y)), "mlp", width=4)
    found = hcdc.plan(task, task.space(), budget="20m")
    prices = [rung.price for rung in found.rungs]
    assert [rung.name for rung in found.rungs][-2:] == ["short:0.1", "full"]
    assert 0 < prices[-2] < prices[-1] < 5
    assert found.memory_gib > 0.01


def test_what_cannot_be_planned_is_refused():
    task = hcdc.TableTask(hcdc.data((X, Y)), "mlp", width=4)
    with pytest.raises(InputError, match="the space is missing"):
        hcdc.plan(task, FullData((X, Y), (X, Y)))
    with pytest.raises(InputError, match="budget 'soon'"):
        hcdc.plan(task, task.space(), budget="soon")
    with pytest.raises(InputError, match="pass an hcdc"):
        hcdc.plan(lambda trial, data: 0.0, task.space())
