import numpy as np
import pytest
import torch
from conformance import SpaceConformance

from hcdc.core.errors import InputError
from hcdc.spaces import Box


class TestBox(SpaceConformance):
    def make(self):
        return Box(["lr", "momentum"], [1e-4, 0], [1, 0.9], ["log", "linear"])


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
    ],
)
def test_a_bad_box_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Box(*arguments)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"lr": 0.1}, "exactly lr, momentum"),
        ({"lr": 0.1, "momentum": 0.5, "extra": 1}, "exactly lr, momentum"),
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
