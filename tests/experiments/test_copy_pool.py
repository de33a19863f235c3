"""Protocol copy-pool: a draw is written, read and scored; the same command continues."""

from __future__ import annotations

import numpy as np
import pytest

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.experiments import copy_pool


@pytest.fixture
def draw(tmp_path, monkeypatch):
    monkeypatch.setattr(copy_pool, "VAL", 30)
    path = tmp_path / "draw.npz"
    made = ["--dataset", "digits:mine", "--seed", "3", "--sets", "2", "--train", "20"]
    copy_pool.main([*made, "--draw", str(path)])
    return path


def test_a_draw_is_read_as_it_was_written(draw):
    task, seed, sets = copy_pool.read_draw(draw)
    assert (seed, sets, len(task.train), len(task.val), task.num_classes) == (3, 2, 40, 30, 10)
    assert all(half.bincount().tolist() == [2] * 10 for half in task.train.y.split(20))


def scored(draw, out, *more):
    copy_pool.main(["--draw", str(draw), "--out", str(out), *more])
    return list(records.read(out))


def test_cells_are_scored_once(draw, tmp_path):
    out = tmp_path / "pool.jsonl"
    for cells in ("1", "2", "2"):
        found = scored(draw, out, "--cells", cells, "--initialisations", "3")
    assert len({line["cell"] for line in found}) == len(found) == 2
    assert all(len(line["loss"]) == len(line["score"]) == 2 * 3 for line in found)
    assert (found[0]["dataset"], found[0]["sets"]) == ("mine", 2)


def test_a_file_has_the_cells_of_one_draw(draw, tmp_path):
    out = tmp_path / "pool.jsonl"
    scored(draw, out, "--cells", "1", "--initialisations", "1")
    copy_pool.main(["--dataset", "digits", "--seed", "4", "--train", "20", "--draw", str(draw)])
    with pytest.raises(InputError, match="another draw"):
        scored(draw, out, "--cells", "2", "--initialisations", "1")


def test_a_set_scores_as_it_does_alone(draw, tmp_path):
    with np.load(draw) as file:
        arrays = dict(file)
    for name in ("x_train", "y_train"):
        arrays[name] = arrays[name][20:]
    np.savez(tmp_path / "second.npz", **{**arrays, "sets": 1})
    first, second = scored(draw, tmp_path / "both.jsonl", "--cells", "1", "--initialisations", "1")[0]["loss"]
    alone = scored(tmp_path / "second.npz", tmp_path / "one.jsonl", "--cells", "1", "--initialisations", "1")
    assert alone[0]["loss"] == [second]
    assert first != second
