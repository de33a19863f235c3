"""Protocol copy-pool: a draw is written, read and scored; the same command continues."""

from __future__ import annotations

import pytest

from hcdc.core import records
from hcdc.experiments import copy_pool


@pytest.fixture
def draw(tmp_path, monkeypatch):
    monkeypatch.setattr(copy_pool, "TRAIN", 20)
    monkeypatch.setattr(copy_pool, "VAL", 30)
    monkeypatch.setattr(copy_pool, "INITIALISATIONS", 2)
    path = tmp_path / "draw.npz"
    copy_pool.main(["--dataset", "digits", "--seed", "3", "--draw", str(path)])
    return path


def test_a_draw_is_read_as_it_was_written(draw):
    task, seed = copy_pool.read_draw(draw)
    assert (seed, len(task.train), len(task.val), task.num_classes) == (3, 20, 30, 10)
    assert task.train.y.bincount().tolist() == [2] * 10


def test_cells_are_scored_once(draw, tmp_path):
    out = tmp_path / "pool.jsonl"
    for cells in ("1", "2", "2"):
        copy_pool.main(["--draw", str(draw), "--out", str(out), "--cells", cells])
    found = list(records.read(out))
    assert len({line["cell"] for line in found}) == len(found) == 2
    assert all(len(line["loss"]) == len(line["score"]) == 2 for line in found)
    assert found[0]["dataset"] == "digits"
