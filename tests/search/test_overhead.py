"""Seconds before the first decision: the budget includes them, and a search that continues keeps them."""

import numpy as np
import pytest

import hcdc
from hcdc.core.progress import Progress
from hcdc.search._overhead import Overhead
from hcdc.search._store import Store


def test_they_count_but_not_as_decisions():
    overhead = Overhead(Store(), before=100.0)
    overhead.tick()
    assert overhead.seconds > 100
    assert overhead.mean < 1


def test_a_search_that_continues_keeps_the_first_ones():
    store = Store()
    Overhead(store, before=5.0)
    assert Overhead(store, before=1.0).seconds == 5


def objective(trial, data):
    data.steps(10)
    return -((trial.suggest_float("x", -1, 1) - 0.3) ** 2)


@pytest.mark.parametrize("before", [0.0, 3.0])
def test_the_budget_includes_them(before):
    rows = np.eye(2), np.arange(2)
    full = hcdc.FullData(rows, rows)
    found = hcdc.search(objective, full, budget=4, trials=4, progress=Progress(before=before))
    assert before <= found.seconds <= 4.4
    assert found.cost.overhead >= before
