"""Full-data results from a CSV file and from an Optuna study."""

import datetime
import math
from types import SimpleNamespace

import pytest

from hcdc.core.errors import InputError
from hcdc.datasets import data
from hcdc.tasks import GraphTask
from hcdc.truth import CsvTruth, StudyTruth, TableTruth, Truth, check_truth

ROWS = "lr,depth,act,val,test,seconds\n0.1,2,relu,0.9,0.8,12\n1e-2,3,tanh,0.7,0.75,10.5\n"


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_csv_has_one_line_per_configuration(tmp_path, separator):
    path = tmp_path / "results.csv"
    path.write_text(ROWS.replace(",", separator))
    truth = CsvTruth(path)
    assert len(truth) == 2
    assert truth.parts == ("val", "test")
    config = {"act": "tanh", "depth": 3, "lr": 0.01}
    assert truth.known(config)
    assert truth.score(config) == 0.7
    assert truth.score(config, "test") == 0.75
    assert truth.seconds(config) == 10.5
    assert not truth.known({**config, "depth": 2})
    assert truth.scores([config, {"lr": 0.1, "depth": 2.0, "act": "relu"}]) == [0.7, 0.9]
    (result,) = truth.results([config])
    assert result.values == {"val.score": 0.7, "test.score": 0.75}
    assert result.seconds_for("val") == 10.5
    truth.ensure([config])
    with pytest.raises(InputError, match="does not list configuration"):
        truth.ensure([config, {**config, "depth": 2}])
    assert truth.words() == "results.csv (2 configurations)"
    assert truth.spec()["rows"] == 2
    truth.check(GraphTask(data("embedded")))


def test_test_scores_and_seconds_are_optional(tmp_path):
    (tmp_path / "a.csv").write_text("on,val\ntrue,0.5\nFalse,0.25\n")
    truth = CsvTruth(tmp_path / "a.csv")
    assert truth.parts == ("val",)
    assert truth.score({"on": False}) == 0.25
    assert math.isnan(truth.seconds({"on": True}))
    with pytest.raises(InputError, match="has no 'test' scores; it has: val"):
        truth.score({"on": True}, "test")
    with pytest.raises(InputError, match="whole trainings only, none of length 12"):
        truth.score({"on": True}, "val", 12)
    with pytest.raises(InputError, match=r"not list configuration \{'off': 1\}; .* with the keys on"):
        truth.score({"off": 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has the columns none; it needs 'val'"),
        ("lr,test\n1,2\n", "has the columns lr, test; it needs 'val'"),
        ("val\n1\n", "one per key of a configuration"),
        ("lr,val\n", "has no finished configuration"),
        ("lr,val\n1,good\n", "line 2 of .*: val is 'good', not a finite number"),
        ("lr,val\n1,nan\n", "line 2 of .*: val is 'nan'"),
        ("lr,val\n1\n", "line 2 of .*: val is 'None'"),
        ("lr,val\n1,0.5\n1.0,0.6\n", "has the configuration {'lr': '1.0'} twice"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        CsvTruth(tmp_path / "a.csv")


def test_a_missing_csv_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read as CSV"):
        CsvTruth(tmp_path / "none.csv")


def trial(value, state="COMPLETE", seconds=None, **params):
    attributes = {"test": value + 0.5} if value is not None and value < 1 else {}
    return SimpleNamespace(
        params=params, value=value, state=SimpleNamespace(name=state), user_attrs=attributes,
        duration=None if seconds is None else datetime.timedelta(seconds=seconds),
    )  # fmt: skip


def study(direction="MAXIMIZE", *trials):
    directions = [SimpleNamespace(name=direction)]
    return SimpleNamespace(study_name="s", directions=directions, trials=trials)


def test_finished_trials_of_a_study_are_results():
    trials = (
        trial(0.3, seconds=4, lr=0.1),
        trial(None, "PRUNED", lr=0.2),
        trial(0.9, lr=0.1),
        trial(0.2, lr=0.3),
    )
    truth = StudyTruth(study("MAXIMIZE", *trials))
    assert len(truth) == 2
    assert truth.score({"lr": 0.1}) == 0.3
    assert truth.score({"lr": 0.3}, "test") == 0.7
    assert truth.seconds({"lr": 0.1}) == 4
    assert math.isnan(truth.seconds({"lr": 0.3}))
    assert not truth.known({"lr": 0.2})
    assert truth.spec() == {"name": "study", "study": "s", "trials": 2}
    assert truth.words() == "Optuna study s (2 configurations)"
    assert StudyTruth(study("MINIMIZE", *trials)).score({"lr": 0.3}) == -0.2
    assert StudyTruth(study("MAXIMIZE", trial(2.0, lr=1))).parts == ("val",)


def test_a_study_without_one_objective_or_results_is_refused():
    several = study("MAXIMIZE")
    several.directions *= 2
    with pytest.raises(InputError, match="study 's' has 2 objectives; one is needed"):
        StudyTruth(several)
    with pytest.raises(InputError, match="study 's' has no finished configuration"):
        StudyTruth(study())


def test_a_study_of_optuna_is_read(tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{tmp_path / 'study.db'}"

    def objective(asked):
        asked.set_user_attr("seconds", 7)
        return asked.suggest_float("x", -1, 1) ** 2

    made = optuna.create_study(study_name="squares", storage=storage)
    made.optimize(objective, n_trials=3)
    for truth in (StudyTruth(made), StudyTruth("squares", storage)):
        assert len(truth) == 3
        assert truth.score(made.best_params) == -made.best_value
        assert truth.seconds(made.best_params) == 7


def test_what_is_no_truth_is_refused():
    task = GraphTask(data("embedded"))
    with pytest.raises(InputError, match="truth is str; give a table"):
        check_truth("table.csv", task)
    with pytest.raises(InputError, match="results on images, but the task is a graph"):
        check_truth(TableTruth(None, "cifar10"), task)
    assert issubclass(TableTruth, Truth)
