"""Results of candidates: what scoring costs by part, what diverges, and where results are kept."""

import dataclasses
import math
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import hcdc.training._truth as truths
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.recipe import Recipe
from hcdc.datasets import data
from hcdc.spaces import Finite, NASBench201
from hcdc.tasks import ImageTask
from hcdc.training import Result, full_scores, run_candidates, run_on_sets, truth

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
    score = truths._score

    def sleeping(network, params, task, part, reference=None):
        time.sleep(seconds[len(part)])
        return score(network, params, task, part, reference)

    monkeypatch.setattr(truths, "_score", sleeping)


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
    now, score = [0.0], truths._score
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def clocked(network, params, task, part, reference=None):
        now[0] += {10: 0.0, 20: 0.1}[len(part)]
        return score(network, params, task, part, reference)

    monkeypatch.setattr(truths, "_score", clocked)
    parts = [{"a": digits.sample("val", 10, 0)}, {"b": digits.sample("val", 20, 0)}]
    trains = [digits.sample("train", 10, seed) for seed in (0, 1)]
    quick, late = run_on_sets(
        digits, SPACE, SPACE.candidates()[1000:1001], trains, parts, RECIPE, 0, "judge", "cpu"
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
        times = truths._PartTimes("cuda", networks)
        for _ in range(2):
            with times.of((0, "val")):
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
    score_many = truths.score_many

    def stopping(bound, params, lam, part):
        if bool((lam[:, 0] > 0.5).any()):
            raise NumericalError("a lane diverged")
        return score_many(bound, params, lam, part)

    monkeypatch.setattr(truths, "score_many", stopping)
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

    found = truths._score_each(Bound(), params, lam, torch.ones(2))
    assert found.loss[[0, 2]].tolist() == [2.0, 6.0]
    assert found.score[[0, 2]].tolist() == [-2.0, -6.0]
    assert torch.isnan(found.loss[1])


def scaled(config):
    """A module whose outputs are so many times as large."""
    layer = nn.Linear(64, 10)
    layer.register_forward_hook(lambda module, inputs, outputs: config["scale"] * outputs)
    return nn.Sequential(nn.Flatten(), layer)


def test_full_data_results_of_a_batch_are_kept_whoever_diverges(digits, tmp_path, monkeypatch, caplog):
    task, space = ImageTask(digits.data, scaled), Finite("scale", [1.0, 1e30, 0.5, 1e31])
    given = {"fingerprint": "x", "description": {}, "cache": tmp_path}
    monkeypatch.setattr(truths, "networks_at_once", lambda _: 4)  # one batch
    with caplog.at_level("WARNING", "hcdc"):
        found = truth(task, space, space.candidates(), RECIPE, **given)
    assert [result.finite for result in found] == [True, False, True, False]
    told = "full data: 2 of 4 candidates diverged and are ranked last: {'scale': 1e+30}, {'scale': 1e+31}"
    assert told in caplog.text
    monkeypatch.setattr(truths, "run_candidates", lambda *_: pytest.fail("nothing may be trained again"))
    again = truth(task, space, space.candidates(), RECIPE, **given)
    assert [result.finite for result in again] == [True, False, True, False]
    assert [again[k] for k in (0, 2)] == [found[k] for k in (0, 2)]
    caplog.clear()
    assert truth(task, space, space.candidates()[::2], RECIPE, **given) == [again[0], again[2]]
    assert not caplog.text
    with pytest.raises(NumericalError, match=r"all 2 candidates have a non-finite .*full_recipe lr, now"):
        truth(task, space, space.candidates()[1::2], RECIPE, **given)


@pytest.mark.parametrize(
    ("scores", "worst"), [([0.3, 0.2], 0.0), ([0.3, 0.0], 0.0), ([-0.5, -2.0], math.nextafter(-2.0, -3.0))]
)
def test_who_diverged_has_the_worst_full_data_score(scores, worst):
    known = [Result({"val.loss": 1.0, "val.score": v, "test.score": -v}, 1.0) for v in scores]
    lost = [Result({"val.loss": math.nan, "val.score": v, "test.score": 0.9}, 1.0) for v in (0.9, math.nan)]
    assert full_scores([*known, *lost], "val") == [*scores, worst, worst]
    assert full_scores(known, "test") == [-v for v in scores]


# --- the folder of the cache ---------------------------------------


@pytest.mark.parametrize("name", ["file", "file/cache"])
def test_a_folder_that_cannot_be_is_refused_before_the_first_training(digits, tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(truths, "run_candidates", lambda *_: pytest.fail("nothing may be trained"))
    with pytest.raises(InputError, match=rf"the folder '.*{name}' for full-data results cannot be made: \w"):
        truth(
            digits, SPACE, SPACE.candidates()[:2], RECIPE,
            fingerprint="x", description={}, cache=tmp_path / name,
        )  # fmt: skip


def test_a_folder_that_cannot_be_written_is_refused_where_something_is_missing(digits, tmp_path, monkeypatch):
    given = {"fingerprint": "x", "description": {}, "cache": tmp_path}
    cells = SPACE.candidates()[1000:1002]

    def trained(task, space, configs, train, parts, recipe, seed, role, device, keep, keep_diverged):
        keep([(config, Result({"val.score": 0.5}, 1.0)) for config in configs])

    monkeypatch.setattr(truths, "run_candidates", trained)
    known = truth(digits, SPACE, cells, RECIPE, **given)
    monkeypatch.setattr(truths.os, "access", lambda *_: False)
    assert truth(digits, SPACE, cells, RECIPE, **given) == known  # nothing has to be written
    with pytest.raises(InputError, match="for full-data results cannot be written; name another"):
        truth(digits, SPACE, SPACE.candidates()[:2], RECIPE, **given)
