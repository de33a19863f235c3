"""What the last line says to do next can be done, and reports beside a copy are shown with it."""

import shlex

import numpy as np
import pytest
from command_line import OBJECTIVE, hcdc_run

NO_DATA = OBJECTIVE.replace("def data(", "def other(")


@pytest.fixture
def place(tmp_path, monkeypatch, capsys):
    """A folder with a table, a copy of it and a module to import."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(120, 2))
    rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in x]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    (tmp_path / "carried.py").write_text("")
    _condense(capsys)
    return tmp_path


def _condense(capsys, *flags):
    code, _, err = hcdc_run(
        capsys, "condense", "--dataset", "rows.csv", "--target", "label", "--method", "random",
        "--train-size", "8", "--out", "a.hcdc", "--recipe", "steps=5", "--full-recipe", "steps=5",
        "--device", "cpu", *flags,
    )  # fmt: skip
    assert code == 0, err


def _following(text):
    """The words of the command that the last line suggests."""
    return shlex.split(text.splitlines()[-1].partition("next: hcdc ")[2])


def test_the_search_after_trust_brings_what_the_copy_needs(place, capsys):
    code, out, err = hcdc_run(
        capsys, "trust", "a.hcdc", "--probes", "4", "--import", "carried.py", "--device", "cpu"
    )
    assert code == 0, err
    assert _following(out) == ["search", "a.hcdc", "--trials", "200", "--import", "carried.py"]


def test_the_search_after_trust_in_an_objective_has_its_data(place, capsys):
    (place / "no_data.py").write_text(NO_DATA)
    rows = ("--dataset", "rows.csv", "--target", "label", "--split-seed", "1")
    code, out, err = hcdc_run(
        capsys, "trust", "--objective", "no_data.py:objective", *rows, "--rung", "short:0.5", "--probes", "4"
    )
    assert code == 0, err
    following = _following(out)
    assert following[-6:] == [*rows]
    code, out, err = hcdc_run(capsys, *following, "--budget", "1s")
    assert code == 0, err


@pytest.mark.parametrize(
    "command",
    [("evaluate", "a.hcdc", "--candidates", "4", "--no-rivals"), ("search", "a.hcdc", "--trials", "4")],
)
def test_a_result_on_standard_output_is_not_called_a_file(place, capsys, command):
    code, _, err = hcdc_run(capsys, *command, "--json", "-", "--device", "cpu")
    assert code == 0, err
    assert err.splitlines()[-1] == (
        "wrote the result to stdout; next: save it as FILE.json, then hcdc report FILE.json --out report.html"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("search", "a.hcdc", "--trials", "0"), "--trials 0: at least 2 configurations"),
        (("search", "a.hcdc", "--trials", "1"), "--trials 1: at least 2 configurations"),
        (("trust", "a.hcdc", "--probes", "3"), "--probes 3: at least 4 are needed"),
    ],
)
def test_a_number_that_is_too_small_is_refused_before_anything_is_announced(place, capsys, command, said):
    code, out, err = hcdc_run(capsys, *command, "--device", "cpu")
    assert (code, out) == (2, "")
    assert err.startswith(f"hcdc: {said}")


def test_inspect_shows_the_trust_report_of_this_copy_alone(place, capsys):
    alone = hcdc_run(capsys, "inspect", "a.hcdc")[1]
    assert "its ranking quality is unknown" in alone
    assert "train method       random" in alone
    assert hcdc_run(capsys, "trust", "a.hcdc", "--probes", "4", "--device", "cpu")[0] == 0
    told = hcdc_run(capsys, "inspect", "a.hcdc")[1]
    assert "from 4 probes the rank correlation is" in told
    assert "its ranking quality is unknown" not in told

    _condense(capsys, "--seed", "1", "--force")  # the report is about the copy that was there before
    assert hcdc_run(capsys, "inspect", "a.hcdc")[1].count("unknown") == alone.count("unknown")

    (place / "a.trust.json").write_text("[1]")
    assert hcdc_run(capsys, "inspect", "a.hcdc")[0] == 0
