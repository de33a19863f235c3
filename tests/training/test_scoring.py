"""Results of candidates: what scoring costs by part, and what diverges."""

import dataclasses
import math
import time
from types import SimpleNamespace

import pytest
import torch

from hcdc.core.errors import NumericalError
from hcdc.core.recipe import Recipe
from hcdc.datasets import data
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.training import Job, _lanes, _streams, run_candidates, score

SPACE = NASBench201(channels=2)
RECIPE = Recipe(steps=1, seeds=2, optimizer="sgd", batch=10, lr=0.01)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture(scope="module")
def digits():
    """The task, of which one candidate was trained: what is paid once is paid."""
    task = ImageTask(data("digits"))
    part = task.sample("train", 10, 0)
    run_candidates(task, SPACE, SPACE.candidates()[1000:1001], part, {"val": part}, RECIPE, 0, "x", "cpu")
    return task


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def slow(monkeypatch, seconds):
    """Scoring sleeps for so many seconds by the number of images."""
    scoring = _streams.score_images

    def sleeping(network, params, task, part, reference=None):
        time.sleep(seconds[len(part)])
        return scoring(network, params, task, part, reference)

    monkeypatch.setattr(_streams, "score_images", sleeping)


@pytest.mark.parametrize("count", [1, 2])
def test_a_part_has_the_seconds_of_its_scoring(digits, monkeypatch, threads, count):
    """Of two networks, two repeats each: as one thread after the other, or both at the same time."""
    threads(count)
    slow(monkeypatch, {10: 0.0, 20: 0.1})
    train = digits.sample("train", 10, 0)
    parts = {"own": digits.sample("val", 10, 0), "other": digits.sample("val", 20, 0)}
    results = run_candidates(
        digits, SPACE, SPACE.candidates()[1000:1002], train, parts, RECIPE, 0, "judge", "cpu"
    )
    for result in results:
        assert set(result.part_seconds) == {"own", "other"}
        assert result.part_seconds["other"] >= 0.2 / count
        assert result.part_seconds["own"] > 0
        assert sum(result.part_seconds.values()) <= result.seconds  # whatever ran at the same time
        assert result.seconds_for("own") == pytest.approx(result.seconds - result.part_seconds["other"])


def test_each_training_set_has_the_seconds_of_its_parts(digits, monkeypatch, threads):
    """By a clock that stands but for the scoring of 20 images: .1 s for each of two repeats."""
    threads(1)
    now, scoring = [0.0], _streams.score_images
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def clocked(network, params, task, part, reference=None):
        now[0] += {10: 0.0, 20: 0.1}[len(part)]
        return scoring(network, params, task, part, reference)

    monkeypatch.setattr(_streams, "score_images", clocked)
    parts = [{"a": digits.sample("val", 10, 0)}, {"b": digits.sample("val", 20, 0)}]
    trains = [digits.sample("train", 10, seed) for seed in (0, 1)]
    quick, late = score(
        Job(digits, SPACE, SPACE.candidates()[1000:1001], trains, RECIPE, parts, role="judge")
    )
    assert quick[0].part_seconds == {"a": 0.0}
    assert late[0].part_seconds == {"b": pytest.approx(0.2)}


def test_on_cuda_events_of_streams_are_counted(monkeypatch):
    """Milliseconds on each stream, of which as many run at the same time as there are networks."""
    now = [0.0]

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = now[0]

        def elapsed_time(self, other):
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=3 * 2**32)
    )
    for networks, at_once in ((2, 2), (8, 3)):  # 4 GiB each
        times = _streams.PartTimes("cuda", networks)
        for _ in range(2):
            with times.of([(0, "val")]):
                now[0] += 1500.0
            now[0] += 7.0
        assert times.seconds() == pytest.approx({(0, "val"): 3.0 / at_once})


@CUDA
def test_a_part_has_the_seconds_of_its_scoring_on_cuda(digits):
    task = digits.to("cuda")
    train = task.sample("train", 10, 0)
    many = task.chosen("val", torch.arange(len(task.val)).repeat(200))
    parts = {"own": task.sample("val", 10, 0), "other": many}
    cells = SPACE.candidates()[1000:1008]
    alone, both = (
        sum(
            r.seconds_for("own")
            for r in run_candidates(task, SPACE, cells, train, some, RECIPE, 0, "judge", "cuda")
        )
        for some in ({"own": parts["own"]}, parts)
    )
    results = run_candidates(task, SPACE, cells, train, parts, RECIPE, 0, "judge", "cuda")
    assert all(0 < r.seconds_for("own") < r.seconds for r in results)
    assert all(r.part_seconds["other"] > r.part_seconds["own"] > 0 for r in results)
    assert both < 3 * alone + 1


# --- candidates that diverge ---------------------------------------


def test_an_image_network_that_diverges_is_kept_where_asked(digits):
    train, parts = digits.sample("train", 10, 0), {"val": digits.sample("val", 10, 0)}
    cells = SPACE.candidates()[1000:1002]
    wild = dataclasses.replace(RECIPE, lr=1e30, steps=3)
    with pytest.raises(NumericalError, match="non-finite loss after training; a smaller learning rate"):
        run_candidates(digits, SPACE, cells, train, parts, wild, 0, "judge", "cpu")
    kept = run_candidates(digits, SPACE, cells, train, parts, wild, 0, "judge", "cpu", None, True)
    assert all(math.isnan(result.values["val.loss"]) for result in kept)


def test_a_lane_that_diverges_leaves_the_others_as_they_are(monkeypatch):
    score_many = _lanes.score_many

    def stopping(bound, params, lam, part):
        if bool((lam[:, 0] > 0.5).any()):
            raise NumericalError("a lane diverged")
        return score_many(bound, params, lam, part)

    monkeypatch.setattr(_lanes, "score_many", stopping)
    lam = torch.tensor([[0.1], [0.9], [0.2]])
    params = {"w": torch.tensor([[1.0], [2.0], [3.0]])}

    class Bound:
        def prepare(self, part):
            pass

        def predict(self, p, lam, part):
            return p["w"] * part

        def loss(self, outputs, part):
            return outputs.sum()

        def score(self, outputs, part):
            return -outputs.sum()

    found = _lanes.score_each(Bound(), params, lam, torch.ones(2))
    assert found.loss[[0, 2]].tolist() == [2.0, 6.0]
    assert found.score[[0, 2]].tolist() == [-2.0, -6.0]
    assert torch.isnan(found.loss[1])
