"""The protocol ``filters-80`` on a graph of a few nodes: one record a unit, appended, whatever it shows."""

import functools

import numpy as np
import pytest
from scipy import sparse

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.experiments.reproductions import reproduce
from hcdc.experiments.reproductions.filters_80 import Filters80
from recipes import change_recipes

OPTIONS = {"trajectories": 3, "points": 1, "holdout": 2, "steps": 2, "iterations": 1}


@pytest.fixture(autouse=True)
def graph(tmp_path, monkeypatch):
    """A file with 80 nodes in two blocks, and recipes of two steps."""
    change_recipes(monkeypatch, functools.partial(Recipe, steps=2))
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    link = np.triu(rng.random((80, 80)) < np.where(y[:, None] == y[None], 0.15, 0.03), 1)
    adj = sparse.csr_matrix((link | link.T).astype(np.float32))
    file = tmp_path / "blocks.npz"
    words = rng.random((80, 6)).astype(np.float32)
    np.savez(
        file, adj_data=adj.data, adj_indices=adj.indices, adj_indptr=adj.indptr,
        adj_shape=np.asarray(adj.shape), attr_matrix=words, labels=y,
    )  # fmt: skip
    return file


def protocol(graph, out="records.jsonl", seeds=(0,), **changes):
    file = graph.with_name(out)
    given = {"graphs": f"{graph}:6", "methods": ["hcdc"], "candidates": 4, "options": OPTIONS, **changes}
    reproduce(Filters80.at("paper", given), seeds, file)
    return list(records.read(file))


def test_one_record_a_unit_is_appended(graph):
    found = protocol(graph, methods=["hcdc", "random"], seeds=[3])
    assert [(r["label"], r["seed"]) for r in found] == [("hcdc", 3), ("random", 3)]
    for record in found:
        assert record["protocol"] == "filters-80"
        assert (record["train_size"], record["candidates"]) == (6, 4)
        assert record["judge_seed"] == record["seed"] == record["unit"]["seed"]
        assert record["environment"]["torch"]
        assert record["making"]["condense_seconds"] > 0
        assert len(record["proxy"]) == len(record["truth"]) == 4
        assert bool(record["rivals"]) == (record["label"] == "hcdc")
        assert all(len(rival["proxy"]) == 4 for rival in record["rivals"])
        assert len(record["repeats"]["loss"]) == 4
    assert found[0]["making"]["history"]
    assert len(protocol(graph, methods=["random"])) == 3
    assert len(protocol(graph, methods=["random"])) == 3  # a finished unit is not run again
    assert len(protocol(graph, methods=["random"], candidates=5)) == 4  # another setting is another unit


def test_copies_are_kept_and_used_again(graph):
    (one,) = protocol(graph, methods=["random"])
    copies = graph.with_name("records-copies")
    (file,) = copies.glob("random-same-6-0-*.hcdc")
    made = file.stat().st_mtime_ns
    _, two = protocol(graph, methods=["random"], candidates=5)
    assert file.stat().st_mtime_ns == made
    assert one["making"]["condense_seconds"] == two["making"]["condense_seconds"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": ["hcd"]}, "--set methods 'hcd' is not known; did you mean 'hcdc'"),
        ({"graphs": "cora"}, "--set graphs=cora: give the data and the training nodes, e.g. cora:35"),
        ({"graphs": 3}, "--set graphs: give one or more"),
        ({"candidate": 3}, "'candidate' is not known; did you mean 'candidates'"),
        ({"options": {"step": 3}}, "'step' is not known; did you mean 'steps'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(graph, changes, said):
    with pytest.raises(InputError) as refused:
        protocol(graph, **changes)
    assert said in str(refused.value)
    assert not graph.with_name("records.jsonl").exists()


def test_the_table_has_the_papers_number_beside_ours():
    def record(label, seed, value):
        unit = {"dataset": "cora", "size": 35, "method": label, "seed": seed}
        figures = {"spearman": value, "selected_test_accuracy": 0.8}
        scores = {"truth": [1.0, 2.0, 3.0], "proxy": [1.0, 3.0, 2.0]}
        rivals = [{"name": "real-val", **figures, "calibration": 0.75}]
        return {"label": label, "unit": unit, "rivals": rivals, **figures, **scores}

    found = [record("hcdc", seed, 0.9 + seed / 1000) for seed in (0, 1, 2)]
    found += [record("random", seed, 0.5 + seed / 1000) for seed in (0, 1, 2)]
    rival = found[:3]
    table = Filters80.at("paper").table([{**r, "rivals": []} for r in found])
    assert [row[:4] for row in table.rows] == [
        ["cora:35", "HCDC", "0.90 ± 0.00 (3)", "0.80 ± .03"],
        ["cora:35", "Random", "0.50 ± 0.00 (3)", "0.29 ± .08"],
    ]
    assert [row[-1] for row in table.rows] == ["Corr. first; Perf. tied with Random", ""]
    rows = Filters80.at("paper").table(rival).rows
    assert rows[0][-1] == "Corr. tied with real-val; Perf. tied with real-val"
    assert [row[4] for row in rows] == ["0.67 ± 0.00 (3)", "0.75 ± 0.00 (3)"]  # computed, and as recorded


def test_a_rival_without_a_ranking_is_undefined_not_missing():
    flat = {"name": "parameter-count", "spearman": None, "selected_test_accuracy": None, "calibration": None}
    record = {"label": "hcdc", "unit": {"dataset": "cora", "size": 35, "method": "hcdc", "seed": 0}}
    record |= {
        "seed": 0,
        "spearman": 0.9,
        "selected_test_accuracy": 0.8,
        "calibration": 0.7,
        "rivals": [flat],
    }
    rows = Filters80.at("paper").table([record]).rows
    assert rows[1][1:] == ["parameter-count", "undefined", "", "undefined", "undefined", ""]
