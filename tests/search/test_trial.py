"""The trial: fixed parameters are read, unknown ones are drawn by key, what cannot be is refused."""

import numpy as np
import pytest

from hcdc import InputError
from hcdc.search import Trial, TrialPruned
from hcdc.search._trial import is_pruned


def read(trial):
    return {
        "lr": trial.suggest_float("lr", 1e-4, 1e-1, log=True),
        "depth": trial.suggest_int("depth", 1, 9),
        "act": trial.suggest_categorical("act", ["relu", "tanh", None]),
    }


def test_fixed_parameters_are_read_and_others_drawn_once_per_configuration():
    config = {"lr": 0.01, "depth": 4}
    one, other = read(Trial(config, number=3)), read(Trial(dict(reversed(config.items())), number=9))
    assert one == other  # whatever the rung or the number
    assert (one["lr"], one["depth"]) == (0.01, 4)
    assert len({read(Trial({"lr": lr, "depth": 4}))["act"] for lr in (0.01, 0.02, 0.03, 0.04, 0.05)}) > 1
    trial = Trial(config)
    assert read(trial) == read(trial) == trial.params
    assert list(trial.distributions) == ["lr", "depth", "act"]


@pytest.mark.parametrize(
    ("config", "ask", "text"),
    [
        (
            {"depth": 12},
            lambda t: t.suggest_int("depth", 1, 9),
            r"leaves out 12 of earlier ones; a range must be the same",
        ),
        ({"act": "elu"}, lambda t: t.suggest_categorical("act", ["relu"]), r"categorical.*leaves out 'elu'"),
        (
            {},
            lambda t: [t.suggest_int("k", 1, 3), t.suggest_int("k", 1, 4)],
            "two distributions in one trial",
        ),
        ({}, lambda t: t.suggest_float("lr", 0, 1, log=True), "'lr'.*low above 0"),
    ],
)
def test_a_refusal_is_kept_even_if_the_objective_swallows_it(config, ask, text):
    trial = Trial(config)
    with pytest.raises(InputError, match=text):
        ask(trial)
    assert trial.refusal is not None


def test_pruning():
    trial = Trial({}, prune=lambda reports: max(reports.values()) < 0.5)
    assert not trial.should_prune()  # nothing reported
    trial.report(0.4, 0)
    assert trial.should_prune()
    trial.report(0.6, step=1)
    assert not trial.should_prune()
    assert is_pruned(TrialPruned())
    assert not is_pruned(ValueError())
    optuna = pytest.importorskip("optuna")
    assert is_pruned(optuna.TrialPruned())


def test_attributes_are_plain():
    trial = Trial({})
    trial.set_user_attr("curve", (1, 2.5))
    assert trial.user_attrs == {"curve": [1, 2.5]}
    with pytest.raises(InputError, match="'model' must be plain JSON"):
        trial.set_user_attr("model", object())


def test_choices_may_be_numbers_of_numpy():
    trial = Trial({})
    value = trial.suggest_categorical("a", np.array([1, 2, 3]))
    assert type(value) is int
    assert trial.distributions["a"].choices == (1, 2, 3)
