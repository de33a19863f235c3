"""Pruned and failed full trainings take seconds, but they are no full trainings."""

import dataclasses

import pytest
from tests.search.clocks import bowl, full

from hcdc.core.told import found_lines
from hcdc.search import TrialPruned, search

pytestmark = pytest.mark.usefixtures("quick")


def told(found):
    return dict(found_lines(found))


def test_pruned_and_failed_trainings_are_counted_apart(clock):
    begun, ended = [], []

    def fault(trial, data):
        if (data.epochs(8), len(data.train[1])) == (8, 100):
            begun.append(1)
            if len(begun) in (3, 7, 8):
                raise TrialPruned
            if len(begun) in (5, 9):
                raise ValueError("it failed")
            ended.append(1)

    found = search(bowl(clock, fault=fault), full(), budget=160, seed=0)
    rung = found.rung("full")
    pruned, failed = rung.pruned, rung.failed - rung.pruned
    assert found.full_trainings == len(ended) < len(begun)
    assert rung.complete == rung.candidates - pruned - failed
    assert (pruned, failed) == (3, 2)
    assert f" for {found.full_trainings} full trainings (and 3 pruned, 2 failed)" in told(found)["cost"]
    assert f"the best of {rung.complete} full trainings" in told(found)["verdict"]
    assert found.to_json()["full_trainings"] == len(ended)
    same = [{"config": {}, "scores": [0.5] * 3}]
    assert (
        f"the best of {rung.complete} on the validation"
        in dataclasses.replace(found, finalists=same).flattered
    )


def test_full_trainings_that_were_all_pruned_are_not_called_too_expensive(clock):
    def fault(trial, data):
        if (data.epochs(8), len(data.train[1])) == (8, 100):
            raise TrialPruned

    found = search(bowl(clock, fault=fault), full(), budget=20, seed=0)  # five would end the search
    many = found.rung("full").candidates
    assert found.full_trainings == 0 < many == found.rung("full").pruned
    assert any(f"no full training was completed ({many} failed or pruned); this" in w for w in found.warnings)
    assert told(found)["cost"].endswith(f"(and {many} pruned)")
