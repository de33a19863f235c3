"""Tables of ``hcdc reproduce`` on a page: where HCDC stands, and each result's own table."""

import math

import pytest
import torch

from hcdc.core import records
from hcdc.core.ranks import Interval
from hcdc.experiments.reproduced_tables import (
    REPRODUCED_TABLES,
    TABLED,
    beside,
    fold_rows,
    graph_rows,
    listing_table,
    own,
    place,
    reproduced_table,
    standings_table,
    write_reproduced_figures,
)
from hcdc.experiments.reproductions import REPRODUCTIONS, reproduce
from hcdc.experiments.reproductions.nested_problems import figures

ONE = Interval(math.nan, math.nan, 0.9)


def body(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:] if line]


def ranked(label, seed, value, dataset="cora", **rivals):
    others = [{"name": name, "spearman": v} for name, v in rivals.items()]
    record = {"protocol": "filters-80", "label": label, "dataset": dataset, "train_size": 35, "seed": seed}
    scores = {"truth": [1.0, 2.0, 3.0], "proxy": [1.0, 3.0, 2.0]}
    return {**record, **scores, "spearman": value, "rivals": others}


def test_a_place_is_first_tied_or_beaten():
    ahead, level, behind = Interval(0.01, 0.2, 0.9), Interval(-0.1, 0.1, 0.9), Interval(-0.2, -0.1, 0.9)
    assert place(0.8, {}) == "alone"
    assert place(0.8, {"far": (0.2, ahead)}) == "first, before far (0.20)"
    assert place(0.8, {"far": (0.2, ahead), "near": (0.85, level)}) == "tied with near (0.85)"
    assert place(0.2, {"near": (0.85, behind), "ours": (0.8, behind)}) == "beaten by near (0.85)"
    assert place(0.8, {"one": (0.9, ONE)}) == "beaten by one (0.90)"
    assert place(0.8, {"one": (0.7, ONE)}) == "first, before one (0.70)"
    assert place(0.8, {"one": (0.8, ONE)}) == "tied with one (0.80)"


def test_gains_are_paired_by_seed():
    """Both rankings vary from seed to seed by far more than they differ."""
    ours = {seed: 0.1 * seed for seed in range(5)}
    mean, gain = beside(ours, {**{seed: 0.1 * seed - 0.01 for seed in range(5)}, 7: math.nan})
    assert math.isclose(mean, 0.19)
    assert gain.low == pytest.approx(0.01)
    assert gain.high == pytest.approx(0.01)
    assert math.isnan(beside(ours, {9: 0.5})[1].low)
    assert beside(ours, {9: math.nan}) is None


def test_graphs_stand_among_copies_and_among_all():
    found = [ranked("hcdc", s, 0.9 + s / 100, **{"equal-cost": 0.99 + s / 1000}) for s in range(3)]
    found += [ranked("random", s, 0.3 + s / 100) for s in range(3)]
    found += [ranked("random", 0, 0.3, dataset="pubmed"), ranked("hcdc", 0, None, dataset="citeseer")]
    ((label, setting, ours, pairs, paper, copies, rivals),) = graph_rows(found, "tab:graphs", {})
    assert (label, setting, pairs, paper) == ("tab:graphs", "cora, 35 nodes", "0.67", "none")
    assert math.isclose(ours[0], 0.91)
    assert (list(copies), list(rivals)) == (["random"], ["full data, one-seed training"])
    (row,) = body(standings_table(found))
    assert row[3:] == [
        "0.80",
        "0.67",
        "first, before random (0.31)",
        "beaten by full data, one-seed training (0.99)",
    ]


def test_weighted_nodes_stand_beside_their_own_rivals():
    spaces = [{"protocol": "gnn-zoo", "space": {"name": name}} for name in ("gnn-zoo", "nasbench-graph")]
    plain = ranked("hcdc", 0, 0.1, **{"equal-cost": 0.95, "ridge-probes": 0.6})
    found = [plain | spaces[0]]
    found += [ranked("hcdc-weighted", s, 0.7, **{"ridge-probes": 0.5}) | spaces[0] for s in (0, 1)]
    found += [ranked("hcdc-weighted", 0, 0.2) | spaces[1]]
    rows = body(standings_table(found))
    assert [row[:3] for row in rows] == [
        ["tab:gnns, zoo", "cora, 35 nodes", "0.10"],
        ["tab:gnns, zoo", "cora, 35 nodes, weighted validation nodes", "0.70 [0.70, 0.70]"],
        ["tab:gnns, NAS-Bench-Graph", "cora, 35 nodes, weighted validation nodes", "0.20"],
    ]
    assert [row[-1].split(" (")[0] for row in rows] == [
        "beaten by full data, one-seed training",
        "first, before kernel ridge on features and the same probes, no copy",
        "alone",
    ]


