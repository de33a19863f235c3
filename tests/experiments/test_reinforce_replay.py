"""REINFORCE replayed from records made by hand: what it sees, what it pays, which copy it gets."""

import json

import numpy as np
import pytest

from hcdc.experiments import reinforce_replay as replays
from hcdc.experiments.reinforce_replay import Scored

CELLS = 130


def record(label, seed=100, good=True, count=CELLS, **fields):
    """Copies that rank cells as the truth does, or the other way round."""
    loss = [-float(i) if good else float(i) for i in range(count)]
    scores = (
        {"loss": loss} if label in replays.SHARED else {"val.loss": loss, "val.score": [-v for v in loss]}
    )
    made = {"condense_seconds": 30.0}
    made = made if label in replays.SHARED else {"making": made}
    return {
        "protocol": "nas201", "label": label, "seed": seed, "initialisations": 8,
        "judge_seconds": 0.5 * count, **scores, **made, **fields,
    }  # fmt: skip


@pytest.fixture
def found():
    truth = {
        "protocol": "nas201", "label": "truth", "initialisations": 8, "val": np.arange(CELLS).tolist(),
        "test": (np.arange(CELLS) / CELLS).tolist(), "val12": np.arange(CELLS)[::-1].tolist(),
    }  # fmt: skip
    probes = {"probes": ["a", "b"], "probe_scores": [0.5, 0.6], "probe_tests": [0.8, 0.7]}
    return [
        truth, record("random-val", 100), record("random-val", 101),
        record("hcdc-probes", 100, draw=0, **probes), record("hcdc-probes", 100, draw=1, **probes),
        record("dc", good=False, count=110, recipe_name="calibrated"),
        record("random", recipe_name="calibrated"), record("random", recipe_name="published"),
    ]  # fmt: skip


def test_records_are_read_by_data_and_recipe(found):
    rows = replays.scored(found)
    assert {key: len(copies) for key, copies in rows.items()} == {
        ("random", "calibrated"): 2, ("hcdc", "calibrated"): 2, ("dc", "calibrated"): 1,
        ("random", "published"): 1, ("original", "12 epochs"): 1, ("original", "200 epochs"): 1,
    }  # fmt: skip
    hcdc = rows["hcdc", "calibrated"][1]
    assert (hcdc.trial, hcdc.making, hcdc.probes, hcdc.known, hcdc.draw) == (0.5, 30, 2, 0.7, 1)
    assert [rows["original", f"{e} epochs"][0].trial for e in (12, 200)] == [4.7, 76.3]
    assert rows["hcdc", "calibrated"][0].scores[5] == 5  # the least loss is best


def test_condensations_take_turns_and_so_do_their_draws():
    copies = [Scored(np.zeros(1), 1.0, seed=s, draw=d) for s, d in ((7, 1), (7, 0), (8, 0))]
    turns = [replays.in_turn(copies, k) for k in range(5)]
    assert [(one.seed, one.draw) for one in turns] == [(7, 0), (8, 0), (7, 1), (8, 0), (7, 0)]


def test_a_search_picks_the_best_it_has_seen_and_pays_once_for_each_cell():
    rewards = {10 * k: float(k) for k in range(100)}
    pick, trained = replays.searched(rewards, 3)
    assert 40 < trained < 80
    assert pick >= 900  # among ten of a hundred
    assert (pick, trained) == replays.searched(rewards, 3)
    copy = Scored(np.arange(CELLS, dtype=float), 2.0, making=5.0)
    told = replays.replayed([copy], np.arange(CELLS) / CELLS, 3)
    assert told["search_seconds"] == [2.0 * n for n in told["trained"]]
    assert told["making_seconds"] == [5.0] * 3
    assert all(best >= test for best, test in zip(told["best"], told["test_accuracy"]))


def test_a_copy_that_ranks_the_wrong_way_finds_poor_cells(found, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in found))
    told = {(r["data"], r["recipe"]): r for r in replays.replays(file, 3)}
    assert all((r["cells"], r["replays"], len(r["test_accuracy"])) == (110, 3, 3) for r in told.values())
    assert np.mean(told["dc", "calibrated"]["test_accuracy"]) < 0.2
    assert np.mean(told["hcdc", "calibrated"]["test_accuracy"]) > 0.7
    assert np.mean(told["original", "12 epochs"]["test_accuracy"]) < 0.2
    assert told["random", "calibrated"]["condensations"] == 2
    assert told["random", "calibrated"]["best"] == told["dc", "calibrated"]["best"]  # the same draws
