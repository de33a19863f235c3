"""Trainings that take less time than decisions: the budget holds, and more of it helps."""

import numpy as np
import pytest
from tests.search.clocks import full, told
from tests.search.problems import Square

from hcdc.search import Ladder, LadderSettings, search
from hcdc.search._allocation import leading
from hcdc.search._board import Posterior
from hcdc.search._hurry import trainings_are_quick

QUICK = LadderSettings(pool=240, draws=24)


class Tiny(Square):
    """Every training takes a millisecond."""

    def __init__(self):
        super().__init__(full_noise=0.0)
        for rung in self.rungs:
            rung.price = 0.001


@pytest.fixture
def thinking(clock, monkeypatch):
    """A decision takes a quarter of a second, and to note a training takes half of one."""

    class Slow(Posterior):
        def __init__(self, *given):
            super().__init__(*given)
            clock.spend(0.25)

    monkeypatch.setattr("hcdc.search._hurry.Posterior", Slow)
    told = Square.tell

    def tell(self, rung, outcome):
        clock.now += 0.0005
        return told(self, rung, outcome)

    monkeypatch.setattr(Square, "tell", tell)
    return clock


@pytest.mark.parametrize("budget", [1.0, 5.0])
def test_the_budget_holds_and_the_winner_is_trained_again(thinking, budget):
    found = Ladder(Tiny(), budget, settings=QUICK).climb()
    assert found.seconds <= 1.1 * budget
    assert found.score is not None
    assert found.cost.overhead > 0.3 * found.seconds  # it is counted
    assert found.rung("cheap").note == "full trainings are quick"


@pytest.mark.usefixtures("thinking")
def test_more_budget_helps():
    best = [np.mean([Ladder(Tiny(), b, s, settings=QUICK).climb().score for s in range(2)]) for b in (2, 8)]
    assert best[1] > 0.5 * best[0]  # scores are negative: half as far from the best
    assert best[1] > -1e-4


def test_it_continues_as_if_nobody_had_stopped_it(clock, monkeypatch, tmp_path):
    calls, stop = [], []

    class Slow(Posterior):
        def __init__(self, *given):
            super().__init__(*given)
            clock.spend(0.25)

    monkeypatch.setattr("hcdc.search._hurry.Posterior", Slow)

    def objective(trial, data):
        clock.spend(1 / 256)
        calls.append(trial.number)
        if stop and len(calls) == stop[0]:
            raise KeyboardInterrupt
        return -((trial.suggest_float("x", 0, 1) - 0.3) ** 2)

    whole = search(objective, full(), budget=4, storage=tmp_path / "whole.jsonl")
    assert whole.rungs[-1].candidates > 200
    stop.append(len(calls) + 150)
    with pytest.raises(KeyboardInterrupt):
        search(objective, full(), budget=4, storage=tmp_path / "s.jsonl")
    assert told(search(objective, full(), budget=4, storage=tmp_path / "s.jsonl")) == told(whole)


@pytest.mark.usefixtures("thinking")
def test_trainings_are_limited_as_in_waves():
    found = Ladder(Tiny(), 60.0, settings=LadderSettings(waves=2, pool=120, draws=24)).climb()
    assert found.rung("full").candidates == 240
    found = Ladder(Tiny(), 5.0, settings=LadderSettings(pool=120, draws=24, candidates=50)).climb()
    assert found.rung("full").candidates == 50


def test_dear_trainings_are_searched_in_waves(thinking):
    assert not trainings_are_quick(Ladder(Square(), 300.0, settings=QUICK))
    ladder = Ladder(priced(Tiny(), 0.03), 5.0, settings=QUICK)
    ladder.climb()
    assert not ladder.hurried


def priced(problem, price):
    problem.rungs[-1].price = price
    return problem


def test_leaders_of_draws():
    outlook = np.array([[3.0, 2.0, 1.0, 0.0, 9.0], [0.0, 2.0, 3.0, 1.0, 9.0]])
    eligible = np.array([0, 1, 2, 3])
    assert leading(outlook, eligible, 3) == [0, 2, 1]
    assert leading(outlook, eligible, 9) == [0, 2, 1, 3]
