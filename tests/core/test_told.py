"""Counts in sentences: one of a thing has no plural."""

import pytest

from hcdc.core.found import Found, RungReport
from hcdc.core.planned import RungPlan, SearchPlan
from hcdc.core.told import cost, counted, every, plan_lines


def test_counts():
    told = {0: "0 trials", 1: "1 trial", 2: "2 trials", 1200: "1,200 trials"}
    assert {n: counted(n, "trial") for n in told} == told
    assert [every(n, "trial") for n in (1, 2, 3)] == ["the trial", "both trials", "all 3 trials"]


@pytest.mark.parametrize(
    ("tried", "price", "told"),
    [
        (1, 1.0, "1 candidate was tried"),
        (1, 90.0, "training the candidate in full would take 90 s, 9.0 times as long"),
        (2, 1.0, "2 candidates were tried"),
        (2, 30.0, "training both candidates in full would take 60 s, 6.0 times as long"),
    ],
)
def test_the_cost_of_one_training(tried, price, told):
    rungs = [
        RungReport(name="short:0.1", candidates=tried, seconds=5.0),
        RungReport(name="full", candidates=1, seconds=5.0, price=price),
    ]
    found = Found(best={}, seconds=10.0, full_trainings=1, rungs=rungs)
    assert cost(found) == f"10 s for 1 full training; {told}"
    alone = [RungReport(name="copy", candidates=1, seconds=10.0)]
    assert cost(Found(best={}, seconds=10.0, rungs=alone)) == "10 s for 1 candidate on the copy"


def test_a_plan_of_one_candidate():
    plan = SearchPlan(budget=9.0, rungs=[RungPlan(name="full", price=2.0, candidates=1)])
    assert plan_lines(plan)[0] == ("rung full", "1 candidate of 2 s: 2 s")
