"""Commands that train for more than ten minutes ask first on a terminal; ``--yes`` skips the question."""

import pytest
import typer
from command_line import OBJECTIVE, hcdc_run

import hcdc
from hcdc.cli._show import ask_first, on_terminal
from hcdc.condensers import Cost, Expense
from hcdc.experiments.reproductions import Scale
from hcdc.search._task_problem import TrainedRung


@pytest.fixture
def asked(monkeypatch):
    """Questions that were asked on a terminal; all are answered by no."""
    found = []

    def confirm(text):
        found.append(text)
        return False

    monkeypatch.setattr("hcdc.cli._show.on_terminal", lambda: True)
    monkeypatch.setattr("hcdc.cli._show.typer.confirm", confirm)
    return found


LONG = Cost((Expense("many trainings", 700.0), Expense("unpredictable", None)))


def refused(ran, asked, words):
    code, _, err = ran
    assert (code, "nothing was done; --yes skips the question" in err) == (2, True), err
    assert asked == [f"this will train for about {words}; go on?"]


def test_condense_asks(tmp_path, capsys, monkeypatch, asked):
    monkeypatch.setattr("hcdc.condensers.Plan.cost", lambda self, device="cpu": LONG)
    out = tmp_path / "a.hcdc"
    given = ("condense", "--dataset", "embedded", "--method", "random", "--train-size", "12", "--out", out)
    refused(hcdc_run(capsys, *given), asked, "700 s")
    assert not out.exists()
    code, _, err = hcdc_run(capsys, *given, "--yes")
    assert (code, len(asked), out.exists()) == (0, 1, True), err


def test_no_answer_is_a_no(monkeypatch):
    def confirm(text):
        raise typer.Abort

    monkeypatch.setattr("hcdc.cli._show.on_terminal", lambda: True)
    monkeypatch.setattr("hcdc.cli._show.typer.confirm", confirm)
    with pytest.raises(hcdc.InputError, match="nothing was done; --yes skips the question"):
        ask_first(700.0, yes=False, quiet=False)


def test_a_closed_input_is_no_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert not on_terminal()


def test_evaluate_asks(tmp_path, capsys, monkeypatch, asked):
    data = hcdc.GraphTask(hcdc.data("embedded"))
    recipe = {"steps": 2, "seeds": 1}
    small = hcdc.condense(
        data, hcdc.spaces.PolynomialFilter(), "random", train_size=12, recipe=recipe, full_recipe=recipe,
        checkpoint=None,
    )  # fmt: skip
    file = small.save(tmp_path / "a.hcdc")
    monkeypatch.setattr("hcdc.evaluation.cost", lambda *_: LONG)
    given = ("evaluate", file, "--candidates", "4", "--no-rivals", "--device", "cpu")
    refused(hcdc_run(capsys, *given), asked, "700 s")
    code, _, err = hcdc_run(capsys, *given, "--yes")
    assert (code, len(asked)) == (0, 1), err


def test_trust_in_a_copy_asks_for_the_trials_on_the_copy_too(tmp_path, capsys, monkeypatch, asked):
    task = hcdc.GraphTask(hcdc.data("embedded"))
    recipe = {"steps": 2, "seeds": 1}
    small = hcdc.condense(
        task, hcdc.spaces.PolynomialFilter(), "random", train_size=12, recipe=recipe, full_recipe=recipe,
        checkpoint=None,
    )  # fmt: skip
    file = small.save(tmp_path / "a.hcdc")
    monkeypatch.setattr("hcdc.search._trust.training_seconds", lambda *_: 1.0)
    monkeypatch.setattr(TrainedRung, "forecast", lambda self, configs, budget: 40.0)
    given = ("trust", file, "--probes", "4", "--device", "cpu")
    code, out, err = hcdc_run(capsys, *given)
    assert (code, "nothing was done; --yes skips the question" in err) == (2, True), err
    assert asked == ["this will train for about 804 s; go on?"]
    assert "20 trials on the copy: about 800 s" in out


def test_reproduce_asks_for_the_units_that_are_missing(tmp_path, capsys, monkeypatch, asked):
    monkeypatch.setattr(Scale, "seconds", 500.0)
    given = ("reproduce", "nested-problems", "--out", tmp_path / "r.jsonl", "--device", "cpu")
    refused(hcdc_run(capsys, *given, "--seeds", "2"), asked, "1,000 s")
    code, _, err = hcdc_run(capsys, *given, "--seeds", "2", "--yes")
    assert (code, len(asked)) == (0, 1), err
    code, _, err = hcdc_run(capsys, *given, "--seeds", "3")  # one unit is left
    assert (code, len(asked)) == (0, 1), err


@pytest.mark.parametrize(
    ("takes", "seconds"),
    [
        ("seconds", 3), ("a minute on one core", 60), ("twenty minutes on one core", 1200),
        ("half an hour on one core", 1800), ("half a minute, from records of nas201", 30),
        ("about an hour on one core", 3600), ("days on a GPU", 3 * 86400), ("a while", 0),
    ],
)  # fmt: skip
def test_words_are_told_as_seconds(takes, seconds):
    assert Scale(takes=takes).seconds == seconds


def test_trust_takes_its_design_from_flags(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "designed.py").write_text(OBJECTIVE)
    given = ("trust", "--objective", "designed.py:objective", "--probes", "6", "--json", "t.json")
    code, out, err = hcdc_run(
        capsys, *given, "--against", "short:0.5", "--confirm", "4", "--group", "double=2 * x", "--k", "2"
    )
    assert code == 0, err
    assert "share of the truly best 33% that is kept" in out
    assert "in full" in out
    assert "dimension double" in out
    code, _, err = hcdc_run(capsys, *given, "--confirm", "4")
    assert (code, "hcdc: --confirm 4: all probes are trained in full" in err) == (2, True)
    code, _, err = hcdc_run(capsys, *given, "--k", "6")
    assert (code, "hcdc: --k 6: give a number from 1 to 5 of the 6 probes" in err) == (2, True)
    code, _, err = hcdc_run(capsys, *given, "--group", "double=log y")
    assert (code, "hcdc: --group 'double': hyperparameter 'y'" in err) == (2, True)
