import json
import math

import numpy as np
import pytest

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe


def test_defaults_are_the_protocol_of_the_filters():
    assert Recipe() == Recipe(steps=200, lr=0.01, weight_decay=5e-4, seeds=1, metric="accuracy")


def test_round_trip_through_json():
    recipe = Recipe(steps=3, lr=0.5, weight_decay=0.0, seeds=2, metric="loss")
    assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe
    assert Recipe.from_dict({}) == Recipe()


def test_image_settings_survive_too_and_old_files_have_none_of_them():
    recipe = Recipe(
        steps=3, lr=0.5, optimizer="sgd", batch=64, lr_end=0.001, clip=5.0, augment="flip-crop", seeds=6
    )
    described = json.loads(json.dumps(recipe.as_dict()))
    assert Recipe.from_dict(described) == recipe
    old = {name: described[name] for name in ("steps", "lr", "weight_decay", "seeds", "metric")}
    assert Recipe.from_dict(old) == Recipe(steps=3, lr=0.5, seeds=6)
    plain = Recipe()
    assert (plain.optimizer, plain.batch, plain.lr_end, plain.clip, plain.augment) == (
        "adam",
        0,
        0.0,
        0.0,
        "none",
    )
    assert Recipe(lr=0.1, lr_end=0.1).lr_end == 0.1  # a constant rate


def test_statistics_survive_and_are_those_of_the_batch_in_old_files():
    recipe = Recipe(optimizer="sgd", statistics="train")
    described = json.loads(json.dumps(recipe.as_dict()))
    assert described["statistics"] == "train"
    assert Recipe.from_dict(described) == recipe
    assert Recipe().statistics == "batch"
    old = {name: value for name, value in described.items() if name != "statistics"}
    assert Recipe.from_dict(old) == Recipe(optimizer="sgd", statistics="batch") != recipe


def test_numpy_numbers_are_numbers():
    assert Recipe(steps=np.int64(5), lr=np.float32(0.5)).steps == 5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 0}, "setting 'steps' of a recipe must be at least 1, got 0"),
        ({"steps": 2.5}, "setting 'steps' of a recipe must be int, got 2.5"),
        ({"steps": "5"}, "must be int, got '5'"),
        ({"steps": True}, "must be int, got True"),
        ({"seeds": 0}, "'seeds' of a recipe must be at least 1, got 0"),
        ({"seeds": -1}, "got -1"),
        ({"lr": 0.0}, "setting 'lr' of a recipe must be more than 0, got 0.0"),
        ({"lr": math.nan}, "setting 'lr' of a recipe must be finite, got nan"),
        ({"lr": math.inf}, "must be finite, got inf"),
        ({"lr": "0.1"}, "must be float, got '0.1'"),
        ({"lr": True}, "must be float, got True"),
        ({"weight_decay": -1e-9}, "'weight_decay' of a recipe must be at least 0, got -1e-09"),
        ({"weight_decay": math.nan}, "must be finite, got nan"),
        ({"weight_decay": None}, "must be float, got None"),
        ({"metric": "acuracy"}, "metric 'acuracy' is not known; did you mean 'accuracy'?"),
        ({"metric": None}, "metric 'None' is not known"),
        ({"batch": -1}, "'batch' of a recipe must be at least 0 (0 is all examples), got -1"),
        ({"batch": 2.5}, "got 2.5"),
        ({"batch": "64"}, "got '64'"),
        ({"lr_end": 0.02}, "'lr_end' of a recipe must be at most lr, got 0.02 (lr 0.01)"),
        ({"lr_end": -0.1}, "'lr_end' of a recipe must be at least 0, got -0.1"),
        ({"lr_end": math.nan}, "must be finite, got nan"),
        ({"clip": -1.0}, "'clip' of a recipe must be at least 0, got -1.0"),
        ({"clip": math.inf}, "must be finite, got inf"),
        ({"optimizer": "sdg"}, "optimizer 'sdg' is not known; did you mean 'sgd'?"),
        ({"augment": "flip_crop"}, "augment 'flip_crop' is not known; did you mean 'flip-crop'?"),
        ({"augment": True}, "augment 'True' is not known"),
        ({"statistics": "trian"}, "statistics 'trian' is not known; did you mean 'train'?"),
        ({"statistics": "running"}, "statistics 'running' is not known"),
        ({"statistics": None}, "statistics 'None' is not known"),
        ({"statistic": "train"}, "setting of a recipe 'statistic' is not known; did you mean 'statistics'?"),
        ({"step": 5}, "setting of a recipe 'step' is not known; did you mean 'steps'?"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(values, words):
    with pytest.raises(InputError) as caught:
        Recipe.from_dict(values)
    assert words in str(caught.value)
