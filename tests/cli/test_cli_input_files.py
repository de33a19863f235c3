"""No command writes over a file that it reads: data, tables, copies, their records, or code."""

import sys

import numpy as np
import pytest
from command_line import OBJECTIVE, assert_refused, files, hcdc_run

import hcdc

MINE = ("--objective", "own_code.py:objective")
BARE = ("--objective", "bare_code.py:objective", "--dataset", "rows.csv", "--target", "label")
TABLE = ("--dataset", "rows.csv", "--target", "label")
FEW = (*TABLE, "--train-size", "12", "--model", "own_code.py:net")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a table, code, a copy with its record, and results."""
    monkeypatch.chdir(tmp_path)
    for module in ("own_code", "bare_code", "added_code"):
        sys.modules.pop(module, None)
    x = np.random.default_rng(0).normal(size=(120, 2))
    rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in x]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    (tmp_path / "own_code.py").write_text(OBJECTIVE)
    (tmp_path / "bare_code.py").write_text(OBJECTIVE.replace("def data(", "def other("))
    (tmp_path / "added_code.py").write_text("A = 1\n")
    (tmp_path / "known.csv").write_text("x,val\n0.5,0.5\n")
    task = hcdc.TableTask(hcdc.data("rows.csv", target="label"), "logistic")
    short = {"steps": 20, "seeds": 1}
    hcdc.condense(
        task, task.space(), "random", train_size=30, val_method="real", recipe=short, full_recipe=short,
        checkpoint=None,
    ).save("a.hcdc")  # fmt: skip
    return tmp_path


OVER = [
    *(((name, *MINE), "--json", "own_code.py", "--objective") for name in ("plan", "search", "trust")),
    *(((name, *BARE), "--json", "rows.csv", "--dataset") for name in ("plan", "search", "trust")),
    *(((name, *MINE), "--storage", "own_code.py", "--objective") for name in ("search", "trust")),
    (("plan", "--objective", "own_code:objective"), "--json", "own_code.py", "--objective"),
    (("search", *MINE, "--import", "added_code"), "--json", "added_code.py", "--import"),
    (("search", *MINE, "--import", "added_code.py"), "--storage", "added_code.py", "--import"),
    (("search", *MINE, "--known", "known.csv"), "--storage", "known.csv", "--known"),
    (("search", *MINE, "--copy", "a.hcdc"), "--json", "a.hcdc.json", "its record"),
    (("search", *MINE, "--rungs", "short:0.5,copy:a.hcdc"), "--json", "a.hcdc", "--rungs"),
    (("search", "a.hcdc"), "--json", "a.hcdc.json", "its record"),
    (("search", "a.hcdc"), "--storage", "a.hcdc.json", "its record"),
    (("search", *TABLE, "--model", "own_code.py:net"), "--json", "own_code.py", "--model"),
    (("plan", *TABLE, "--model", "own_code.py:net"), "--json", "own_code.py", "--model"),
    (("plan", *TABLE, "--copy", "a.hcdc"), "--json", "a.hcdc", "--copy"),
    (("trust", "a.hcdc", "--model", "own_code.py:net"), "--json", "own_code.py", "--model"),
    (("trust", "a.hcdc", "--import", "added_code.py"), "--json", "added_code.py", "--import"),
    (("evaluate", "a.hcdc", "--model", "own_code.py:net"), "--json", "own_code.py", "--model"),
    (("evaluate", "a.hcdc", "--import", "added_code.py"), "--json", "added_code.py", "--import"),
    (("inspect", "a.hcdc", "--import", "added_code.py"), "--json", "added_code.py", "--import"),
    (("report", "a.json"), "--out", "a.hcdc", "its copy"),
    (("report", "a.json", "--import", "added_code.py"), "--json", "added_code.py", "--import"),
    (("reproduce", "ranks", "--import", "added_code.py"), "--out", "added_code.py", "--import"),
    (("reproduce", "ranks", "--set", "sources=x,known.csv"), "--json", "known.csv", "a file that it reads"),
    (("condense", *FEW, "--out", "b.hcdc"), "--json", "own_code.py", "--model"),
    (("condense", *FEW), "--out", "own_code.py", "--model"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "flag", "file", "other"), OVER)
def test_what_is_read_is_not_written_over(place, capsys, command, flag, file, other):
    before, content = files(place), (place / file).read_bytes()
    done = hcdc_run(capsys, *command, flag, file, "--quiet")
    assert_refused(place, before, *done, f"{flag} {file}: this is the same file as {other}; choose another")
    assert (place / file).read_bytes() == content


def test_an_evaluation_beside_the_copy_is_read_and_kept(place, capsys):
    code, _, err = hcdc_run(
        capsys, "evaluate", "a.hcdc", "--candidates", "4", "--no-rivals", "--device", "cpu"
    )
    assert code == 0, err
    before = files(place)
    done = hcdc_run(capsys, "inspect", "a.hcdc", "--json", "a.evaluation.json")
    assert_refused(place, before, *done, "--json a.evaluation.json: this is the same file as its evaluation")


def test_a_copy_that_a_search_used_is_read_and_kept(place, capsys):
    mine = ("search", *MINE, "--copy", "a.hcdc", "--budget", "1s", "--json", "r.json", "--rungs", "full")
    (place / "own_code.py").write_text(OBJECTIVE.replace("np.zeros((40, 1)", "np.zeros((40, 2)"))
    code, _, err = hcdc_run(capsys, *mine)
    assert code == 0, err
    before = files(place)
    done = hcdc_run(capsys, "report", "r.json", "--out", "a.hcdc")
    assert_refused(place, before, *done, "--out a.hcdc: this is the same file as its copy")