def test_intervals_of_correlations_end_at_one():
    wide = [ranked("hcdc", 0, 0.9), ranked("hcdc", 1, -0.9)]
    ((*_, told, _, _, _, _),) = body(standings_table(wide))
    assert told == "0.00 [-1.00, 1.00]"


def folds(seed, percent, settings="a", **by):
    truth = {"loss": [1.0, 2.0, 3.0], "accuracy": [3.0, 2.0, 1.0]}
    methods = {name: {"loss": loss, "accuracy": loss, "seconds": 1.0} for name, loss in by.items()}
    unit = {"dataset": "cifar10", "seed": seed, "settings": settings}
    record = {"protocol": "cross-validation", "unit": unit, "truth": truth, "methods": methods}
    return {**record, "percent": percent, "seed": seed}


def test_folds_are_ranked_by_loss():
    same, turned = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    every = {"random": turned, "gm": turned, "dm": turned, "early": same, "gm-real": same, "hcdc": same}
    ((_, setting, ours, pairs, paper, copies, rivals),) = fold_rows([folds(0, 2, **every)])
    assert (setting, ours[0], pairs, paper) == ("c/n 2 %", 1.0, "1.00", "0.91")
    assert [value for value, _ in copies.values()] == [-1.0] * 3
    assert [value for value, _ in rivals.values()] == [1.0, 1.0]


def test_hcdc_stands_beside_the_nested_problems():
    figures = {"sampled": 0.1, "sdc": 0.2, "nested": 0.5, "hcdc": 0.9, "hcdc-scaled": 0.95}
    record = {"protocol": "nested-problems", "unit": {"settings": {}}, "seed": 0}
    found = [{**record, "found": {name: {"spearman": v} for name, v in figures.items()}}]
    (row,) = body(standings_table(found))
    assert row[2:4] == ["0.90", "none"]
    assert row[5] == row[6] == "first, before both by the naive nested problem (0.50)"


def test_records_of_one_setting_are_shown():
    found = [folds(0, 2, "a"), folds(1, 2, "b"), folds(2, 2, "b"), {"protocol": "cross-validation"}]
    assert [r["seed"] for r in own("cross-validation", found)] == [1, 2]
    assert own("cross-validation", []) == []
    trained = folds(4, 2, "d")
    trained["unit"]["benchmark"] = "cifar10-trained"  # another truth, so another table
    assert [r["seed"] for r in own("cross-validation", [*found, trained])] == [1, 2, 4]
    other = folds(3, 2, "c")
    other["unit"]["dataset"] = "digits"
    assert [r["seed"] for r in own("cross-validation", [*found, other])] == [1, 2, 3]


def test_a_result_has_its_own_table_and_figure(tmp_path):
    what = REPRODUCTIONS["loss-landscape"].at("smoke")
    reproduce(what, [100], out := tmp_path / "a.jsonl")
    found = list(records.read(out))
    text = reproduced_table("loss-landscape", found)
    assert len(body(text)) == what.tangents
    assert body(reproduced_table("trajectories", found)) == [["not run"]]
    write_reproduced_figures(found, tmp_path)
    assert [file.name for file in tmp_path.glob("loss-landscape.png")] == ["loss-landscape.png"]
    assert not (tmp_path / "trajectories.png").exists()
    rows = {row[0]: row for row in body(listing_table(found))}
    assert list(rows) == [f"`{name}`" for name in sorted(REPRODUCTIONS)]
    assert rows["`loss-landscape`"][-1] == "1, 1 seed"
    assert rows["`filters-80`"][-1] == "none"
    zoo = [{"protocol": "gnn-zoo", "space": {"name": "gnn-zoo"}, "seed": 1}]
    rows = {row[0]: row for row in body(listing_table(zoo))}
    assert (rows["`gnn-zoo`"][-1], rows["`nasbench-graph`"][-1]) == ("1, 1 seed", "none")
    paths = [{"protocol": "trajectories", "unit": {"seed": seed}} for seed in (1, 2)]
    rows = {row[0]: row for row in body(listing_table(paths))}
    assert rows["`trajectories`"][-1] == "2, 2 seeds"


def test_the_tables_are_of_results_that_exist():
    assert set(TABLED) <= set(REPRODUCTIONS)
    own = (f"reproduced-{name}" for name in (*TABLED, "images-rank", "images-rank-small"))
    assert set(REPRODUCED_TABLES) == {"standings", "reproductions", *own}


def test_regret_is_a_share_of_the_range():
    truth, proxy = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([3.0, 1.0, 9.0])
    found = figures(truth, proxy)
    assert found["regret"] == 0.25
    assert found["spearman"] == pytest.approx(0.5)
    assert found["calibration"] == pytest.approx(2 / 3)
