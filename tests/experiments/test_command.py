"""The way in for experiment modules: sentences and exit codes."""

import importlib
import runpy
import sys

import pytest

from hcdc.core.errors import InputError, NumericalError
from hcdc.experiments._command import as_command, integers


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("dataset 'foo' is not known"), 2, "hcdc: dataset 'foo' is not known\n"),
        (NumericalError("the loss is not finite"), 1, "hcdc: the loss is not finite\n"),
        (FileNotFoundError(2, "No such file", "a.jsonl"), 2, "hcdc: 'a.jsonl' does not exist\n"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(capsys, error, code, said):
    def main():
        raise error

    with pytest.raises(SystemExit) as left:
        as_command(main)
    assert left.value.code == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("text", ["abc", "100,", "", "1.5", "3,-1"])
def test_numbers_are_whole_and_not_negative(text):
    assert integers("--seeds", "100, 7") == [100, 7]
    with pytest.raises(InputError, match=f"--seeds {text}: give whole numbers from 0 up"):
        integers("--seeds", text)


def test_what_should_not_happen_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        as_command(lambda: 1 / 0)
    as_command(lambda: None)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules.*:RuntimeWarning")
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("nas201", ["--table", "absent.csv"]),
        ("convnet_accuracy", []),
        ("filters80", ["--sizes", "9", "--seeds", "0"]),
        ("gcn_accuracy", ["--sizes", "9"]),
        ("zoo", []),
    ],
)
def test_an_unknown_data_set_is_refused_by_every_module(tmp_path, monkeypatch, capsys, module, arguments):
    monkeypatch.chdir(tmp_path)
    name = f"hcdc.experiments.{module}"
    importlib.import_module(name)
    monkeypatch.setattr(sys, "argv", [module, "--dataset", "foo", "--out", "r.jsonl", *arguments])
    with pytest.raises(SystemExit) as left:
        runpy.run_module(name, run_name="__main__")
    err = capsys.readouterr().err
    assert left.value.code == 2, err
    assert err.startswith("hcdc: ")
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_tables_of_a_record_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tables", str(tmp_path / "absent.jsonl")])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(importlib.import_module("hcdc.experiments.tables").__file__, run_name="__main__")
    assert left.value.code == 2
    assert "absent.jsonl' does not exist" in capsys.readouterr().err
