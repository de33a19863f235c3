"""The recorder of the small ResNet on digits: all rungs, and it goes on where it stopped."""

from pathlib import Path

import pytest

from hcdc.core import records
from hcdc.datasets import data
from hcdc.experiments import resnet
from hcdc.experiments.resnet import Recorder, Sizes, configurations, record
from hcdc.tasks import ImageTask

SIZES = Sizes(train=120, val=60, epochs=6.0, shares=(1 / 3, 1.0), copies=2, copy_images=20, copy_epochs=3.0)


@pytest.fixture(scope="module")
def recorder():
    return Recorder(ImageTask(data("digits")), SIZES, "cpu")


def test_configurations_lie_in_the_space_and_a_longer_list_begins_with_the_shorter():
    configs = configurations(20)
    assert configs[:5] == configurations(5)
    for config in configs:
        resnet.SPACE.check(config)


def test_copies_are_balanced_draws_from_the_training_images(recorder):
    first, second = recorder.copies
    assert first.y.bincount().tolist() == second.y.bincount().tolist() == [2] * 10
    own = {tuple(x.flatten().tolist()) for x in recorder.task.inputs(recorder.train.x)}
    assert all(tuple(x.flatten().tolist()) in own for x in (*first.x, *second.x))
    assert not first.x.equal(second.x)


def test_shares_are_visits():
    shares = Sizes().visits()
    assert shares["copy:0"] == pytest.approx(10_000 / 130_000)
    assert list(shares)[5:] == ["short:0.037", "short:0.111", "short:0.333", "full"]


def test_every_rung_is_recorded_once(recorder, tmp_path: Path):
    out, configs = (
        tmp_path / "pool.jsonl",
        [{**c, "batch": 32, "width": 8, "lr": 0.05} for c in configurations(3)],
    )
    record(recorder, configs[:2], 1, out)
    record(recorder, configs, 2, out)
    record(recorder, configs, 2, out)
    found = list(records.read(out))
    assert [(r["number"], r["seed"]) for r in found] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert set(found[0]["val"]) == set(found[0]["shares"]) == {"copy:0", "copy:1", "short:0.333", "full"}
    assert list(found[3]["val"]) == ["full"]
    assert any(r["val"]["copy:0"] != r["val"]["copy:1"] for r in found[:3])
    assert any(a["val"]["full"] != b["val"]["full"] for a, b in zip(found[:3], found[3:]))
    assert all(0 < seconds < 60 for r in found for seconds in r["measured_seconds"].values())
    assert found[0]["seconds"]["full"] == found[0]["measured_seconds"]["full"]
    assert found[0]["seconds"]["short:0.333"] == pytest.approx(found[0]["seconds"]["full"] / 3, abs=1e-5)
    assert max(r["test"] for r in found) > 0.3


def test_no_block_starts_after_the_limit(recorder, tmp_path: Path):
    record(recorder, configurations(2), 1, tmp_path / "pool.jsonl", limit=-1.0)
    assert not (tmp_path / "pool.jsonl").exists()
