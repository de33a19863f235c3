"""Candidates whose full training would take much of the budget."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from tests.search.problems import Square

from hcdc.search import Ladder
from hcdc.search._pilot import FIRST, pilot
from hcdc.search._prices import Prices

DEAR = 12


class Lopsided(Square):
    """One candidate in four costs twelve times as much as the others, on both rungs."""

    def __init__(self, factor=DEAR):
        super().__init__(grid=12)
        self.factor = factor
        for rung in self.rungs:
            rung.run = functools.partial(self._priced, rung.run)

    def _priced(self, run, configs, seed):
        for outcome in run(configs, seed):
            factor = self.factor if outcome.config["x"] > 0.75 else 1
            yield dataclasses.replace(outcome, seconds=outcome.seconds * factor)


def scored(factor=DEAR):
    """A ladder with scores of every third candidate on the cheap rung, and one full training."""
    ladder = Ladder(Lopsided(factor), 600.0)
    every = ladder.board.add(ladder.problem.candidates())
    ladder.evaluate(ladder.paid[0], every[::3])
    ladder.evaluate(ladder.full, every[:1])
    dear = np.array([config["x"] > 0.75 for config in ladder.board.configs])
    return ladder, np.array(every[3::3]), dear


def test_full_trainings_that_would_take_much_of_the_budget_are_left_out():
    ladder, eligible, dear = scored()
    features = ladder.board.features()
    found = ladder.prices.bearable(ladder.full, eligible, 120.0, features)
    assert found.tolist() == eligible[~dear[eligible]].tolist()
    assert len(ladder.prices.bearable(ladder.full, eligible, 300.0, features)) == len(eligible)


def test_if_all_are_dear_the_cheapest_stay():
    ladder, eligible, dear = scored()
    found = ladder.prices.bearable(ladder.full, eligible, 1.0, ladder.board.features())
    assert found.tolist() == eligible[~dear[eligible]].tolist()


def test_nothing_is_left_out_where_all_cost_the_same():
    ladder, eligible, _ = scored(factor=1)
    assert ladder.prices.bearable(ladder.full, eligible, 1.0, ladder.board.features()) is eligible


def test_audits_in_full_end_before_they_take_too_much():
    ladder, eligible, dear = scored()
    sample = [*eligible[~dear[eligible]][:2].tolist(), *eligible[dear[eligible]][:1].tolist(), 3]
    assert ladder.prices.first_within(ladder.full, sample, 100.0) == sample[:2]
    assert ladder.prices.first_within(ladder.full, sample, 40.0) == sample[:2]
    assert ladder.prices.first_within(ladder.full, sample, 39.0) == sample[:1]
    assert ladder.prices.first_within(ladder.full, sample, 1000.0) == sample


def most_seconds(seed):
    """The longest full training of a search, among candidates known from the cheap rung, and their number."""
    ladder = Ladder(Lopsided(), 600.0, seed)
    ladder.climb()
    cheap, full = (ladder.board.outcomes[rung.name] for rung in ladder.paid)
    return max(outcome.seconds for i, outcome in full.items() if i in cheap), len(full)


def test_a_search_trains_no_candidate_that_it_knows_to_be_dear(monkeypatch):
    for seconds, trained in map(most_seconds, range(2)):
        assert seconds < 120
        assert trained > 4
    monkeypatch.setattr(Prices, "bearable", lambda self, rung, eligible, limit, features: eligible)
    monkeypatch.setattr(Prices, "first_within", lambda self, rung, sample, limit: list(sample))
    assert most_seconds(0)[0] == 240


class Rising(Square):
    """The better a candidate, the more its trainings cost: .6 to 1.4 times the mean."""

    def __init__(self):
        super().__init__(grid=12)
        for rung in self.rungs:
            rung.run = functools.partial(self._priced, rung.run)

    def _priced(self, run, configs, seed):
        for outcome in run(configs, seed):
            factor = 1.4 + 0.8 * self.truth(outcome.config)
            yield dataclasses.replace(outcome, seconds=outcome.seconds * factor)


@pytest.mark.parametrize("budget", [90.0, 130.0])
def test_a_small_budget_leaves_out_no_ordinary_candidate(budget, monkeypatch):
    """With less than ten trainings a part of the budget is less than one of them takes."""
    left = []
    bearable = Prices.bearable

    def watched(self, rung, eligible, limit, features):
        found = bearable(self, rung, eligible, limit, features)
        left.append(len(eligible) - len(found))
        return found

    monkeypatch.setattr(Prices, "bearable", watched)
    for seed in range(2):
        Ladder(Rising(), budget, seed).climb()
    assert left
    assert not any(left)


class DearFirst(Square):
    """The second candidate that is scored costs twelve times as much as all others."""

    def __init__(self):
        super().__init__(grid=12)
        self.order: list[float] = []
        self.rungs[0].run = functools.partial(self._priced, self.rungs[0].run)

    def _priced(self, run, configs, seed):
        for outcome in run(configs, seed):
            self.order.append(outcome.seconds)
            dear = len(self.order) == 2
            yield dataclasses.replace(outcome, seconds=outcome.seconds * (DEAR if dear else 1))


def piloted(budget):
    """A ladder after its first, uniform sample."""
    ladder = Ladder(DearFirst(), budget)
    ladder.board.add(ladder.problem.candidates())
    pilot(ladder)
    return ladder


def test_one_dear_candidate_does_not_end_the_first_sample():
    """Its price alone would let the cheap rung have two candidates."""
    ladder = piloted(160.0)
    assert len(ladder.board.outcomes["cheap"]) == FIRST
    assert ladder.spent["cheap"] == FIRST - 1 + DEAR


def test_dear_candidates_end_the_first_sample_where_they_take_a_tenth_of_the_budget():
    ladder = piloted(100.0)
    assert len(ladder.board.outcomes["cheap"]) == 2


def test_a_first_full_training_leaves_room_for_another():
    """The candidate may become the best, and the best is trained again for the score that is reported."""
    ladder, eligible, dear = scored()
    costly, cheap = eligible[dear[eligible]][0], eligible[~dear[eligible]][0]
    needed = float(ladder.prices.expected(ladder.full, [costly])[0])
    for left, found in ((1.5 * needed, []), (2.1 * needed, [costly])):
        ladder.spent["full"] += ladder.end(0) - ladder.seconds - left
        assert ladder._affordable(ladder.full, [costly], 0) == found
        assert ladder._affordable(ladder.full, [costly], 1) == [costly]
        assert ladder._affordable(ladder.full, [cheap], 0) == [cheap]
