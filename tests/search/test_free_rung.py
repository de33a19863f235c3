"""The free rung: training-free scores of every candidate of a task, before anything is trained."""

import dataclasses

import numpy as np
import pytest
from tests.search.problems import Square

import hcdc
from hcdc import InputError
from hcdc.core.ranks import spearman
from hcdc.core.told import found_lines
from hcdc.reporting import write_search_report
from hcdc.search import Found, LadderSettings, LineStore, Outcome, Rung, Store, TaskProblem
from hcdc.search._free import FreeRung
from hcdc.search._ladder import Ladder
from hcdc.search._plan import planned
from hcdc.spaces import Finite, GNNZoo, NASBench201, PolynomialFilter, Training
from hcdc.training.free import free_scores
from recipes import change_recipes
from search_prices import priced


class Few(NASBench201):
    """Every 200th cell."""

    def candidates(self):
        return super().candidates()[::200]


CELLS = Few(channels=4)


@pytest.fixture
def digits(monkeypatch):
    """Trainings of a moment, which count as ten seconds; a free score counts as a hundredth of one."""
    change_recipes(monkeypatch, lambda **given: hcdc.Recipe(**{**given, "steps": 20}))
    priced(monkeypatch)
    real = FreeRung.run

    def run(self, configs, seed):
        for outcome in real(self, configs, seed):
            yield dataclasses.replace(outcome, seconds=0.1)

    monkeypatch.setattr(FreeRung, "run", run)
    return hcdc.ImageTask(hcdc.data("digits"))


def test_cells_are_searched_on_free_short_and_full(digits, quick, tmp_path):
    """The scores come from `free_scores`, cost what they took, and are measured against the next rung."""
    path = tmp_path / "s.jsonl"
    given = {"budget": 120, "rungs": "free,short:0.1", "storage": path}
    found = hcdc.search(digits, CELLS, **given)
    assert [rung.name for rung in found.rungs] == ["free", "short:0.1", "full"]
    free, short, full = found.rungs
    every = CELLS.candidates()
    assert free.candidates == len(every) > short.candidates >= full.candidates > 1
    assert (free.failed, free.note) == (0, "")
    assert free.seconds == pytest.approx(0.1 * len(every))
    assert free.trust.against == "short:0.1"
    assert free.audits == free.trust.probes >= 6
    assert free.spearman == free.trust.spearman
    assert -1 <= free.interval[0] <= free.spearman <= free.interval[1] <= 1
    assert found.full_trainings * 10 < found.seconds <= 132
    assert f"all {short.candidates} candidates in full" in dict(found_lines(found))["cost"]

    kept, scores = LineStore(path), free_scores(digits, CELLS, every, ["jacov", "naswot", "synflow"])
    for place, config in enumerate(every):
        outcome = kept.outcome("free", 0, config)
        assert outcome.score == scores["jacov"][place]
        assert dict(outcome.values) == {name: scores[name][place] for name in ("naswot", "synflow")}
    assert hcdc.search(digits, CELLS, **given).to_json() == found.to_json()

    page = tmp_path / "page.html"
    pytest.importorskip("matplotlib")
    write_search_report(Found.from_json(found.to_json()), page)
    assert ">free<" in page.read_text()


def test_a_plan_counts_free_scores(digits):
    """With three cells of 24 in full, the scores of all and a few short trainings come before them."""
    found = hcdc.plan(digits, CELLS, rungs=["free", "short:0.1"], budget="150s")
    assert [rung.name for rung in found.rungs] == ["free", "short:0.1", "full"]
    assert found.rungs[0].price == pytest.approx(0.1)
    assert found.pays
    assert found.rungs[0].candidates == len(CELLS.candidates())
    assert found.seconds["free"] == pytest.approx(0.1 * len(CELLS.candidates()))
    assert sum(found.seconds.values()) <= 150


def test_a_plan_leaves_out_free_scores_that_cost_a_tenth_of_the_budget():
    prices, budget, size = {"short:0.1": 6.0, "full": 60.0}, 1800.0, 1000
    cheap = planned(prices, budget, size, free={"free": 0.17})
    assert (cheap.rungs[0].candidates, cheap.pays) == (1000, True)
    dear = planned(prices, budget, size, free={"free": 0.19})
    assert dear.rungs[0].candidates == 0
    assert dear.gain == planned(prices, budget, size).gain


def test_scores_are_chosen_by_name(digits):
    rung = TaskProblem(digits, CELLS, ["free:naswot+parameters", "short:0.1"]).rungs[0]
    assert (rung.name, rung.scores) == ("free:naswot+parameters", ["naswot", "parameters"])
    few = CELLS.candidates()[:2]
    expected = free_scores(digits, CELLS, few, rung.scores)
    for place, outcome in enumerate(rung.run(few, 0)):
        assert outcome.score == expected["naswot"][place]
        assert outcome.values == {"parameters": expected["parameters"][place]}


def test_graph_networks_have_the_scores_that_are_defined_for_them():
    task = hcdc.GraphTask(hcdc.data("embedded"))
    assert TaskProblem(task, GNNZoo(), ["free"]).rungs[0].scores == ["jacov", "naswot", "synflow"]


