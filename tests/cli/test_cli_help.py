"""The help: every command is listed in one line, everything fits 80 columns."""

import pytest
from command_line import hcdc_run

from hcdc.cli import COMMANDS


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_commands_are_listed_in_whole_sentences(capsys):
    code, out, _ = hcdc_run(capsys, "--help")
    assert code == 0
    listed = out.split("Commands")[1]
    assert [name for name in COMMANDS if name not in listed] == []
    assert "..." not in listed


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_names_what_every_command_takes(capsys, command):
    code, out, _ = hcdc_run(capsys, command, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for flag in ("--seed", "--device", "--json", "--debug", "--quiet"):
        assert flag in out
    assert ("--import" in out) == (command != "demo")


def test_without_arguments_the_help_is_shown(capsys):
    code, out, err = hcdc_run(capsys)
    assert code in (0, 2)  # by the version of typer
    assert "Commands" in out + err
