"""The protocol ``filters-80`` on a graph of a few nodes: one record a run, appended, whatever it shows."""

import functools
import json
import sys

import numpy as np
import pytest
from scipy import sparse

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.experiments import filters80
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


def protocol(graph, **arguments):
    out = graph.with_name("records.jsonl")
    given = {
        "sizes": [6],
        "seeds": [0],
        "methods": ["hcdc"],
        "candidates": 4,
        "options": OPTIONS,
        **arguments,
    }
    filters80.run(str(graph), out=out, cache=str(graph.with_name("cache")), **given)
    return list(records.read(out))


def test_one_record_a_run_is_appended(graph):
    found = protocol(graph, methods=["hcdc", "random"], seeds=[3])
    assert [(r["label"], r["seed"]) for r in found] == [("hcdc", 3), ("random", 3)]
    for record in found:
        assert record["protocol"] == "filters-80"
        assert (record["train_size"], record["candidates"]) == (6, 4)
        assert record["judge_seed"] == record["seed"]
        assert record["environment"]["torch"]
        assert record["making"]["condense_seconds"] > 0
        assert len(record["proxy"]) == len(record["truth"]) == 4
        assert bool(record["rivals"]) == (record["label"] == "hcdc")
        assert all(len(rival["proxy"]) == 4 for rival in record["rivals"])
        assert len(record["repeats"]["loss"]) == 4
    assert found[0]["making"]["history"]
    assert len(protocol(graph, methods=["random"])) == 3  # every attempt stays


def test_copies_are_kept_and_used_again(graph):
    copies = graph.with_name("copies")
    (one,) = protocol(graph, methods=["random"], copies=copies)
    (file,) = copies.glob("random-same-6-0-*.hcdc")
    made = file.stat().st_mtime_ns
    _, two = protocol(graph, methods=["random"], copies=copies)
    assert file.stat().st_mtime_ns == made
    assert one["proxy"] == two["proxy"]
    assert one["making"].items() <= two["making"].items()


def test_an_unknown_method_is_refused_before_any_work(graph):
    with pytest.raises(InputError, match="--methods 'hcd' is not known; did you mean 'hcdc'"):
        protocol(graph, methods=["hcd"])
    assert not graph.with_name("records.jsonl").exists()


def test_the_command(graph, monkeypatch):
    out = graph.with_name("records.jsonl")
    command = [
        "filters80", "--dataset", str(graph), "--sizes", "6,8", "--seeds", "4", "--methods", "random",
        "--out", str(out), "--device", "cpu", "--candidates", "3", "--options", json.dumps(OPTIONS),
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    filters80.main()
    assert [(r["train_size"], r["seed"], r["candidates"]) for r in records.read(out)] == [
        (6, 4, 3),
        (8, 4, 3),
    ]
