"""What is printed fits the terminal and loses nothing."""

import re

import numpy as np
import pytest
from command_line import hcdc_run

from hcdc.cli._show import show_table
from hcdc.reporting import COLUMNS, Row

ROWS = [
    Row("hcdc (reach + both)", "copy", spearman=0.8123, interval=(0.7012, 0.9034), test=0.8123, once=1234.5,
        per_trial=0.5, search=41.25, break_even=12345),
    Row("real-val-loss", "rival", of="hcdc", spearman=-0.25, interval=(-0.5, 0.125), test=0.715, once=60.0,
        per_trial=3.0, search=88.8),
    Row("full data", "full", test=0.8345, once=0.0, per_trial=2.0, search=160.0),
]  # fmt: skip


def figures(text):
    return re.findall(r"\d[\d,.]*", text)


@pytest.mark.parametrize("width", [20, *range(40, 100, 5), *range(72, 80), 120, 200])
def test_every_number_is_there_at_every_width(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show_table(ROWS, quiet=False)
    out = capsys.readouterr().out
    for row in ROWS:
        for column in COLUMNS:
            for figure in figures(column.cell(row)) if column.narrow else ():
                assert figure in figures(out), (column.heading, out)
    if width >= 60:
        assert max(map(len, out.splitlines())) <= width
    if not 60 < width < 120:  # one line per figure on a narrow terminal
        assert ("break-even (trials)" in out) == (width <= 60)


def test_a_file_gets_a_table_of_120_columns(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    show_table(ROWS, quiet=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines[-len(ROWS) :]] == [row.name for row in ROWS]


def test_a_space_fits_a_screen(tmp_path, monkeypatch, capsys):
    """A table of 40 features has 40 penalties, which are counted and not listed."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = [f"feature_{k}" for k in range(40)]
    rows = [",".join(f"{value:.2f}" for value in row) for row in rng.standard_normal((60, 40))]
    lines = [",".join([*names, "label"]), *(f"{row},{k % 2}" for k, row in enumerate(rows))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    given = ("--dataset", "t.csv", "--target", "label", "--method", "random", "--train-size", "8")
    code, out, err = hcdc_run(capsys, "condense", *given, "--out", "a.hcdc", "--device", "cpu")
    assert code == 0, err
    inspected = hcdc_run(capsys, "inspect", "a.hcdc")[1]
    for text in (out, inspected):
        (told,) = re.findall(r"^space +(.*)$", text, re.MULTILINE)
        assert 0 < len(told) <= 100
    assert "40 penalties" in out


def test_quiet_says_nothing(capsys):
    show_table(ROWS, quiet=True)
    assert capsys.readouterr().out == ""
