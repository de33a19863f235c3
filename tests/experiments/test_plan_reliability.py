"""Protocol plan-reliability: which replays are compared, what is recorded, what the tables say."""

import math

import pytest

from hcdc.core import records
from hcdc.experiments import plan_reliability, plan_tables, search_pools, search_replay, tables
from hcdc.experiments.plan_reliability import PROTOCOL, cases, judged, stated
from hcdc.search import planned


def replay(method, score, seed, budget=100.0):
    told = {"protocol": search_replay.PROTOCOL, "pool": "resnet", "table": "", "budget": budget}
    return {**told, "method": method, "score": score, "seed": seed}


def test_only_cases_with_both_methods_are_compared():
    found = cases(
        [
            replay("ladder", 1.0, 0), replay("ladder", 2.0, 1), replay("random", None, 7),
            replay("tpe", 3.0, 0), replay("ladder", 1.0, 0, 50.0),
        ]
    )  # fmt: skip
    assert found == {("resnet", "", 100.0): {"ladder": [1.0, 2.0], "random": [-math.inf]}}


def test_the_share_counts_ties_half():
    plan = planned({"short": 1.0, "full": 10.0}, 300.0, math.inf)
    found = judged(plan, [1.0, 2.0], [1.0, 3.0])
    assert found["won"] == 0.375  # a tie, a win and two losses
    assert found["tied"] == 0.25
    expected = (plan.chance - 0.5) ** 2 + (plan.chance - 1) ** 2 + 2 * plan.chance**2
    assert found["brier"] == pytest.approx(expected / 4, abs=1e-4)


def test_a_plan_has_the_rungs_that_the_ladder_climbed():
    problem = search_pools.open_pool("resnet").problem("", 0)
    found = stated(problem, 20.0)
    assert [rung.name for rung in found.rungs] == ["copy", "short:0.111", "short:0.333", "full"]
    assert 0.5 < found.chance < 1


def test_records_hold_what_the_tables_read(tmp_path):
    replays, out = tmp_path / "replays.jsonl", tmp_path / "out.jsonl"
    for seed in range(3):
        for budget in (10.0, 20.0):
            records.append(replays, replay("ladder", 2.0 - (seed == 2), seed, budget))
            records.append(replays, replay("random", 1.5, seed, budget))
    plan_reliability.run([replays], out)
    found = list(records.read(out))
    assert [(r["protocol"], r["budget"], r["won"]) for r in found] == [
        (PROTOCOL, 10.0, 0.6667),
        (PROTOCOL, 20.0, 0.6667),
    ]
    text = tables.table("plan-reliability", found)
    assert "| all |" in text
    assert "always 0.67 instead | 0.67 | 0.67 | 2 | 1 | 0.222 |" in text
    assert tables.table("plan-reliability-pools", found).count("| resnet |") == 2


def test_a_changed_plan_is_judged_by_what_searches_did_before(tmp_path):
    plan = planned({"short": 1.0, "full": 10.0}, 300.0, math.inf)
    made = judged(plan, [1.0, 2.0], [1.0, 3.0])
    assert plan_reliability.restated(plan, {**made, "chance": 0.1, "brier": 0.9}) == pytest.approx(made)
    told = {"protocol": PROTOCOL, "pool": "resnet", "table": ""}
    for budget in (10.0, 20.0):
        records.append(tmp_path / "before.jsonl", {**told, "budget": budget, **made})
        records.append(tmp_path / "replays.jsonl", replay("ladder", 2.0, 0))
        records.append(tmp_path / "replays.jsonl", replay("random", 1.5, 0))
    plan_reliability.run(
        [tmp_path / "replays.jsonl"], tmp_path / "out.jsonl", earlier=[tmp_path / "before.jsonl"]
    )
    found = [(r["budget"], r["won"]) for r in records.read(tmp_path / "out.jsonl")]
    assert found == [(10.0, 0.375), (20.0, 0.375), (100.0, 1.0)]


def test_forecasts_are_told_by_rung():
    ratios = {"memory": 0.9, "price": {"short:0.1": 1.25, "full": 0.8}, "seconds": {}}
    record = {"benchmark": "plan", "case": "graph", "budget": 60.0, "ratios": ratios}
    text = plan_tables.forecast_table([record, {"benchmark": "other"}])
    assert "| embedded graph, filters | 60 | 0.90 | short:0.1 1.25, full 0.80 | - |" in text
