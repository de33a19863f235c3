"""Cells ranked by a model: no ranking sees the results that judge it, fresh judges, costs, tables, edges."""

import dataclasses
import json

import numpy as np
import pytest
from tests.experiments.test_search_replay import cells as cells  # the tables of a made-up benchmark

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.ranks import spearman
from hcdc.experiments import cell_edges, cell_rank, cell_tables
from hcdc.experiments.cell_data import CellData
from hcdc.experiments.cell_rank import CELLS, COMPANIONS, ROWS, WITHOUT_COPY, Draw
from hcdc.experiments.nas201_tables import Clock
from hcdc.spaces import NASBench201, cell_string, operations

COPIED, JUDGED = 1500, 60


@pytest.fixture(scope="module")
def copy(cells, tmp_path_factory):
    """A copy of three sets, on which the first cells were trained; one of them diverged."""
    file, rng = tmp_path_factory.mktemp("copy") / "copy.jsonl", np.random.default_rng(0)
    lines = []
    for k, config in enumerate(NASBench201().candidates()[:COPIED]):
        good = operations(config["cell"]).count(3)
        loss = (2 - 0.1 * good + 0.1 * rng.normal(size=3)).round(4).tolist()
        loss[0] = None if k == 7 else loss[0]
        lines.append({"cell": config["cell"], "loss": loss, "score": [0.3 + 0.01 * good] * 3, "seconds": 0.3})
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return file


@pytest.fixture(scope="module")
def supernet(copy):
    """Scores by a supernet of the cells on the copy and of the one that diverged there."""
    file = copy.with_name("supernet.jsonl")
    lines = [{"train_seconds": 60.0, "score_seconds": 0.01 * COPIED}]
    for k, line in enumerate(records.read(copy)):
        good = operations(line["cell"]).count(3)
        lines.append({"cell": line["cell"], "loss": 2 - 0.1 * good + 1e-3 * k, "score": 0.5 + 0.01 * good})
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return file


@pytest.fixture(scope="module")
def data(cells, copy, supernet):
    return CellData.read(cells, copy, supernet=supernet)


def drawn(data, sets=(0, 2)):
    order = np.random.default_rng(3).permutation(np.flatnonzero(data.copied))
    return Draw(data, order[:JUDGED], order[JUDGED:], sets, 5)


def test_what_is_read(data):
    assert data.copied.sum() == COPIED - 1
    assert not data.copied[7]
    assert data.seconds == pytest.approx(0.3)
    assert data.structure.shape[1] == 16
    rows = np.arange(20)
    assert np.isfinite(data.one_shot.loss[:COPIED]).all()
    assert np.isnan(data.one_shot.loss[COPIED:]).all()
    assert data.one_shot.score_seconds == pytest.approx(0.01)
    runs = data.one_run(rows, np.random.default_rng(0))
    assert set(np.round(runs - data.val[rows], 2)) == {0.0, 0.25}


def test_promises_of_a_cell():
    def told(*numbers):
        return NASBench201().promises({"cell": cell_string(numbers)})

    assert told(3, 0, 0, 1, 3, 0) == {"skip_path": 1.0, "no_pool_path": 0.0}
    assert told(1, 0, 0, 3, 4, 0) == {"skip_path": 0.0, "no_pool_path": -1.0}  # skip, then pool
    assert told(3, 0, 0, 3, 4, 0) == {"skip_path": 0.0, "no_pool_path": 0.0}


@pytest.mark.parametrize("name", ROWS)
def test_no_ranking_sees_the_results_that_judge_it(data, name):
    """Results of the judging cells are changed; only rankings that train every candidate may notice."""
    draw, rng = drawn(data), np.random.default_rng(0)
    scores = ROWS[name].rank(draw)
    assert scores.shape == (JUDGED,)
    assert np.isfinite(scores).all()

    def changed(*parts):
        made = {part: getattr(data, part).copy() for part in parts}
        for values in made.values():
            values[draw.judges] = rng.random(values[draw.judges].shape)
        return Draw(dataclasses.replace(data, **made), draw.judges, draw.pool, draw.sets, draw.seed)

    np.testing.assert_array_equal(ROWS[name].rank(changed("val", "test", "runs", "short_test")), scores)
    same = np.array_equal(ROWS[name].rank(changed("short")), scores)
    assert same == (not name.startswith("own") and "short" not in name)


def test_a_cell_is_not_scored_by_the_short_trainings_of_its_fellows(data):
    draw = drawn(data)
    short = data.short.copy()
    short[draw.judges[0]] += 9
    other = Draw(dataclasses.replace(data, short=short), draw.judges, draw.pool, draw.sets, draw.seed)
    moved = np.abs(cell_rank.own(other) - cell_rank.own(draw))
    assert moved[0] > 10 * moved[1:].max()  # which is not 0, as all are standardised together


def test_what_a_ranking_costs():
    assert ROWS["model-0-111"].copy_seconds(0.1) == pytest.approx((CELLS + COMPANIONS + 111) * 0.14)
    assert ROWS["jacov-parameters-short"].copy_seconds(0.1) == pytest.approx(4)
    assert (ROWS["own-20"].short, ROWS["own-20"].long) == (120, 20)
    assert (ROWS["ridge-20-short"].short, ROWS["ridge-20-short"].long) == (100, 20)
    clock = Clock(4.715, 76.34)

    def spent(name):
        row = ROWS[name]
        return row.short * clock.short + row.long * clock.long + row.copy_seconds(0.1165)

    assert spent("model-0-111") <= 600
    rival = spent("ridge-20")
    assert all(spent(name) <= rival for name in ("model-0-304", "model-8-178", "model-12-115", "model-16-53"))


