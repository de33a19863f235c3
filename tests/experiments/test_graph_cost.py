"""The protocol ``graphs-cost`` on a graph of a few nodes: truth from a record, one record per copy."""

import functools

import numpy as np
import pytest
from scipy import sparse, stats

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.experiments import graph_cost, graph_tables
from hcdc.spaces import PolynomialFilter
from recipes import change_recipes

QUICK = {"steps": 4, "check": 1, "lr": 0.05, "iterations": 1}
JUDGES = 6


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A graph of 80 nodes in two blocks, recipes of two steps, and a record of filters-80."""
    change_recipes(monkeypatch, functools.partial(Recipe, steps=2))
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    link = np.triu(rng.random((80, 80)) < np.where(y[:, None] == y[None], 0.15, 0.03), 1)
    adj = sparse.csr_matrix((link | link.T).astype(np.float32))
    graph, known = tmp_path / "blocks.npz", tmp_path / "known.jsonl"
    np.savez(
        graph, adj_data=adj.data, adj_indices=adj.indices, adj_indptr=adj.indptr,
        adj_shape=np.asarray(adj.shape), attr_matrix=rng.random((80, 6)).astype(np.float32), labels=y,
    )  # fmt: skip
    rival = {"name": "one-seed-full", "description": "one", "spearman": 0.9, "test_spearman": 0.8}
    told = {"protocol": "filters-80", "label": "hcdc", "dataset": "blocks", "candidates": JUDGES}
    truth = np.linspace(0.5, 0.9, JUDGES).tolist()
    for judge in (7, 8):
        scores = truth if judge == 7 else truth[::-1]
        more = {"judge_seed": judge, "truth": scores, "test": scores[::-1], "rivals": [rival]}
        records.append(known, {**told, **more})
    return graph, known


def protocol(files, **arguments):
    graph, known = files
    out = graph.with_name("records.jsonl")
    given = {"seeds": [0], "judges": [7], "budgets": [8], "objectives": ["both"], **arguments}
    graph_cost.run(str(graph), 6, known=known, out=out, options=QUICK, **given)
    return list(records.read(out))


def test_there_is_a_record_per_copy(files):
    found = protocol(files, budgets=[4, 8], objectives=["both", "values", "aligned"])
    names = [(r["objective"], r["trainings"]) for r in found]
    assert names == [(o, n) for o in ("both", "values", "aligned") for n in (4, 8)]
    for record in found:
        assert record["protocol"] == "graphs-cost"
        assert (record["seed"], record["judge_seed"], record["candidates"]) == (0, 7, JUDGES)
        assert record["making"]["full_trainings"] == record["trainings"]
        assert record["rivals"]["one-seed-full"]["spearman"] == 0.9
        assert record["cpu_seconds"] > 0
    assert len({tuple(r["proxy"]) for r in found}) > 1, "all copies rank alike"


def test_copies_are_ranked_against_the_recorded_truth(files):
    first, second = protocol(files, seeds=[0, 0], judges=[7, 8])
    for record, truth in ((first, np.arange(JUDGES)), (second, -np.arange(JUDGES))):
        assert record["spearman"] == pytest.approx(stats.spearmanr(record["proxy"], truth)[0], abs=1e-4)
        assert record["test_spearman"] == pytest.approx(-record["spearman"], abs=1e-4)


def test_candidates_are_those_of_the_recorded_seed(files, monkeypatch):
    asked = []
    plain = graph_cost.evaluate

    def watched(*given, **more):
        asked.append(more["candidates"])
        return plain(*given, **more)

    monkeypatch.setattr(graph_cost, "evaluate", watched)
    protocol(files)
    assert asked == [PolynomialFilter().sample(JUDGES, numpy_stream(7, "judge"))]


def test_budgets_are_spent_exactly():
    for trainings in (4, 8, 16, 32, 64):
        spent = graph_cost.budget(trainings)
        assert spent["trajectories"] * spent["points"] + spent["holdout"] == trainings
        assert spent["holdout"] >= 2
    assert graph_cost.budget(192) == {}
    with pytest.raises(InputError, match="at least 4 trainings"):
        graph_cost.budget(3)


def test_unknown_candidates_are_refused(files):
    with pytest.raises(InputError, match="no record of filters-80 with label 'hcdc' for blocks, seed 9"):
        protocol(files, judges=[9])
    with pytest.raises(InputError, match="give one for each"):
        protocol(files, judges=[7, 8])


def test_the_table_has_a_row_per_number_of_trainings(files):
    found = protocol(files, budgets=[4, 8], objectives=["both", "aligned"])
    lines = graph_tables.trainings_table(found).splitlines()
    assert len(lines) == 2 + 3
    assert lines[2].startswith("| 4 |")
    assert lines[3].startswith("| 8 |")
    assert "(1 of 5 seeds)" in lines[3]
    assert "one" in lines[4]
