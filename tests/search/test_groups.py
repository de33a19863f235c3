"""Declared groups of hyperparameters: what may be written, and their values."""

import numpy as np
import pytest

import hcdc
from hcdc import FullData, InputError
from hcdc.search._groups import group_values, parse_groups

CONFIGS = [{"lr": 0.1, "batch": 32, "momentum": 0.9}, {"lr": 1.0, "batch": 8, "momentum": 1.0}, {"lr": "a"}]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("lr", 0.1),
        ("log lr - log batch", np.log(0.1 / 32)),
        ("log(lr) - log(batch) - log(1 - momentum)", np.log(0.1 / 32 / 0.1)),
        ("-2*lr + .5 * batch", 15.8),
    ],
)
def test_sums_are_read(text, first):
    found = group_values(parse_groups({"g": text}), CONFIGS)["g"]
    assert found[0] == pytest.approx(first)
    assert np.isnan(found[2])


def test_a_logarithm_of_nothing_is_unknown():
    assert np.isnan(group_values(parse_groups({"g": "log(1 - momentum)"}), CONFIGS)["g"][1])


@pytest.mark.parametrize("text", ["", "lr batch", "lr *", "lr - ", "exp(lr)", "1 - lr"])
def test_other_texts_are_refused(text):
    with pytest.raises(InputError, match=r"is no sum of hyperparameters; write e\.g\."):
        parse_groups({"g": text})


def test_a_search_reports_its_groups(clock, quick):
    data = (np.zeros((100, 1), np.float32), np.arange(100) % 2)

    def objective(trial, data):
        clock.now += len(data.train[1]) / 100
        a, b = (trial.suggest_float(name, 0.1, 10.0, log=True) for name in "ab")
        return float(np.log(a / b))

    full = FullData(data, data)
    found = hcdc.search(objective, full, budget=60, rungs=["subset:0.1"], groups={"ratio": "log a - log b"})
    names = {d.name for trust in found.trust.values() for d in trust.dimensions}
    assert names == {"a", "b", "ratio"}
    with pytest.raises(InputError, match="hyperparameter 'c'"):
        hcdc.search(objective, full, budget=60, groups={"ratio": "log c"})
