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


def test_tables_of_a_record_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tables", str(tmp_path / "absent.jsonl")])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(importlib.import_module("hcdc.experiments.tables").__file__, run_name="__main__")
    assert left.value.code == 2
    assert "absent.jsonl' does not exist" in capsys.readouterr().err
