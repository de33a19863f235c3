import math
from dataclasses import dataclass

import numpy as np
import pytest

from hcdc.core.errors import InputError
from hcdc.core.settings import Settings, setting


@dataclass(frozen=True)
class Own(Settings):
    name = "own"

    steps: int = setting(10, least=1)
    lr: float = setting(0.1, above=0)
    momentum: float = setting(0.5, least=0, below=1)
    tau: float = setting(1.0, least=0.2, most=100, note="below, derivatives vanish")
    companions: int = setting(0, also=0, least=4)
    kernel: str = setting("conv", choices=("conv", "fc"))
    fanout: str = ""
    calibrate: bool = False
    limit: int | None = setting(None, least=1)


@dataclass(frozen=True)
class Plain(Settings):
    name = "plain"


PRESETS = {"default": {"settings": {}}, "quick": {"settings": {"steps": 2, "kernel": "fc"}}}


def test_settings_are_plain_and_in_order():
    found = Own().settings()
    assert list(found) == Own.names()
    assert found["steps"] == 10
    assert found["limit"] is None
    assert Plain().settings() == {}


def test_bounds_include_and_exclude_their_ends():
    assert Own(steps=1, momentum=0, tau=100, companions=4, limit=1).tau == 100
    assert Own(steps=np.int64(5), lr=np.float32(0.5)).steps == 5
    assert Own(lr=1).lr == 1


def test_presets_and_overrides():
    assert Own.from_preset() == Own()
    assert Own.from_preset("quick", {"lr": 0.5}, PRESETS) == Own(steps=2, kernel="fc", lr=0.5)
    assert Own.from_preset("quick", {"steps": 3}, PRESETS).steps == 3


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"steps": 0}, "setting 'steps' of method 'own' must be at least 1, got 0"),
        ({"steps": 2.5}, "setting 'steps' of method 'own' must be int, got 2.5"),
        ({"steps": True}, "must be int, got True"),
        ({"steps": None}, "must be int, got None"),
        ({"lr": -1}, "setting 'lr' of method 'own' must be more than 0, got -1"),
        ({"lr": math.nan}, "setting 'lr' of method 'own' must be finite, got nan"),
        ({"lr": "1"}, "must be float, got '1'"),
        ({"momentum": 1.0}, "must be at least 0 and less than 1, got 1.0"),
        ({"tau": 101}, "must be at least 0.2 and at most 100 (below, derivatives vanish), got 101"),
        ({"companions": 3}, "must be 0 or at least 4, got 3"),
        ({"kernel": "conf"}, "kernel 'conf' is not known; did you mean 'conv'? choose one of: conv, fc"),
        ({"fanout": 10}, "setting 'fanout' of method 'own' must be str, got 10"),
        ({"calibrate": 1}, "setting 'calibrate' of method 'own' must be bool, got 1"),
        ({"limit": 0}, "setting 'limit' of method 'own' must be at least 1, got 0"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_a_sentence(values, text):
    with pytest.raises(InputError) as caught:
        Own(**values)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("form", "preset", "overrides", "text"),
    [
        (Own, "quik", {}, "preset of method 'own' 'quik' is not known; did you mean 'quick'"),
        (Own, None, {"step": 3}, "setting of method 'own' 'step' is not known; did you mean 'steps'"),
        (Plain, None, {"steps": 3}, "method 'plain' has no settings, but 'steps' was given"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(form, preset, overrides, text):
    with pytest.raises(InputError, match=text):
        form.from_preset(preset, overrides, PRESETS)
