"""Protocol ``search-trust``: what a search reports beside the truth, and the table of it."""

import pytest
from scipy import stats

from hcdc.core import records
from hcdc.experiments import search_trust
from hcdc.experiments.search_pools import open_pool
from hcdc.experiments.tables import table


@pytest.fixture(scope="module")
def pool():
    return open_pool("resnet")


def test_rows_compare_neighbouring_rungs_over_all_candidates(pool, tmp_path):
    out = tmp_path / "found.jsonl"
    for _ in range(2):  # the second run has nothing to do
        search_trust.run(pool, [19.0], [3], out)
    (record,) = records.read(out)
    assert (record["pool"], record["budget"], record["seed"]) == ("resnet", 19.0, 3)
    assert record["environment"]["device"]
    rows = {row["rung"]: row for row in record["stand_ins"]}
    assert "short:0.037" not in rows  # which the ladder does not climb
    last = rows["short:0.111"]
    known = list(records.read("records/pools/resnet.jsonl"))
    scores = [[r["val"][name] for r in known] for name in ("short:0.111", last["against"])]
    assert last["truth"] == pytest.approx(stats.spearmanr(*scores).statistic, abs=1e-4)
    assert all(row["probes"] <= row["scored"] <= len(known) for row in rows.values())


def row(truth, interval, verdict="keep open", against="full", **more):
    return {"rung": "a", "against": against, "probes": 6, "verdict": verdict, "spearman": 0.5,
            "interval": interval, "truth": truth, "scored": 9, **more}  # fmt: skip


def test_the_table_counts_intervals_that_hold_and_verdicts():
    first = [row(0.95, [0.9, 1.0], "trust", of_all_scored=[0.2, 0.4]), row(0.5, [0.6, 0.9], against="short")]
    second = [row(0.6, [0.7, 0.9], "trust", of_all_scored=[0.5, 0.7]), row(0.92, [-1.0, 1.0])]
    made = [
        {
            "protocol": "search-trust",
            "pool": "lcbench",
            "table": "1",
            "budget": 1800.0,
            "seed": k,
            "stand_ins": s,
        }
        for k, s in enumerate((first, second))
    ]
    lines = table("search-trust", made).splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells == [
        ["LCBench, 1800 s", "the next stand-in", "1", "6", "0 % / 0.30", "-", "-", "-"],
        ["LCBench, 1800 s", "full trainings", "3", "6", "67 % / 0.20", "50 %", "50 %", "50 % of 2"],
        [
            "all of these with at least 5 audits",
            "either",
            "4",
            "6",
            "50 % / 0.25",
            "50 %",
            "50 %",
            "50 % of 2",
        ],
    ]