def fitted():
    rows = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    data = hcdc.data((rows, (rows[:, 0] > 0).astype(np.int64)))
    return hcdc.tasks.FittedTask(data, lambda config, x, y, seed: lambda rows: rows[:, :2])


def cells(model="space"):
    return hcdc.ImageTask(hcdc.data("digits"), model), CELLS


def graph(space):
    return hcdc.GraphTask(hcdc.data("embedded")), space


REFUSED = [
    (lambda: graph(PolynomialFilter()), "free", "space 'polynomial-filter' has endless ones"),
    (lambda: cells("convnet"), "free", "'convnet' is one network for all"),
    (lambda: (fitted(), Finite("depth", [1, 2])), "free", "this fitted task have no such score: Fit"),
    (cells, "free:aznas", "'aznas' compares all candidates at once"),
    (lambda: graph(GNNZoo()), "free:jacob", "did you mean 'jacov'"),
    (cells, "free,free", "each may appear once"),
]


@pytest.mark.parametrize(("made", "rung", "said"), REFUSED)
def test_what_has_no_free_scores_is_refused(made, rung, said):
    task, space = made()
    with pytest.raises(InputError, match=said):
        hcdc.search(task, space, rungs=f"{rung},short:0.1", budget="1s")


def test_spaces_of_training_settings_are_refused(digits):
    with pytest.raises(InputError, match="the networks of space 'training' differ in their training"):
        TaskProblem(digits, Training(["batch"]), ["free"])


def test_an_objective_has_no_free_scores():
    full = hcdc.FullData((np.zeros((4, 1)), np.arange(4) % 2), (np.zeros((4, 1)), np.arange(4) % 2))
    for call in (hcdc.search, hcdc.plan):
        with pytest.raises(InputError, match="rung 'free': training-free scores need the networks of a task"):
            call(lambda trial, data: 0.0, full, rungs=["free"])


# --- the ladder ---------------------------------------------------------------------------------------------


class Figures(Rung):
    """Free figures: the first tells little, the second tells the truth; some candidates have none."""

    name, share = "free", 0.0

    def __init__(self, seconds=0.01, undefined=lambda config: False):
        self.seconds, self.undefined = seconds, undefined

    def run(self, configs, seed):
        for c in configs:
            if self.undefined(c):
                yield Outcome(c, float("nan"), self.seconds, "failed", note="none here")
            else:
                yield Outcome(c, c["x"], self.seconds, values={"truth": Square.truth(c)})


class Grid(Square):
    """900 points; without a free rung nothing is known of them."""

    def __init__(self, free):
        super().__init__(grid=30)
        self.rungs = [free, *self.rungs]

    def features(self, configs):
        return np.zeros((len(configs), 1))


FEW = LadderSettings(waves=3, draws=24)


def climbed(problem):
    return Ladder(problem, 300, 0, Store(), FEW).climb()


def test_free_figures_guide_what_is_tried_first():
    """Without other features the cheap rung sees better candidates than random ones, seed by seed."""

    def mean_tried(problem, seed):
        store = Store()
        Ladder(problem, 150, seed, store, FEW).climb()
        told = [outcome.score for (rung, *_), outcome in store._outcomes.items() if rung == "cheap"]
        return np.mean(told)

    blind = Figures(undefined=lambda config: True)
    gains = [mean_tried(Grid(Figures()), seed) - mean_tried(Grid(blind), seed) for seed in range(3)]
    assert min(gains) > 0


def test_undefined_figures_rank_last_and_do_no_harm():
    found = climbed(Grid(Figures(undefined=lambda c: c["x"] > 0.9)))
    free = found.rung("free")
    assert (free.candidates, free.note) == (900, "")
    assert free.failed == 90
    assert found.best["x"] <= 0.9


def test_figures_that_are_never_defined_are_dropped():
    found = climbed(Grid(Figures(undefined=lambda c: True)))
    free = found.rung("free")
    assert free.candidates < 900
    assert free.note.startswith("the first five candidates all failed: none here")
    assert found.full_trainings > 3


def test_a_free_rung_that_is_too_expensive_is_dropped():
    found = climbed(Grid(Figures(seconds=0.04)))
    assert found.rung("free").candidates == 2
    assert found.rung("free").note == "too expensive: all candidates would take 36 s"
    assert found.rung("free").spearman is None


def test_agreement_of_free_figures_is_that_of_the_sum_of_their_ranks():
    """Checked against a count by hand on the audit sample."""
    problem = Grid(Figures())
    ladder = Ladder(problem, 300, 0, Store(), FEW)
    found = ladder.climb()
    known, sample = ladder.board.outcomes, ladder.sample
    audited = [i for i in sample if i in known["cheap"]]
    points = [ladder.board.configs[i] for i in range(900)]
    rank = {}
    for values in ([c["x"] for c in points], [Square.truth(c) for c in points]):
        for i in audited:
            below = sum(v < values[i] for v in values) + 0.5 * sum(v == values[i] for v in values)
            rank[i] = rank.get(i, 0.0) + below
    expected = spearman([known["cheap"][i].score for i in audited], [rank[i] for i in audited])
    assert found.rung("free").audits == len(audited)
    assert found.rung("free").spearman == pytest.approx(expected, abs=0.05)
