import numpy as np
import pytest
import torch

from hcdc.core.errors import InputError
from hcdc.spaces import Box
from hcdc.testing import SpaceConformance


class TestBox(SpaceConformance):
    def make(self):
        return Box(["lr", "momentum"], [1e-4, 0], [1, 0.9], ["log", "linear"])


class TestVisibility(SpaceConformance):
    def make(self):
        return Box(["lr", "batch", "gain"], 1e-4, [1, 64, 0.5], "log", {"batch": "copy"})


class TestOneDimension(SpaceConformance):
    def make(self):
        return Box(["penalty"], 1e-4, 10, "log")


def box():
    return Box(["lr", "momentum"], [1e-4, 0], [1, 0.9], ["log", "linear"])


def test_lambda_is_the_logarithm_on_a_log_scale():
    lam = box().encode({"lr": 0.01, "momentum": 0.5})
    assert lam.tolist() == pytest.approx([-2, 0.5])
    assert box().decode(torch.tensor([-2.0, 0.5])) == {"lr": 0.01, "momentum": 0.5}


def test_samples_are_uniform_in_lambda():
    configs = box().sample(4000, np.random.default_rng(0))
    lams = torch.stack([box().encode(config) for config in configs])
    torch.testing.assert_close(lams.mean(0), torch.tensor([-2, 0.45], dtype=torch.float64), rtol=0, atol=0.06)
    spread = torch.tensor([4, 0.9], dtype=torch.float64) / 12**0.5
    torch.testing.assert_close(lams.std(0), spread, rtol=0.05, atol=0)


def test_project_clamps_each_coordinate():
    lam = torch.tensor([[-9.0, 0.3], [3.0, 2.0]], dtype=torch.float64)
    expected = torch.tensor([[-4, 0.3], [0, 0.9]], dtype=torch.float64)
    torch.testing.assert_close(box().project(lam), expected)


def test_the_corners_are_configurations():
    low, high = torch.tensor([[-4, 0], [0, 0.9]], dtype=torch.float64)
    assert box().decode(low)["lr"] == 1e-4
    assert box().decode(high)["momentum"] == 0.9
    assert box().decode(torch.tensor([50.0, 50.0])) == {"lr": 1.0, "momentum": 0.9}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["a", "a"], 0, 1), "different names"),
        (("ab", 0, 1), "list"),
        (([], 0, 1), "one or more"),
        ((["a"], 1, 1), "low < high"),
        ((["a"], 0, float("inf")), "finite"),
        ((["a"], 0, 1, "log"), "low > 0"),
        ((["a"], 0, 1, "logg"), "scale of a 'logg'"),
        ((["a", "b"], [0], 1), "1 values for 2 names"),
        ((["augment"], 0, 1), r"use Finite\('augment', \[...\]\)"),
    ],
)
def test_a_bad_box_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Box(*arguments)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"lr": 0.1}, "the keys lr, momentum; 'momentum' is missing"),
        ({"lr": 0.1, "momentum": 0.5, "extra": 1}, "the keys lr, momentum; 'extra' is not one"),
        ({"lr": 0.1, "momentun": 0.5}, r"'momentun' is not one of them \(did you mean 'momentum'\?\)"),
        ({"lr": 2, "momentum": 0.5}, "lr: 2 lies outside"),
        ({"lr": float("nan"), "momentum": 0.5}, "lr: nan lies outside"),
        ({"lr": "big", "momentum": 0.5}, "'big' is not a number"),
        ({"lr": 0.1, "momentum": True}, "True is not a number"),
    ],
)
def test_a_bad_configuration_is_refused(config, words):
    with pytest.raises(InputError, match=words):
        box().encode(config)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 3)])
def test_a_lambda_of_another_size_is_refused(shape):
    with pytest.raises(InputError, match="last dimension must be 2"):
        box().project(torch.zeros(shape))


def test_names_of_recipe_settings_are_the_training_and_others_the_models():
    space = Box(["lr", "weight_decay", "clip", "batch", "steps", "epochs", "penalty"], 1, 90)
    seen = {d.name: (d.read_by, d.visibility) for d in space.dimensions()}
    assert seen["lr"] == seen["weight_decay"] == seen["clip"] == ("recipe", "copy")
    assert seen["batch"] == seen["steps"] == seen["epochs"] == ("recipe", "full")
    assert seen["penalty"] == ("model", "alignment")
    assert space.unread() == ["penalty"]
    assert space.unread(["penalty"]) == []
    assert space.unread(["penalty"], ["lr", "weight_decay", "steps", "epochs"]) == ["clip", "batch"]


def test_a_candidate_takes_its_recipe_in_whole_numbers_where_it_must():
    space = Box(["lr", "batch", "gain"], [1e-3, 16, 0], [1, 256, 0.9])
    candidate = space.candidate({"lr": 0.5, "batch": 31.7, "gain": 0.25}, 3, 2)
    assert candidate.recipe == {"lr": 0.5, "batch": 32}
    assert candidate.network is None
    same = space.candidate({"lr": 0.5, "batch": 32.0, "gain": 0.75}, 3, 2)
    other = space.candidate({"lr": 0.25, "batch": 32.0, "gain": 0.75}, 3, 2)
    assert candidate.group == same.group != other.group


def test_a_user_says_who_sees_a_dimension():
    space = Box(["batch", "width"], 1, 8, visibility={"width": "full"})
    assert [d.visibility for d in space.dimensions()] == ["full", "full"]
    assert space.spec()["visibility"] == {"width": "full"}
    assert list(box().spec()) == ["name", "names", "low", "high", "scale"]
    with pytest.raises(InputError, match=r"visibility of width 'nobody' is not known; .*copy"):
        Box(["width"], 1, 8, visibility={"width": "nobody"})
    with pytest.raises(InputError, match="visibility: the name 'widht' is not known; did you mean 'width'"):
        Box(["width"], 1, 8, visibility={"widht": "copy"})


def test_a_hyperparameter_that_nothing_reads_is_refused_by_name():
    words = (
        "hyperparameter 'foo': nothing reads it, so candidates that differ only in it are the same; "
        r"name a recipe setting \(.*lr, .*epochs\), give the task a model that reads it, or leave out foo"
    )
    with pytest.raises(InputError, match=words):
        Box(["lr", "foo"], 0.1, 1).check_read()
    Box(["lr", "foo"], 0.1, 1).check_read(model=["foo"])


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Box([f"penalty_{k}" for k in range(50)], 1e-4, 10, "log"), "50 penalties from 1e-4 to 10 (log)"),
        (Box([f"weight {k}" for k in range(4)], 0, 0.5), "4 hyperparameters from 0 to 0.5"),
        (Box(["lr", "gain"], [1e-3, 0], [0.1, 0.9], ["log", "linear"]),
         "lr from 0.001 to 0.1 (log); gain from 0 to 0.9"),
        (Box([f"nr_{k}" for k in range(30)], range(30), range(1, 31)),
         "nr_0 from 0 to 1; nr_1 from 1 to 2; nr_2 from 2 to 3; and 27 more"),
    ],
)  # fmt: skip
def test_a_box_is_printed_in_a_short_line(space, words):
    assert space.words() == words
    assert repr(space) == f"Box({words})"
