"""The help: every command is listed in one line, everything fits 80 columns."""

import subprocess
import sys
import textwrap

import pytest
from command_line import hcdc_run

from hcdc.cli import COMMANDS
from hcdc.evaluation.trust import FEWEST


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


def test_the_help_of_probes_says_how_many_it_takes_to_trust(capsys):
    _, out, _ = hcdc_run(capsys, "trust", "--help")
    assert f"Fewer than {FEWEST} never say 'trust'." in " ".join(out.split())


def test_without_arguments_the_help_is_shown(capsys):
    code, out, err = hcdc_run(capsys)
    assert code in (0, 2)  # by the version of typer
    assert "Commands" in out + err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)])
def test_the_help_does_not_wait_for_torch(arguments):
    code = """
        import atexit, sys
        from hcdc.cli import main
        atexit.register(lambda: print("torch" in sys.modules))
        main(sys.argv[1:])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
