"""Refusals speak of flags, come before the work, and never replace what was not asked for."""

import numpy as np
import pytest
from command_line import OBJECTIVE, assert_refused, files, hcdc_run

import hcdc
from hcdc.core.files import unwritable


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(120, 2))
    rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in x]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    (tmp_path / "empty.csv").write_text("a,b,label\n")
    (tmp_path / "rare.csv").write_text("a,label\n1,x\n2,x\n3,x\n4,y\n")
    return tmp_path


REFUSED = [
    (("rows.csv",), "rows: which column is to be predicted? pass --target, one of: a, b, label"),
    (("rows.csv", "--target", "lable"), "--target 'lable' is not known; did you mean 'label'?"),
    (("empty.csv", "--target", "label"), "empty: the table has no rows"),
    (("rare.csv", "--target", "label"), "(give them another class or leave it out)"),
    (("none.csv",), "does not exist; pass a name (cora, cifar10, digits, embedded, ...) or a path (.npz"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_flags_are_named(place, capsys, arguments, said):
    before = files(place)
    done = hcdc_run(capsys, "plan", "--dataset", *arguments, "--quiet")
    assert_refused(place, before, *done, said)
    assert "=" not in done[2]
    assert "DataFrame" not in done[2]


def test_what_cannot_be_written_is_refused_before_the_work(place, capsys):
    assert unwritable("a.txt") == ""
    assert files(place) == ["empty.csv", "rare.csv", "rows.csv"]
    assert unwritable(place) == "this is a folder; name a file"
    if not unwritable("/proc/y.hcdc"):
        pytest.skip("no folder that cannot be written")
    given = ("--dataset", "rows.csv", "--target", "label", "--train-size", "12", "--out", "/proc/y.hcdc")
    assert_refused(place, files(place), *hcdc_run(capsys, "condense", *given), "--out /proc/y.hcdc: n")


def test_another_evaluation_is_not_replaced(place, capsys):
    task = hcdc.TableTask(hcdc.data("rows.csv", target="label"), "logistic")
    short = {"steps": 20, "seeds": 1}
    hcdc.condense(
        task, task.space(), "random", train_size=30, val_method="real", recipe=short, full_recipe=short,
        checkpoint=None,
    ).save("a.hcdc")  # fmt: skip

    def evaluate(*arguments):
        return hcdc_run(capsys, "evaluate", "a.hcdc", "--device", "cpu", "--quiet", *arguments)

    assert evaluate("--candidates", "6")[0] == 0
    assert evaluate("--candidates", "6")[0] == 0  # the same again
    for other in (
        ("--candidates", "5"),
        ("--candidates", "6", "--seed", "1"),
        ("--candidates", "6", "--no-rivals"),
    ):
        before = (place / "a.evaluation.json").read_text()
        assert_refused(place, files(place), *evaluate(*other), "a.evaluation.json exists and differs")
        assert (place / "a.evaluation.json").read_text() == before
    assert evaluate("--candidates", "5", "--json", "b.json")[0] == 0
    assert evaluate("--candidates", "5", "--force")[0] == 0


def test_a_stand_in_of_an_objective_is_measured(place, capsys):
    (place / "measured.py").write_text(OBJECTIVE)
    code, out, err = hcdc_run(
        capsys, "trust", "--objective", "measured.py:objective", "--rung", "short:0.5", "--probes", "12"
    )
    assert code == 0, err
    assert "12 probes are too few to say trust: 16 are needed" in out
    assert out.splitlines()[-1].startswith(
        "wrote trust.json; next: hcdc search --objective measured.py:objective"
    )
    for given, said in (
        ((), "Missing a condensed file, or --objective FILE.py:NAME"),
        (("a.hcdc", "--objective", "measured.py:objective"), "FILE a.hcdc: it does not go with --objective"),
    ):
        assert_refused(place, files(place), *hcdc_run(capsys, "trust", *given), said)
