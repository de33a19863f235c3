"""Larger networks first, until audits or the proof of a rung say otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from tests.search.problems import Noisy, Square
from tests.search.test_task_search import Listed

import hcdc
from hcdc.core.configs import config_hash
from hcdc.search import Ladder, LadderSettings, TaskProblem
from hcdc.search import _ladder as ladders
from hcdc.search._size import PART, hoped
from hcdc.spaces import NASBench201, NASBenchGraph

BUDGET = 400.0


class Sized(Square):
    """400 candidates, whose sizes rise with the truth on the cheap rung, or fall with it."""

    def __init__(self, sign=1.0, cheap=None, **options):
        super().__init__(grid=20, cheap_noise=0.0, **options)
        self.sign = sign
        if cheap is not None:
            self.rungs[0] = Noisy("cheap", 0.05, cheap, 0.0, 1.0)

    def hint(self, configs):
        return np.array([self.sign * self.truth(config) for config in configs])


def climbed(problem, budget=BUDGET, seed=0):
    ladder = Ladder(problem, budget, seed, settings=LadderSettings(waves=4, draws=24))
    ladder.climb()
    return ladder


def tried(ladder):
    """Places by size, 0 is the largest, of what the cheapest rung scored after its audits."""
    rung = ladder.paid[0]
    sizes = ladder.board.hint()[:, 0]
    order = list(ladder.board.outcomes[rung.name])
    return [int((sizes > sizes[i]).sum()) for i in order if i not in ladder.sample]


def start(problem, budget=BUDGET, seed=0):
    """A ladder after its uniform sample; it has no full training, so no rung has proved itself."""
    ladder = Ladder(problem, budget, seed)
    ladder.board.add(problem.candidates())
    ladder.sample = np.random.default_rng(seed).permutation(400)[:16].tolist()
    ladder.evaluate(ladder.paid[0], ladder.sample)
    return ladder, np.arange(len(ladder.board.configs))


def free(ladder, rung, eligible):
    """In the place of `hoped`: no candidate is favoured."""
    return eligible


def by_chance(config):
    """Scores that say nothing."""
    return int(config_hash(config), 16) % 1000 / 1000


def test_two_thirds_of_the_first_cheap_trainings_are_of_the_largest(monkeypatch):
    """The rung never proves itself. Without the rule, about half of its trainings are of the largest."""

    def share():
        places = tried(climbed(Sized(cheap=by_chance), seed=1))
        assert len(places) > 20
        return np.mean(np.array(places) < int(PART * BUDGET))

    assert share() >= 2 / 3
    monkeypatch.setattr(ladders, "hoped", free)
    assert share() < 0.6


def test_as_many_are_favoured_as_a_part_of_the_budget_could_train():
    ladder, every = start(Sized())
    sizes, some = ladder.board.hint()[:, 0], hoped(ladder, ladder.paid[0], every)
    assert len(some) == int(PART * BUDGET)
    assert sizes[some].min() >= np.delete(sizes, some).max()
    assert len(hoped(ladder, ladder.full, every)) == len(every)  # full trainings follow the model alone


@pytest.mark.parametrize(("sign", "favoured"), [(1.0, True), (-1.0, False)])
def test_a_handful_of_audits_overrules_the_hope(sign, favoured):
    ladder, every = start(Sized(sign))
    assert (len(hoped(ladder, ladder.paid[0], every)) < len(every)) == favoured


def test_a_rung_that_has_proved_itself_is_free():
    ladder, every = start(Sized())
    ladder.evaluate(ladder.full, ladder.sample)
    assert ladder.pays(ladder.paid[0])
    assert len(hoped(ladder, ladder.paid[0], every)) == len(every)


def test_a_wrong_hope_costs_little():
    """Sizes fall with the truth; the best is found nevertheless."""
    for seed in range(2):
        found = Ladder(Sized(-1.0), 600.0, seed).climb()
        assert -Square.truth(found.best) < 0.004


@pytest.mark.parametrize("grid", [None, 20])
def test_without_sizes_nothing_is_favoured(grid, monkeypatch):
    """The choices are those of a ladder that knows nothing of sizes."""

    def choices():
        ladder = climbed(Square(grid=grid))
        return {name: list(some) for name, some in ladder.board.outcomes.items()}

    found = choices()
    monkeypatch.setattr(ladders, "hoped", free)
    monkeypatch.setattr(Ladder, "_picks", as_before)
    assert choices() == found


def as_before(self, eligible, some, count, rng):
    """How a ladder picked before it knew of sizes."""
    names = [rung.name for rung in self.kept]
    if not np.isfinite(self.board.scores(names[0])).any():
        return [int(i) for i in rng.permutation(eligible)[:count]]
    outlook = ladders.Posterior(self.board, names, self.free, self.settings.draws, rng).outlook
    best = max(outlook[0, self.board.scored(self.full.name)], default=0.0)
    costs = self.prices.logs(self.board.features(self.free))
    return ladders.improving(outlook, eligible, count, best, costs[eligible])


class Blind(Listed):
    """Short trainings of 6 seconds that say nothing; all full trainings are equal, and nothing is proved."""

    def score(self, config, part="val", fidelity=None):
        return by_chance(config) if fidelity else 0.5


@pytest.mark.parametrize("kind", ["images", "graphs"])
def test_tasks_of_images_and_graphs_try_large_networks_first(kind, monkeypatch):
    images = kind == "images"
    task = hcdc.ImageTask(hcdc.data("digits")) if images else hcdc.GraphTask(hcdc.data("embedded"))
    space = NASBench201() if images else NASBenchGraph()
    problem, every = TaskProblem(task, space, rungs=["short:12"], truth=Blind()), space.candidates()
    monkeypatch.setattr(problem, "candidates", lambda: every[:: len(every) // 400])
    places = tried(climbed(problem, 1200.0))
    assert len(places) > 10
    assert np.mean(np.array(places) < int(PART * 1200 / 6)) >= 0.8  # without the rule .72 on graphs
