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
COMPANY = {**QUICK, "companions": 16}
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
        more = {
            "judge_seed": judge,
            "truth": scores,
            "test": scores[::-1],
            "rivals": [rival],
            "proxy": scores,
        }
        records.append(known, {**told, **more})
    return graph, known


def protocol(files, **arguments):
    graph, known = files
    out = graph.with_name("records.jsonl")
    given = {"seeds": [0], "judges": [7], "budgets": [8], "objectives": ["both"], **arguments}
    graph_cost.run(str(graph), 6, known=known, out=out, **{"options": QUICK, **given})
    return list(records.read(out))


def test_there_is_a_record_per_copy(files):
    found = protocol(files, budgets=[4, 8], objectives=["both", "values", "aligned"])
    names = [(r["objective"], r["trainings"]) for r in found]
    assert names == [(o, n) for o in ("both", "values", "aligned") for n in (8, 4)]
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


def test_copies_that_follow_a_landscape_share_trainings(files, monkeypatch):
    """One survey of the most trainings serves all; the copies are those of single runs."""
    made = []
    plain = graph_cost.Following.survey

    def survey(run, count, spread):
        made.append((count, spread))
        return plain(run, count, spread)

    monkeypatch.setattr(graph_cost.Following, "survey", survey)
    given = {"objectives": ["landscape", "landscape-random", "landscape-values"], "options": COMPANY}
    found = protocol(files, budgets=[5, 8], **given)
    assert made == [(8, 16), (8, 1)]
    assert [(r["objective"], r["trainings"]) for r in found] == [
        (objective, n) for objective in given["objectives"] for n in (8, 5)
    ]
    alone = protocol(files, budgets=[5], **given)[-3:]
    for shared, single in zip([found[1], found[3], found[5]], alone):
        assert shared["proxy"] == pytest.approx(single["proxy"], abs=1e-4)
        assert shared["process"] == pytest.approx(single["process"], abs=1e-4)
        assert shared["making"]["full_trainings"] == shared["trainings"]
        assert shared["cpu_seconds"] > 0
    assert len({str(r["process"]) for r in found[::2]}) == 3


def test_rivals_see_what_they_should(files):
    (record,) = protocol(files, objectives=["landscape"], options=COMPANY, budgets=[5])
    assert {"real-val", "one-seed-full"} <= record["rivals"].keys()
    assert record["recorded"] == {"spearman": 1.0, "test_spearman": -1.0}
    assert 0 < record["subset"]["spearman"] <= 1
    (all_of_them,) = protocol(files, budgets=[8], objectives=["aligned"])[1:]
    assert all_of_them["subset"]["spearman"] == 1
    assert all_of_them["process"] is None


def test_trainings_on_the_original_may_be_shorter(files):
    """Each length has trainings of its own, and the companions are shared."""
    given = {"objectives": ["landscape"], "options": COMPANY, "budgets": [5, 8]}
    found = protocol(files, lengths=[1.0, 0.5], **given)
    assert [(r["length"], r["trainings"]) for r in found] == [(1.0, 8), (1.0, 5), (0.5, 8), (0.5, 5)]
    alone = protocol(files, lengths=[0.5], **given)[-2:]
    for shared, single in zip(found[2:], alone):
        assert shared["process"] == pytest.approx(single["process"], abs=1e-4)
        assert shared["proxy"] == pytest.approx(single["proxy"], abs=1e-4)
        assert shared["subset"] is None
    assert found[0]["process"] != found[2]["process"]
    lines = graph_tables.trainings_table(found).splitlines()
    starts = [line.split("|")[1].strip() for line in lines[2:]]
    assert starts[:7] == ["5"] * 4 + ["5, 50 % of the steps"] * 3
    with pytest.raises(InputError, match="--lengths 2: give shares"):
        graph_cost.shares("--lengths", "2")
    assert graph_cost.shares("--lengths", "1,0.25") == [1, 0.25]


def test_the_table_has_a_row_per_number_of_trainings(files):
    found = protocol(files, budgets=[5, 8], objectives=["landscape"], options=COMPANY)
    lines = graph_tables.trainings_table(found).splitlines()
    assert lines[0].count("|") == 6
    starts = [line.split("|")[1].strip() for line in lines[2:]]
    assert starts == ["5"] * 4 + ["8"] * 4 + [""] * (len(starts) - 8)
    assert "**HCDC**" in lines[2]
    assert "(1 of 5 seeds)" in lines[2]
    assert any("`both`, recorded" in line and "1.000" in line for line in lines)
    assert "not run" in graph_tables.trainings_table([])