@pytest.fixture(scope="module")
def found(cells, copy, supernet, tmp_path_factory):
    """Records of both data sets, judged on few cells by few seeds."""
    folder = tmp_path_factory.mktemp("ranked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_rank, "JUDGES", 300)
        for dataset in ("cifar10", "cifar100"):
            file = folder / "first.jsonl"
            cell_rank.run(dataset, cells, copy, [], [3, 4, 5, 6], file, supernet=supernet)
        cell_rank.run("cifar10", cells, copy, [folder / "first.jsonl"], [0], folder / "next.jsonl", ())
    return folder


def test_judges_are_fresh_and_rankings_are_not_repeated(found):
    first, following = (list(records.read(found / name)) for name in ("first.jsonl", "next.jsonl"))
    judges = [set(r["cells"]) for r in (*first, *following) if r["label"] == "truth"]
    assert [len(some) for some in judges] == [300] * 3
    assert judges[0] == judges[1]
    assert not judges[0] & judges[2]
    ten = [r for r in first if r["dataset"] == "cifar10"]
    count = {name: sum(r["label"] == name for r in ten) for name in ROWS}
    assert count["model-20-0"] == 4
    assert count["loss"] == 3  # one per set that is left out
    assert count["parameters"] == count["one-shot"] == 1
    shared = next(r for r in ten if r["label"] == "one-shot")
    assert shared["seconds"] == pytest.approx(60 + CELLS * (0.01 + cell_rank.FREE_SECONDS))
    assert "one-shot" not in {r["label"] for r in following}  # no supernet was given
    assert {r["label"] for r in first if r["dataset"] == "cifar100"} == {"truth", *WITHOUT_COPY}


def test_only_known_rows_are_added(cells, copy, tmp_path):
    with pytest.raises(InputError, match="--rows"):
        cell_rank.run("cifar10", cells, copy, [], [0], tmp_path / "f.jsonl", ["modell-20-0"])


def test_tables_show_every_ranking(found):
    lines = [
        *records.read(found / "first.jsonl"),
        {"benchmark": "epochs", "seconds_12": 5, "seconds_200": 80},
    ]
    text = cell_tables.ranked_table("cells-rank", lines)
    assert set(ROWS) <= {name for names in cell_tables.GROUPS.values() for name in names}
    assert all(text.count(f"| {cell_tables._words(name)} |") == 1 for name in ROWS)
    truth = next(r for r in lines if r.get("label") == "truth")
    mine = next(r for r in lines if r.get("label") == "parameters")
    shown = float(
        next(row for row in text.split("\n") if row.startswith("| number of")).split("|")[3].split()[0]
    )
    assert shown == pytest.approx(spearman(truth["val"], mine["scores"]), abs=0.03)
    assert f"| {20 * 80 + ROWS['ridge-20'].copy_seconds(0.2):,.0f} |" in text
    gains = cell_tables.ranked_table("cells-rank-gain", lines)
    assert gains.count("\n") == 1 + sum(name in ROWS for some in cell_tables.GAINS.values() for name in some)
    hundred = cell_tables.ranked_table("cells-rank-cifar100", lines)
    assert "20 of 200 epochs |" in hundred
    assert "| none |" in hundred


def test_edges(cells, copy, supernet, tmp_path):
    """The benchmark's two runs differ by a constant and its test is its validation: both agree fully."""
    cell_edges.run(cells, copy, tmp_path / "edges.jsonl", supernet)
    lines = {r["estimator"]: r for r in records.read(tmp_path / "edges.jsonl")}
    run = lines["run"]
    assert run["self_spearman"] == run["val_spearman"] == run["test_cosine"] == pytest.approx(1, abs=1e-4)
    assert run["sign"] == 1
    assert 0.1 < lines["one-set"]["self_spearman"] < lines["sets"]["self_spearman"]
    assert lines["sets"]["self_spearman"] < lines["corrected"]["self_spearman"]
    assert lines["jacov"]["self_cosine"] is lines["supernet"]["self_cosine"] is None
    text = cell_tables.edges_table(list(lines.values()))
    assert text.count("\n") == 1 + len(lines)
    shown = [float(row.split("|")[4]) for row in text.split("\n")[2:]]
    assert shown == sorted(shown)
    cell_edges.run(cells, copy, tmp_path / "one.jsonl", supernet, ["supernet"])
    (alone,) = records.read(tmp_path / "one.jsonl")
    assert alone["val_spearman"] == lines["supernet"]["val_spearman"]
    with pytest.raises(InputError, match="--estimators"):
        cell_edges.run(cells, copy, tmp_path / "one.jsonl", only=["supernet"])


def test_neighbours_differ_in_one_edge():
    """Both orders of a pair, grouped by the first cell; pairs with cells elsewhere are left out."""
    space = NASBench201()
    some = [str(config["cell"]) for config in space.candidates()[:300]]
    pairs = cell_edges.neighbours(some)
    assert {tuple(pair) for pair in pairs.tolist()} == {tuple(pair[::-1]) for pair in pairs.tolist()}
    assert (np.diff(pairs[:, 0]) >= 0).all()
    first, second = pairs[0]
    assert some[second] in {other["cell"] for other in space.neighbours({"cell": some[first]})}


def test_cosines_are_those_of_finite_gradients():
    pairs = np.array([(0, k) for k in range(1, 6)] + [(1, 0)])
    a, b = np.array([1.0, 2, 3, 4, 5, 9]), np.array([2.0, 0, 1, 0, 1, -9])
    expected = a[:5] @ b[:5] / np.linalg.norm(a[:5]) / np.linalg.norm(b[:5])
    assert cell_edges.cosine(pairs, a, b) == pytest.approx(expected)  # one neighbour is no gradient
