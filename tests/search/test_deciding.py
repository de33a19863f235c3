"""Seconds for decisions: forecast, taken from the budget of the rungs, and told."""

import dataclasses
import math

import pytest
from tests.search.clocks import bowl, full
from tests.search.problems import Square, Three

import hcdc
from hcdc.core.found import Found, RungReport
from hcdc.core.planned import RungPlan
from hcdc.core.told import cost, plan_lines
from hcdc.search import Ladder
from hcdc.search import _deciding as module
from hcdc.search._deciding import decision_seconds
from hcdc.search._plan import planned

PRICES = {"subset:0.1": 1.0, "short:0.25": 2.5, "full": 10.0}


@pytest.mark.parametrize("problem", [Square, Three])
def test_the_forecast_is_what_a_search_takes(problem):
    prices = {rung.name: rung.price for rung in problem().rungs}
    forecast = decision_seconds(problem(), planned(prices, 600.0, math.inf).rungs, 600.0)
    taken = Ladder(problem(), 600.0).climb().cost.overhead
    assert taken / 3 < forecast < 3 * taken


def test_decisions_by_hand(monkeypatch):
    """Eight waves of one fit to plan and one per rung; candidates and decisions share the budget."""
    monkeypatch.setattr(module, "_timed", lambda *_: 0.1)
    rungs = [RungPlan(name=name, price=price, candidates=32) for name, price in PRICES.items()]
    quick = 0.1 * (8 + 8 + 32)  # a fit before each full training
    assert decision_seconds(Three(), rungs[1:], 1000.0) == pytest.approx(quick, rel=0.01)
    dear = [dataclasses.replace(rung, price=rung.price / 10) for rung in rungs]
    assert decision_seconds(Three(), dear, 1000.0) == pytest.approx(0.1 * 8 * 4)
    assert decision_seconds(Three(), dear, 2.0) == 2.0
    monkeypatch.setattr(module, "_timed", lambda *given: 0.1 + 5 * (given[2] == 1.0))
    few = decision_seconds(Three(), dear, 100.0)
    assert 3.2 < few < 0.1 * 8 * 4 + 5 * 8 * 4


def test_rungs_get_what_decisions_leave():
    alone = planned(PRICES, 1800.0, math.inf)
    found = planned(PRICES, 1800.0, math.inf, before=100.0, deciding=300.0)
    assert (alone.overhead, found.overhead) == (0.0, 400.0)
    assert found.pays
    assert 0.75 * 1400 < sum(found.seconds.values()) <= 1400
    assert found.full_trainings == 170  # random search decides nothing
    assert found.chance < alone.chance
    assert found.to_json()["overhead"] == 400.0
    assert ("deciding", "400 s, starting included") in plan_lines(found)
    assert "deciding" not in dict(plan_lines(alone))


def test_a_ladder_that_decides_too_long_does_not_pay():
    found = planned(PRICES, 300.0, math.inf, before=10.0, deciding=200.0)
    assert planned(PRICES, 300.0, math.inf).pays
    assert not found.pays
    assert found.why.startswith("decisions would take 67% of the budget, and in the rest a ladder is not ")
    assert (found.overhead, found.seconds["full"]) == (10.0, 290.0)


def test_a_plan_counts_what_passed_before_it(clock, monkeypatch):
    monkeypatch.setattr("hcdc.search._plan.decision_seconds", lambda *_: 50.0)
    found = hcdc.plan(bowl(clock), full(), budget="10m", before=7.0)
    assert found.pays
    assert found.overhead == 57.0
    assert 400 < sum(found.seconds.values()) <= 600 - 57


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (20.0, "20 s for 2 full trainings, 8.1 s of it starting and deciding; "),
        (200.0, "200 s for 2 full trainings, 188 s of it starting and deciding; "),
        (12.2, "12 s for 2 full trainings; "),
    ],
)
def test_the_cost_of_a_search_names_its_decisions(seconds, told):
    rung = RungReport(name="full", candidates=2, seconds=11.9, price=1.0)
    found = Found(best={}, seconds=seconds, full_trainings=2, rungs=[rung])
    assert cost(found).startswith(told)
