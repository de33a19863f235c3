import json

import numpy as np
import pytest

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.spaces import NASBench201, Product, Training, from_spec
from hcdc.spaces._training import NINE, RANGES
from hcdc.testing import SpaceConformance


class TestNine(SpaceConformance):
    def make(self):
        return Training()


class TestEverything(SpaceConformance):
    def make(self):
        return Training(list(RANGES))


class TestChoices(SpaceConformance):
    def make(self):
        return Training(["optimizer", "batch", "depth"])


class TestRanges(SpaceConformance):
    def make(self):
        return Training({"lr": (0.01, 0.5), "batch": (16, 256), "epochs": None, "augment": ["none", "crop"]})


class TestWholeNumbers(SpaceConformance):
    def make(self):
        return Training(["epochs"])


class TestWithCells(SpaceConformance):
    def make(self):
        return Product(NASBench201(channels=4), Training(["lr", "weight_decay"]))


def test_the_default_is_nine_hyperparameters():
    assert NINE == (
        "lr", "weight_decay", "momentum", "dropout", "label_smoothing", "augment", "batch", "schedule",
        "width",
    )  # fmt: skip
    assert [d.name for d in Training().dimensions()] == list(NINE)


def test_samples_are_uniform_in_lambda_and_whole_where_they_must():
    space = Training({"lr": (1e-4, 1.0), "epochs": (2, 200), "dropout": (0.0, 0.8)})
    configs = space.sample(2000, np.random.default_rng(0))
    assert np.mean([np.log10(c["lr"]) for c in configs]) == pytest.approx(-2, abs=0.1)
    assert np.mean([np.log10(c["epochs"]) for c in configs]) == pytest.approx(np.log10(20), abs=0.06)
    assert np.mean([c["dropout"] for c in configs]) == pytest.approx(0.4, abs=0.02)
    assert all(isinstance(c["epochs"], int) for c in configs)
    assert {2, 200} <= {c["epochs"] for c in configs}
    batches = Training({"batch": (16, 64)}).sample(30, np.random.default_rng(0))
    assert all(isinstance(c["batch"], int) and 16 <= c["batch"] <= 64 for c in batches)


def test_more_samples_than_there_are_repeat_some():
    drawn = Training({"epochs": (1, 2)}).sample(5, np.random.default_rng(0))
    assert {c["epochs"] for c in drawn} == {1, 2}
    assert len(drawn) == 5


def test_settings_go_into_the_recipe_and_sizes_to_the_network():
    config = Training(list(RANGES)).sample(1, np.random.default_rng(0))[0]
    space = Training(list(RANGES))
    candidate = space.candidate(config, 3, 10)
    assert set(candidate.recipe) == set(RANGES) - {"width", "depth"}
    assert candidate.network is None
    assert space.sizes(config) == {"width": config["width"], "depth": config["depth"]}
    Recipe(**{name: value for name, value in candidate.recipe.items() if name != "epochs"})
    assert space.plain
    assert not space.batched
    assert Training(["lr", "dropout"]).batched
    assert not Product(NASBench201(channels=4), Training(["lr"])).plain
    assert Product(Training(["width"]), Training(["lr"])).plain


def test_the_learning_rate_and_the_batch_are_left_to_a_full_training():
    seen = {d.name: d.visibility for d in Training(list(RANGES)).dimensions()}
    assert {name for name, where in seen.items() if where == "full"} == {
        "lr", "batch", "momentum", "epochs", "steps", "schedule",
    }  # fmt: skip
    assert set(seen.values()) == {"full", "copy"}


def test_a_specification_is_json_and_keeps_the_ranges():
    space = Training({"lr": (0.01, 0.5), "width": (4, 64), "batch": [16, 32]})
    spec = json.loads(json.dumps(space.spec()))
    assert spec["settings"]["lr"] == {"low": 0.01, "high": 0.5, "log": True, "whole": False}
    assert spec["settings"]["width"] == {"low": 4, "high": 64, "log": True, "whole": True}
    assert from_spec(spec).dimensions() == space.dimensions()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("lr", "Training needs a list of names"),
        ([], "Training needs a list of names"),
        (["learning_rate"], "training setting 'learning_rate' is not known"),
        ({"lr": 0.1}, "lr: 0.1 is not a range of this setting; give (low, high) or a list of choices"),
        ({"lr": {"low": 0.1}}, "lr: {'low': 0.1} is not a range"),
        ({"augment": (0, 1)}, "augment: {'low': 0, 'high': 1} is not a range of this setting; give a list"),
        ({"lr": (0.5, 0.1)}, "lr: bounds 0.5 and 0.1 must be finite and low < high"),
        ({"lr": (0.0, 0.1)}, "a log scale needs low > 0"),
        ({"batch": []}, "batch: a choice needs at least one value"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InputError) as caught:
        Training(settings)
    assert words in str(caught.value)


def test_half_an_epoch_is_refused():
    with pytest.raises(InputError, match=r"epochs: 7\.5 is not a whole number"):
        Training(["epochs"]).check({"epochs": 7.5})
