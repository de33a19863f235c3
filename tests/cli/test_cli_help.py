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


def test_the_help_names_every_way_to_condense(capsys):
    """A method is listed under each kind of data that it takes, if not under all."""
    from hcdc.condensers import REDUCERS, VALIDATIONS

    out = " ".join(hcdc_run(capsys, "condense", "--help")[1].split())
    listed = out.partition("How to condense.")[2].partition("[default")[0]
    everything, graphs = listed.partition("Graphs: ")[::2]
    graphs, images = graphs.partition("Images: ")[::2]
    own = [each for each in REDUCERS.values() if each.__module__.startswith("hcdc.")]
    every = {each.name for each in own if not each.takes or {"graph", "image", "table"} <= {*each.takes}}
    assert {*everything.partition("All data: ")[2].strip(" .").split(", ")} == {"hcdc", *every}
    for kind, text in (("graph", graphs), ("image", images)):
        takes = {each.name for each in own if each.takes and each.name not in every and kind in each.takes}
        assert {*text.strip(" .").split(", ")} == takes
    ways = [way.name for way in VALIDATIONS.values() if way.__module__.startswith("hcdc.")]
    assert [name for name in ways if name not in out.partition("How to make S_val:")[2]] == []


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
