"""What a search says about its rungs: trust from audit samples alone, agreement by dimension, cost."""

from __future__ import annotations

import numpy as np
import pytest
from tests.search.problems import Mistaken, Square, Three

from hcdc.core.found import Found
from hcdc.core.trusted import DIMENSION_VERDICTS, VERDICTS
from hcdc.search import Ladder, LadderSettings
from hcdc.search._audits import by_dimension, step_length
from hcdc.search._summary import summary

MANY = LadderSettings(audits=32, full_audits=32)


@pytest.fixture(scope="module")
def three():
    ladder = Ladder(Three(), 1200.0)
    return ladder, ladder.climb()


def test_each_rung_is_measured_against_the_next_and_only_the_last_against_full(three):
    ladder, found = three
    assert {name: trust.against for name, trust in found.trust.items()} == {"cheap": "short", "short": "full"}
    for name, trust in found.trust.items():
        rung = found.rung(name)
        assert trust.uniform
        assert trust.verdict in VERDICTS
        assert trust.probes == rung.audits == len(ladder.audits[name])
        assert (trust.spearman, tuple(trust.interval)) == (rung.spearman, tuple(rung.interval))
        assert trust.candidates == rung.candidates > trust.probes
    assert "full" not in found.trust


def test_promoted_candidates_never_measure_trust(three):
    """Without the rung between, only the part of the audit sample that was meant for the full rung counts."""
    ladder, _ = three
    audited = ladder.audits["cheap"]
    chosen = [i for i in audited if i in ladder.board.outcomes["full"] and i not in ladder.audits["short"]]
    ladder.dropped["short"] = "for this test"
    try:
        above, sample = ladder.audited(ladder.paid[0])
        count = ladder.agreement(ladder.paid[0])[2]
    finally:
        del ladder.dropped["short"]
    assert above == "full"
    assert set(sample) <= set(audited)
    assert not set(sample) & set(chosen)
    assert count == len(sample)


def test_a_dropped_rung_says_what_was_measured():
    ladder = Ladder(Three(cheap_noise=1e6), 1200.0)
    ladder.climb()
    ladder.dropped["cheap"] = "did not earn its seconds"
    report = summary(ladder).rung("cheap")
    assert (report.pays, report.note) == (False, "did not earn its seconds")
    assert report.trust.against == ladder.audited(ladder.paid[0])[0]
    assert report.interval[0] < 0.5


def test_cost_says_where_the_seconds_went(three):
    ladder, found = three
    cost = found.cost
    assert cost.total == found.seconds == pytest.approx(sum(cost.rungs.values()) + cost.overhead)
    assert cost.budget == 1200.0
    assert cost.audits == 5.0 * len(ladder.audits["cheap"]) + 20.0 * len(ladder.audits["short"])
    assert cost.preparing == 0.0
    assert cost.overhead >= 0


def test_the_uniform_full_scores_are_those_of_the_audit_sample(three):
    ladder, found = three
    outcomes = ladder.board.outcomes["full"]
    assert [tuple(pair) for pair in found.uniform] == [
        (20.0, outcomes[i].score) for i in ladder.audits["short"]
    ]


def test_found_reads_its_own_document_and_older_ones(three):
    _, found = three
    document = found.to_json()
    assert document["cost"]["total"] == found.seconds
    again = Found.from_json(document)
    assert again.to_json() == document
    assert again.trust["short"].verdict == found.trust["short"].verdict
    for key in ("best", "score", "interval", "seconds", "full_trainings"):
        assert key in document
    for rung in document["rungs"]:
        assert {"name", "candidates", "seconds", "spearman", "interval"} <= rung.keys()
        for key in ("trust", "once", "audit_seconds"):
            del rung[key]
    del document["cost"], document["uniform"]
    assert Found.from_json(document).trust == {}
    assert Found.from_json(document).best == found.best


def test_few_audits_leave_dimensions_unknown(three):
    _, found = three
    dimensions = found.trust["short"].dimensions
    assert [d.name for d in dimensions] == ["x", "y"]
    assert all(d.verdict in DIMENSION_VERDICTS for d in dimensions)
    assert {d.verdict for d in dimensions} == {"unknown"}


