"""The ladder on problems with a known best candidate."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
import pytest
from tests.search.clocks import told
from tests.search.problems import Noisy, Square, Three

from hcdc import HcdcError, InputError
from hcdc.core.configs import config_hash
from hcdc.core.seeds import derive
from hcdc.search import Found, Ladder, LadderSettings, LineStore, Outcome

QUICK = LadderSettings(waves=4, pool=120, draws=24)
"""For tests of what is kept and told, not of what is found."""


def climbed(problem, budget=600.0, seed=0, **more):
    return Ladder(problem, budget, seed, **more).climb()


@pytest.mark.parametrize("grid", [None, 25])
def test_it_finds_nearly_the_best(grid):
    regrets = [-Square.truth(climbed(Square(grid=grid), seed=seed).best) for seed in range(4)]
    random = [-max(map(Square.truth, Square().propose(30, np.random.default_rng(seed)))) for seed in range(4)]
    assert np.mean(regrets) < 0.004  # the grid's best lacks 0.0001
    assert np.mean(regrets) < 0.5 * np.mean(random)  # 30 full trainings cost the whole budget


def test_the_budget_is_kept_and_everything_counts():
    problem = Square()
    found = climbed(problem, 300.0)
    assert found.seconds <= 1.1 * 300
    assert found.seconds >= sum(rung.seconds for rung in found.rungs)
    assert next(rung.candidates for rung in found.rungs) == problem.rungs[0].calls
    assert found.full_trainings == problem.rungs[1].calls


def test_only_fresh_scores_are_reported():
    """With much noise in the full score, the best of the search is lucky; the reported score is not."""
    gaps, lucky = [], []
    for seed in range(12):
        found = climbed(Square(full_noise=0.2, grid=9), 900.0, seed)
        gaps.append(found.score - Square.truth(found.best))
        lucky.append(max(one["scores"][0] - Square.truth(one["config"]) for one in found.finalists))
    assert np.mean(lucky) > 0.25
    assert abs(np.mean(gaps)) < 0.15  # 12 runs with noise .2: a standard error of .06


def test_audits_show_whether_a_rung_pays():
    found = climbed(Square(cheap_noise=0.005), 2000.0)
    cheap = found.rung("cheap")
    assert cheap.pays
    assert cheap.spearman > 0.8
    assert cheap.interval[0] < cheap.spearman <= cheap.interval[1]


@pytest.mark.parametrize("seen", [lambda truth: -truth, lambda truth: 0.5], ids=["misleading", "blind"])
def test_a_rung_of_no_use_gets_no_more_than_its_trial_share(seen):
    """It ranks the wrong way round, or not at all; mere noise may look useful on a few candidates."""
    for seed in range(2):
        problem = Square(cheap_noise=0.0)
        problem.rungs[0].truth = lambda config: seen(Square.truth(config))
        cheap = climbed(problem, 600.0, seed, settings=QUICK).rung("cheap")
        assert cheap.seconds <= 0.2 * 600 + 1
        assert not cheap.pays


def test_failures_are_kept_apart_and_never_win():
    problem = Square(fails=lambda config: config["x"] < 0.5)
    found = climbed(problem)
    assert found.best["x"] >= 0.5
    assert found.rung("cheap").failed > 0


def test_nothing_works():
    with pytest.raises(HcdcError, match="first five candidates all failed on rung 'full': it failed"):
        climbed(Square(fails=lambda config: True))


class Stops(LineStore):
    """Dies after some outcomes, as a killed process does."""

    left = 10**9

    def tell(self, rung, repeat, outcome):
        super().tell(rung, repeat, outcome)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_an_interrupted_search_continues_to_the_same_end(tmp_path, monkeypatch):
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    problem = Square()
    whole = climbed(problem, 300.0, settings=QUICK)
    calls = sum(rung.calls for rung in problem.rungs)
    for left in (calls // 10, calls // 2):
        store = Stops(tmp_path / "search.jsonl")
        store.left = left
        with pytest.raises(KeyboardInterrupt):
            climbed(Square(), 300.0, store=store, settings=QUICK)
    with open(tmp_path / "search.jsonl", "a") as file:
        file.write('{"event": "outco')  # a torn last line
    problem = Square()
    found = climbed(problem, 300.0, store=LineStore(tmp_path / "search.jsonl"), settings=QUICK)
    assert told(found) == told(whole)
    assert sum(rung.calls for rung in problem.rungs) == calls - calls // 10 - calls // 2
    again = climbed(problem, 300.0, store=LineStore(tmp_path / "search.jsonl"), settings=QUICK)
    assert told(again) == told(whole)
    assert sum(rung.calls for rung in problem.rungs) == calls - calls // 10 - calls // 2


def test_a_storage_holds_one_search(tmp_path):
    climbed(Square(grid=5), 200.0, store=LineStore(tmp_path / "search.jsonl"), settings=QUICK)
    with pytest.raises(
        InputError, match="holds a search with grid = 5, this one has 7; name another storage"
    ):
        climbed(Square(grid=7), 200.0, store=LineStore(tmp_path / "search.jsonl"))
    (tmp_path / "other").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match="is not a search storage"):
        LineStore(tmp_path / "other")


def test_found_reads_its_own_document():
    found = climbed(Square(grid=9), 300.0, settings=QUICK)
    assert Found.from_json(found.to_json()).to_json() == found.to_json()


@pytest.mark.parametrize("budget", [0, -1.0, float("nan")])
def test_a_budget_is_positive(budget):
    with pytest.raises(InputError, match="needs a positive number of seconds"):
        Ladder(Square(), budget)


def test_a_budget_for_one_full_training_still_ends():
    found = climbed(Square(), 45.0)
    assert found.best is not None
    assert found.seconds <= 1.1 * 45


class Same(Square):
    """A trial takes 3 s on every rung, whatever share of a full training that should be."""

    def __init__(self, *shares):
        super().__init__()
        names = [f"short:{share}" for share in shares]
        self.rungs = [Noisy(name, share, self.truth, 0.02, 3.0) for name, share in zip(names, shares)]
        self.rungs.append(Noisy("full", 1.0, self.truth, 0.001, 3.0))


@pytest.mark.parametrize("budget", [30.0, 50.0, 90.0])
def test_a_price_that_only_seems_too_high_does_not_end_the_search(budget):
    """By its share, a full training would take 30 s; two cheaper rungs show that it does not."""
    found = climbed(Same(0.1, 0.25), budget)
    assert found.score is not None
    assert found.full_trainings >= 3
    assert 0.7 * budget <= found.seconds <= 1.1 * budget


def test_where_one_full_training_is_too_expensive_its_price_is_told():
    class Slow(Square):
        def __init__(self):
            super().__init__()
            self.rungs[-1].price = 400.0
            self.rungs[0].price = 20.0

    found = climbed(Slow(), 300.0)
    assert (found.score, found.full_trainings) == (None, 0)
    assert found.seconds <= 330
    assert any("it should take about 400 s" in text for text in found.warnings)


class Dear(Square):
    """Good candidates take four times as long as bad ones."""

    def __init__(self, cheap: float = 0.05):
        super().__init__()
        for rung, price in zip(self.rungs, (20.0 * cheap, 20.0)):
            rung.share = price / 20.0
            rung.run = functools.partial(self.slow, rung.run, price)

    @classmethod
    def slow(cls, run, price, configs, seed):
        for outcome in run(configs, seed):
            yield dataclasses.replace(
                outcome, seconds=price * (1 + 3 * math.exp(20 * cls.truth(outcome.config)))
            )


@pytest.mark.parametrize("budget", [150.0, 600.0])
def test_the_budget_holds_where_good_candidates_are_dear(budget):
    for seed in range(3):
        assert climbed(Dear(), budget, seed).seconds <= 1.1 * budget


def test_a_rung_that_saves_little_is_dropped():
    found = climbed(Dear(cheap=0.3), 600.0)
    assert found.rung("cheap").note.startswith("saves too little: costs")
    assert found.rung("cheap").candidates <= 2


class Hinted(Three):
    """The hint is the truth with some noise; the cheap rung knows the hint, or more than it."""

    def __init__(self, knows_more):
        super().__init__(grid=40, cheap_noise=0.0)
        noise = np.random.default_rng(0).normal(0, 0.1, 1600)
        self._hint = {config_hash(c): self.truth(c) + e for c, e in zip(self.candidates(), noise)}
        if not knows_more:
            self.rungs[0] = Noisy("cheap", 0.05, lambda c: self._hint[config_hash(c)], 0.2, 1.0)

    def hint(self, configs):
        return np.array([self._hint[config_hash(c)] for c in configs])


def test_a_stand_in_that_knows_no_more_than_the_hint_is_dropped():
    for more, fewest, most in ((False, 2, 3), (True, 0, 0)):
        notes = [climbed(Hinted(more), 600.0, seed).rung("cheap").note or "" for seed in range(3)]
        assert fewest <= notes.count("not shown to add to what is known for free") <= most


class Uneven(Square):
    """Half of the candidates cost nine times as much as the others, on both rungs."""

    def __init__(self):
        super().__init__(grid=12)
        for rung in self.rungs:
            rung.run = functools.partial(self._priced, rung.run)

    def _priced(self, run, configs, seed):
        for outcome in run(configs, seed):
            yield dataclasses.replace(
                outcome, seconds=outcome.seconds * (9 if outcome.config["x"] > 0.5 else 1)
            )


def test_what_a_stand_in_costs_is_measured_on_the_same_candidates():
    ladder = Ladder(Uneven(), 600.0)
    cheap, full = ladder.paid
    every = ladder.board.add(Uneven().candidates())
    light = [i for i in every if ladder.board.configs[i]["x"] < 0.5]
    dear = [i for i in every if ladder.board.configs[i]["x"] > 0.5]
    assert ladder.prices.share(cheap) == 0.05
    ladder.evaluate(cheap, [*dear[:6], *light[:5]])
    ladder.evaluate(full, light[:2])
    assert ladder.prices.share(cheap) == 0.05  # two are too few
    ladder.evaluate(full, light[2:5])
    assert ladder.prices.of(cheap) / ladder.prices.of(full) > 0.2
    assert ladder.prices.share(cheap) == pytest.approx(0.05)


def test_the_first_candidate_says_nothing_about_what_a_stand_in_costs():
    ladder = Ladder(Square(grid=5), 5000.0)
    cheap, full = ladder.paid
    every = ladder.board.add(Square(grid=5).candidates())
    for rung in (cheap, full):
        seconds = iter([500.0, *[rung.price * 2 if rung is cheap else rung.price] * 9])
        rung.run = functools.partial(priced, rung.run, seconds)
        ladder.evaluate(rung, every[:6])
    assert ladder.prices.share(cheap) == pytest.approx(0.1)


def test_costs_follow_the_features_and_the_candidate():
    ladder = Ladder(Uneven(), 6000.0)
    cheap, full = ladder.paid
    every = ladder.board.add(Uneven().candidates())
    features = ladder.board.features()
    assert not ladder.prices.logs(features).any()  # nothing was measured
    ladder.evaluate(cheap, every[::5])
    dear = np.array([config["x"] > 0.5 for config in ladder.board.configs])
    costs = ladder.prices.logs(features)
    unseen = np.setdiff1d(every, every[::5])
    assert costs[unseen][dear[unseen]].mean() - costs[unseen][~dear[unseen]].mean() > 1
    seen = np.array(every[::5])  # what they took decides, not the features alone
    apart = costs[seen][dear[seen]].mean() - costs[seen][~dear[seen]].mean()
    assert apart == pytest.approx(math.log(9), abs=0.4)
    ladder.evaluate(full, every[:3])  # the level of a rung is no cost of its candidates
    assert np.abs(ladder.prices.logs(features) - costs).max() < 0.3


def test_a_rung_without_scores_starts_with_random_candidates():
    ladder = Ladder(Square(grid=6), 600.0, settings=QUICK)
    cheap, full = ladder.paid
    every = ladder.board.add(Square(grid=6).candidates())
    ladder.evaluate(cheap, every[:8])
    ladder.dropped[cheap.name] = "did not earn its seconds"  # before any full training
    ladder._score(full, None, 3)
    assert len(ladder.board.outcomes[full.name]) == 3


def test_failed_candidates_are_not_cheap():
    ladder = Ladder(Square(grid=6, fails=lambda config: config["x"] > 0.5), 5000.0)
    every = ladder.board.add(Square(grid=6).candidates())
    seconds = iter([0.02 if config["x"] > 0.5 else 1.0 for config in ladder.board.configs])
    ladder.paid[0].run = functools.partial(priced, ladder.paid[0].run, seconds)
    ladder.evaluate(ladder.paid[0], every)
    assert not ladder.prices.logs(ladder.board.features()).any()


def test_candidates_that_cost_about_the_same_are_not_told_apart():
    ladder = Ladder(Square(grid=5), 5000.0)
    every = ladder.board.add(Square(grid=5).candidates())
    seconds = iter([1.0, 1.05] * 13)
    ladder.paid[0].run = functools.partial(priced, ladder.paid[0].run, seconds)
    ladder.evaluate(ladder.paid[0], every)
    assert not ladder.prices.logs(ladder.board.features()).any()


def priced(run, seconds, configs, seed):
    for outcome in run(configs, seed):
        yield dataclasses.replace(outcome, seconds=next(seconds))


class Fixed(Square):
    """Full trainings of three candidates: the best is the dearest by far."""

    scores: ClassVar = {0.0: (0.9, 300.0), 0.5: (0.8, 10.0), 1.0: (0.7, 10.0)}

    def __init__(self):
        super().__init__()
        self.rungs = self.rungs[1:]
        self.rungs[0].run = self._run

    def candidates(self):
        return [{"x": x, "y": 0.0} for x in self.scores]

    def _run(self, configs, seed):
        for config in configs:
            yield Outcome(config, *self.scores[config["x"]])


def test_a_second_score_for_the_cheaper_finalist_alone_decides_nothing():
    """After the first trainings, 380 s are left of 700: too few to train both finalists and the winner."""
    ladder = Ladder(Fixed(), 700.0)
    found = ladder.climb()
    assert found.best["x"] == 0.0
    assert [set(again) for again in ladder.repeats.values()] == [{2}]
    roomy = Ladder(Fixed(), 2000.0)
    assert roomy.climb().best["x"] == 0.0
    assert sorted(len(again) for again in roomy.repeats.values()) == [1, 2]


class Fails(Fixed):
    """The best candidate fails when it is trained again."""

    def _run(self, configs, seed):
        for outcome in super()._run(configs, seed):
            if outcome.score == 0.9 and seed != derive(0, "search", "full", 0):
                outcome = dataclasses.replace(outcome, score=math.nan, state="failed")
            yield outcome


def test_a_finalist_that_fails_when_trained_again_does_not_win():
    assert Ladder(Fails(), 2000.0).climb().best["x"] == 0.5


def test_no_seconds_are_reserved_for_finalists_that_would_not_be_trained():
    """Three trainings are kept, or one for the winner; two would compare nothing."""
    for budget, trainings in ((200.0, 1), (330.0, 1), (420.0, 3)):
        ladder = Ladder(Square(grid=5), budget)
        ladder.board.add(Square(grid=5).candidates())
        ladder.evaluate(ladder.full, [0, 1])
        assert ladder.reserve() == pytest.approx(20.0 * trainings)


def test_full_trainings_fill_the_batch_of_their_rung():
    """Workers of a cluster or lanes of a device must not wait for each other's results."""
    problem, asked = Square(cheap_noise=0.05, grid=15), []
    full = problem.rungs[-1]
    full.batch, run = 4, full.run

    def counted(configs, seed):
        asked.append(len(configs))
        return run(configs, seed)

    full.run = counted
    Ladder(problem, 3000.0, seed=0).climb()
    assert asked.count(4) > 2  # the audit sample is one batch and a part
