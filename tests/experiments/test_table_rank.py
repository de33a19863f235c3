"""The protocol ``tables-rank`` at toy size, and its tables."""

import functools

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.datasets import data
from hcdc.experiments import table_rank
from hcdc.experiments.flights import COLUMNS, split
from hcdc.experiments.table_rank_tables import agreement_table, by_test_table, cost_table, gain_table
from recipes import change_recipes

QUICK = {
    **{way: {"trajectories": 5, "holdout": 2, "steps": 2, "iterations": 1} for way in ("aligned", "both")},
    **{way: {"probes": 5} for way in ("weighted", "probes")},
}
HCDC = {"penalties": 4, "network": 2, "trees": 1}


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """300 rows, few trees and recipes of two steps."""
    change_recipes(monkeypatch, functools.partial(Recipe, steps=2))
    monkeypatch.setattr(table_rank, "TREES", 2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    rows = data((x, (x[:, 0] + 0.3 * rng.normal(size=300) > 0).astype(np.int64)))
    monkeypatch.setattr(table_rank, "table", lambda name: rows)


@pytest.mark.parametrize("name", ["penalties-breast_cancer", "network-breast_cancer", "trees-breast_cancer"])
def test_every_way_is_judged_beside_random_rows(name, tmp_path):
    out = tmp_path / "records.jsonl"
    table_rank.run([name], [3], out, candidates=6, changes=QUICK)
    (found,) = records.read(out)
    assert (found["protocol"], found["seed"], found["candidates"]) == ("tables-rank", 3, 6)
    assert len(found["truth"]) == len(found["test"]) == 6
    rows = found["rows"]
    assert sum(row.startswith("hcdc-") for row in rows) == HCDC[found["search"]]
    assert {"random-val", "real-val", "random-5%", "random-10%", "random-25%", "ridge-weighted"} <= set(rows)
    assert all(len(row["proxy"]) == 6 for row in rows.values())
    assert all(row["once_seconds"] >= 0 and row["candidates_seconds"] >= 0 for row in rows.values())
    assert rows["hcdc-weighted"]["once_seconds"] > 0
    for write in (agreement_table, by_test_table, gain_table, cost_table):
        text = write([found, {**found, "seed": 4}])
        assert text.count("17 of 180 rows") + text.count("34 of 180 rows") == 1


def test_a_coreset_adds_rows_to_its_seed(tmp_path):
    """The candidates and their truth are those of the random rows."""
    out = tmp_path / "records.jsonl"
    for methods in (["random"], ["kcenter", "herding"]):
        table_rank.run(["trees-breast_cancer"], [3], out, candidates=6, changes=QUICK, train_methods=methods)
    first, *others = records.read(out)
    assert [set(one["rows"]) for one in others] == [
        {f"{name}-weighted", f"{name}-real-val", f"{name}-real-val-loss"} for name in ("kcenter", "herding")
    ]
    assert all(one["truth"] == first["truth"] for one in others)
    proxies = [one["rows"][row]["proxy"] for one, row in zip(
        (first, *others), ("real-val-loss", "kcenter-real-val-loss", "herding-real-val-loss")
    )]  # fmt: skip
    assert proxies[0] != proxies[1] != proxies[2]
    text = gain_table([first, *others])
    assert "`weighted` with Herding rows minus with random rows as S_train" in text
    table = agreement_table([first, *others])
    assert "K-Center rows, all validation rows, by loss" in table
    assert agreement_table([*others, first]) == table


def test_a_gain_is_that_over_the_better_of_two_rivals():
    def one(seed, own, accuracy, loss):
        named = {"hcdc-weighted": own, "random-val": accuracy, "random-val-loss": loss}
        rows = {name: {"spearman": value} for name, value in named.items()}
        return {
            "search": "trees",
            "dataset": "t",
            "seed": seed,
            "train_size": 1,
            "train_rows": 9,
            "rows": rows,
        }

    text = gain_table([one(0, 0.8, 0.1, 0.5), one(1, 0.6, 0.1, None), one(1, 0.6, 0.1, 0.3)])
    assert (
        "| `weighted` minus random rows of the same number, the better metric | +0.30 [+0.30, +0.30] |"
        in text
    )


def test_unknown_cases_are_refused(tmp_path):
    with pytest.raises(InputError, match="--cases"):
        table_rank.run(["penalties-digit"], [0], tmp_path / "records.jsonl")


def test_flights_have_no_missing_numbers(monkeypatch):
    monkeypatch.undo()
    x = np.random.default_rng(0).normal(size=(1500, len(COLUMNS)))
    x[::3, 4] = np.nan
    monkeypatch.setattr(table_rank, "read_flights", lambda late: split(x, (x[:, 0] > late).astype(np.int64)))
    found = table_rank.table("flights1k")
    assert len(found.train) + len(found.val) + len(found.test) == 1000
    assert bool(found.train.x.isfinite().all())