@pytest.mark.parametrize(("budget", "audits"), [(1800.0, 6), (5400.0, 16)])
def test_many_full_trainings_can_trust_the_last_rung(budget, audits):
    """With 16 audits, which then take 6 % of the budget, a search can say "trust" and judge dimensions."""

    class Batched(Square):
        def __init__(self):
            super().__init__()
            self.rungs[-1].batch = 64

    ladder = Ladder(Batched(), budget, settings=LadderSettings(waves=2, pool=200, draws=16))
    trust = ladder.climb().trust["cheap"]
    assert trust.probes == audits
    assert trust.verdict == ("trust" if audits == 16 else "keep open")
    assert {d.verdict == "unknown" for d in trust.dimensions} == {audits < 12}


def test_a_dimension_that_a_rung_gets_wrong_is_kept_open():
    class Opposite(Square):
        """The cheap rung likes what the truth dislikes in y."""

        def __init__(self):
            super().__init__(cheap_noise=0.02)
            self.rungs[0].truth = lambda c: -((c["x"] - 0.3) ** 2) + (c["y"] - 0.7) ** 2

    ladder = Ladder(Opposite(), 3000.0, settings=MANY)
    trust = ladder.climb().trust["cheap"]
    assert trust.dimension("y").tau < 0
    assert trust.dimension("y").verdict == "keep open"
    assert trust.dimension("x").tau > 0.7
    assert trust.dimension("x").verdict != "keep open"


def test_promotion_spreads_over_a_dimension_that_a_rung_gets_wrong():
    """The top of the cheap rung is of kind "a" alone."""
    promoted, best, top = [], [], []
    for seed in range(3):
        ladder = Ladder(Mistaken(), 2500.0, seed, settings=MANY)
        best.append(ladder.climb().best["kind"])
        kinds, scores = [c["kind"] for c in ladder.board.configs], ladder.board.scores("cheap")
        promoted += [kinds[i] for i in ladder.board.outcomes["full"] if i not in ladder.audits["cheap"]]
        top += [kinds[i] for i in np.argsort(-np.nan_to_num(scores, nan=-9.0))[:8]]
    assert top.count("a") > 0.8 * len(top)
    assert promoted.count("a") < 0.5 * len(promoted)
    assert set(promoted) == set("abcd")
    assert best.count("b") >= 2


def test_the_length_of_a_step_is_a_group():
    configs = [{"lr": 0.1, "batch_size": 32, "momentum": 0.9}, {"lr": 1.0, "batch_size": 64, "momentum": 0.5}]
    ((name, values),) = step_length(configs).items()
    assert name == "lr / batch_size / (1 - momentum)"
    np.testing.assert_allclose(np.exp(values), [0.1 / 32 / 0.1, 1.0 / 64 / 0.5])
    assert step_length([{"lr": 0.1}, {"lr": 0.2}]) == {}
    assert step_length([{"batch": 32}, {"batch": 64}]) == {}
    assert step_length([{"lr": 0.1, "momentum": 0.9}, {"lr": 0.2, "momentum": 0.9}]) == {}
    assert step_length([{"lr": "auto", "batch": 32}, {"lr": "none", "batch": 64}]) == {}
    ((name, values),) = step_length([*({**c, "momentum": 0.9} for c in configs), {"lr": 0.5}]).items()
    assert name == "lr / batch_size"
    assert np.isfinite(values).all()


def test_a_group_is_judged_beside_its_parts():
    rng = np.random.default_rng(0)
    configs = [
        {"lr": float(10 ** rng.uniform(-3, 0)), "batch": int(2 ** rng.integers(4, 9))} for _ in range(200)
    ]
    described = {name: np.log([c[name] for c in configs]) for name in ("lr", "batch")}
    score = -((np.log([c["lr"] / c["batch"] for c in configs]) + 7) ** 2)
    found = by_dimension(described, configs, score, range(60), score[:60], 0)
    assert [d.name for d in found] == ["lr", "batch", "lr / batch"]
    assert found[2].verdict == "choose here"


def test_dimensions_that_do_not_vary_are_left_out():
    described = {"x": np.arange(20.0), "y": np.ones(20), "z": np.full(20, np.nan)}
    found = by_dimension(described, [{}] * 20, np.arange(20.0), range(12), np.arange(12.0), 0)
    assert [d.name for d in found] == ["x"]
    assert by_dimension(described, [{}] * 20, np.arange(20.0), range(4), np.arange(4.0), 0) == []
