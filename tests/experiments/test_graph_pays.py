"""The protocol ``graphs-pay`` on a graph of a few nodes, and its table."""

import sys

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.datasets import data
from hcdc.experiments import graph_pays, pay_replay, pay_search, pay_tables


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["graph_pays", *map(str, arguments)])
    graph_pays.main()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(graph_pays, "STEPS", 2)
    small = {"nodes": 1200, "entries": 6000, "features": 5, "classes": 3, "train": 400}
    monkeypatch.setattr(graph_pays, "REDDIT2", small)


def test_every_space_has_a_record_and_every_copy_a_row(quick, monkeypatch, tmp_path):
    out = tmp_path / "pays.jsonl"
    run(monkeypatch, "--dataset", "embedded", "--split", "60", "--steps", 1, "--out", out)
    run(monkeypatch, "--dataset", "generated", "--fraction", 0.5, "--steps", 1, "--out", out)
    found = list(records.read(out))
    assert [(r["dataset"], r["space"]) for r in found] == [
        (name, space) for name in ("embedded", "generated") for space in ("filters", "gcn")
    ]
    for r in found:
        assert 0 < r["short"] < r["full"]
        assert set(r["copies"]) == ({"random", "landscape"} if r["space"] == "filters" else {"random"})
        assert all(copy["trial"] > 0 for copy in r["copies"].values())
    assert found[2]["nodes"] == 600
    assert found[2]["train"] == 200
    rows = pay_tables.pays_table(found).splitlines()[2:]
    assert len(rows) == 6
    assert "generated, 50% of Reddit2's size" in rows[-1]
    assert pay_tables.pays_table([]).splitlines()[2:] == ["| not run |"]


def test_the_split_covers_every_labelled_node_once():
    whole = data("embedded")
    made = graph_pays.split(whole, "60")
    nodes = [*made.train.tolist(), *made.val.tolist(), *made.test.tolist()]
    assert sorted(nodes) == (whole.y >= 0).nonzero().flatten().tolist()
    assert len(made.train) == int(0.6 * len(nodes))
    assert graph_pays.split(whole, "own") is whole


def test_a_copy_pays_once_it_has_saved_what_it_took():
    assert graph_pays.break_even(10.0, 1.0, 3.0) == 5
    assert graph_pays.break_even(0.0, 1.0, 3.0) == 1
    assert graph_pays.break_even(10.0, 3.0, 3.0) is None


def test_an_unknown_split_is_refused(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="--split"):
        run(monkeypatch, "--dataset", "embedded", "--split", "10", "--out", tmp_path / "o.jsonl")


def test_as_many_seconds_buy_fewer_full_trainings():
    scores = np.arange(10.0)
    copy = pay_replay.Way(-scores, np.full(10, 0.1), once=2.0)  # ranks the wrong way round
    full = pay_replay.Way(scores, np.ones(10))
    found = pay_replay.compared([copy], {"full": full}, scores / 10)
    assert found["seconds"] == pytest.approx(2 + 1 + 1)
    assert found["ways"]["copy"]["test"] == 0
    assert found["ways"]["copy"]["trials"] == 10
    assert found["ways"]["full"]["trials"] == 4
    assert 0.6 < found["ways"]["full"]["test"] < 0.9


def test_picks_of_a_pool_have_a_row_each(monkeypatch, tmp_path):
    pool, out = tmp_path / "pool.jsonl", tmp_path / "picks.jsonl"
    rungs = {"copy:0": 0.1, "short:0.111": 0.1, "full": 1.0}
    for number in range(6):
        line = {"protocol": "physics-pool", "seed": 0, "space": "gnns", "test": number / 10}
        val = dict.fromkeys(rungs, number / 10)
        records.append(pool, {**line, "val": val, "seconds": rungs})
    monkeypatch.setattr(pay_replay, "DRAWS", 20)
    monkeypatch.setattr(sys, "argv", ["pay_replay", "--pool", str(pool), "--out", str(out)])
    pay_replay.main()
    rows = pay_tables.picks_table(list(records.read(out))).splitlines()[2:]
    assert len(rows) == 3
    assert "random 5 % | 6 of 6 | 50.00 [50.00, 50.00]" in rows[0]
    assert pay_tables.picks_table([]).splitlines()[2:] == ["| not run |"]


def test_a_search_spends_alike_on_copies_and_elsewhere(monkeypatch, tmp_path):
    out = tmp_path / "picks.jsonl"
    monkeypatch.setattr(pay_search, "STEPS", 10)
    arguments = ["--dataset", "embedded", "--trials", "12", "--seeds", "3", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["pay_search", *arguments])
    pay_search.main()
    (found,) = records.read(out)
    assert (found["seed"], found["trials"], found["copy"]) == (3, 12, "random")
    assert set(found["ways"]) == {"copy", "short:0.1", "full"}
    assert found["ways"]["copy"]["trials"] == 12
    assert all(0 < way["test"] < 1 for way in found["ways"].values())
    assert found["scores"]["full"][:2] != found["scores"]["copy"][:2]
