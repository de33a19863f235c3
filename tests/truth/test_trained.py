"""Full-data results by training: what is cached, what diverges, and where results are kept."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.recipe import Recipe
from hcdc.datasets import data
from hcdc.spaces import Finite, NASBench201
from hcdc.tasks import ImageTask
from hcdc.training import Engine, Result, Streams
from hcdc.truth import TrainedTruth, full_scores

SPACE = NASBench201(channels=2)
RECIPE = Recipe(steps=1, seeds=2, optimizer="sgd", batch=10, lr=0.01)


@pytest.fixture(scope="module")
def digits():
    return ImageTask(data("digits"))


@pytest.fixture
def trained(monkeypatch):
    """How many candidates each job trained."""
    counts, run = [], Engine.score
    monkeypatch.setattr(
        Engine, "score", lambda self, job: (counts.append(len(job.configs)), run(self, job))[1]
    )
    return counts


def truth(task, space, configs, recipe=RECIPE, **options):
    return TrainedTruth(task, space, recipe, fingerprint="x", **options).results(configs)


def scaled(config):
    """A module whose outputs are so many times as large."""
    layer = nn.Linear(64, 10)
    layer.register_forward_hook(lambda module, inputs, outputs: config["scale"] * outputs)
    return nn.Sequential(nn.Flatten(), layer)


def test_full_data_results_of_a_batch_are_kept_whoever_diverges(digits, tmp_path, monkeypatch, caplog):
    task, space = ImageTask(digits.data, scaled), Finite("scale", [1.0, 1e30, 0.5, 1e31])
    given = {"cache": tmp_path}
    monkeypatch.setattr(Streams, "score_at_once", lambda *_: 4)  # one batch
    with caplog.at_level("WARNING", "hcdc"):
        found = truth(task, space, space.candidates(), **given)
    assert [result.finite for result in found] == [True, False, True, False]
    told = "full data: 2 of 4 candidates diverged and are ranked last: {'scale': 1e+30}, {'scale': 1e+31}"
    assert told in caplog.text
    monkeypatch.setattr(Engine, "score", lambda *_: pytest.fail("nothing may be trained again"))
    again = truth(task, space, space.candidates(), **given)
    assert [result.finite for result in again] == [True, False, True, False]
    assert [again[k] for k in (0, 2)] == [found[k] for k in (0, 2)]
    caplog.clear()
    assert truth(task, space, space.candidates()[::2], **given) == [again[0], again[2]]
    assert not caplog.text
    with pytest.raises(NumericalError, match=r"all 2 candidates have a non-finite .*full_recipe lr, now"):
        truth(task, space, space.candidates()[1::2], **given)


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
    monkeypatch.setattr(Engine, "score", lambda *_: pytest.fail("nothing may be trained"))
    with pytest.raises(InputError, match=rf"cannot create the folder '.*{name}' for full-data results: \w"):
        truth(digits, SPACE, SPACE.candidates()[:2], cache=tmp_path / name)


def test_a_folder_that_cannot_be_written_is_refused_where_something_is_missing(digits, tmp_path, monkeypatch):
    given = {"cache": tmp_path}
    cells = SPACE.candidates()[1000:1002]

    def trained(self, job):
        job.on_batch([(config, Result({"val.score": 0.5}, 1.0)) for config in job.configs])

    monkeypatch.setattr(Engine, "score", trained)
    known = truth(digits, SPACE, cells, **given)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert truth(digits, SPACE, cells, **given) == known  # nothing has to be written
    with pytest.raises(InputError, match="for full-data results; choose another cache folder"):
        truth(digits, SPACE, SPACE.candidates()[:2], **given)


# --- what is kept apart ---------------------------------------


def test_full_data_results_are_kept_by_statistics(digits, tmp_path):
    """One cell by both recipes: neither is given the results of the other."""
    data_with = dataclasses.replace(digits.data, train=digits.subset(digits.train, torch.arange(40)))
    few, found = ImageTask(data_with), []
    for statistics in ("batch", "train", "batch"):
        recipe = Recipe(steps=2, lr=0.05, optimizer="sgd", batch=20, statistics=statistics)
        found += truth(few, SPACE, SPACE.candidates()[:1], recipe, cache=tmp_path)
    assert found[0].values == found[2].values
    assert found[0].values["val.loss"] != found[1].values["val.loss"]
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


# --- full-data results of a user's own module ---------------------------------------


def truth_of(task, space, tmp_path):
    recipe = Recipe(steps=2, lr=0.05, optimizer="sgd", batch=64)
    return truth(task, space, space.candidates(), recipe, cache=tmp_path)


@pytest.mark.parametrize("zeros", [False, True])
def test_a_changed_module_is_trained_anew(digits, tmp_path, trained, zeros):
    """Two modules of one name: the second must not be given the results of the first, also where both begin
    with a last layer of zeros, so with equal outputs."""
    space = Finite("width", [4, 8])

    def factory(activation):
        def make(config):
            width = config["width"]
            made = nn.Sequential(nn.Flatten(), nn.Linear(64, width), activation(), nn.Linear(width, 10))
            if zeros:
                nn.init.zeros_(made[3].weight)
                nn.init.zeros_(made[3].bias)
            return made

        return make

    first, second = (ImageTask(digits.data, factory(a)) for a in (nn.ReLU, nn.Tanh))
    assert first.spec() == second.spec()
    one, two = truth_of(first, space, tmp_path), truth_of(second, space, tmp_path)
    assert trained == [2, 2]
    assert [r.values for r in one] != [r.values for r in two]
    assert [r.values for r in truth_of(first, space, tmp_path)] == [r.values for r in one]
    assert trained == [2, 2]  # known


def test_the_results_of_cells_are_kept_by_their_hash(digits):
    config = SPACE.candidates()[0]
    assert digits.identity(SPACE, config) == config_hash(config)


def test_where_a_factory_lies_makes_no_other_results(digits, tmp_path, trained, monkeypatch):
    """The same factory in a script and in its module: one task, and one training."""
    space, task = Finite("scale", [1.0, 2.0]), ImageTask(digits.data, scaled)
    before = task.spec()
    known = truth_of(task, space, tmp_path)
    monkeypatch.setattr(scaled, "__module__", "__main__")
    assert task.spec()["model"] == "__main__:scaled" != before["model"]
    assert task.same_as(before)
    assert task.key()["model"] == "own"
    assert not ImageTask(digits.data).same_as(before)
    assert [r.values for r in truth_of(task, space, tmp_path)] == [r.values for r in known]
    assert trained == [2]


def test_a_truth_answers_for_one_candidate_at_a_time(digits, tmp_path, trained):
    few = ImageTask(dataclasses.replace(digits.data, train=digits.subset(digits.train, torch.arange(40))))
    known = TrainedTruth(few, SPACE, RECIPE, cache=tmp_path)
    first, second = SPACE.candidates()[1000:1002]
    known.ensure([first, second])
    assert trained == []
    assert not known.known(first)
    (result,) = known.results([first])
    assert known.known(first)
    assert (known.score(first), known.score(first, "test")) == (
        result.values["val.score"],
        result.values["test.score"],
    )
    assert known.seconds(first) == result.seconds_for("val")
    assert len(result.repeats["val.loss"]) == RECIPE.seeds
    assert known.scores([first]) == [result.values["val.score"]]
    assert trained == [1]
    again = TrainedTruth(few, SPACE, RECIPE, cache=tmp_path)
    assert again.results([first]) == [result]
    assert trained == [1]
    with pytest.raises(InputError, match="fidelity 12: candidates are only trained by the full recipe"):
        known.score(first, "val", 12)
    known.check(few)
    with pytest.raises(InputError, match="truth: its task is"):
        known.check(ImageTask(few.data, weight_decay=0.1))
    assert known.spec()["name"] == "trained"
    assert "1 steps, 2 seeds" in known.words()
