"""Ctrl-C: one sentence and exit code 130, whenever it comes."""

import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from command_line import hcdc_run

import hcdc
from hcdc.cli._interrupt import is_interruption
from hcdc.condensers import Plan

SAID = "hcdc: interrupted; the same command continues where this one stopped\n"


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=120
    )


def test_torch_is_not_loaded_before_the_command_answers():
    done = python("import sys, hcdc.cli; print('torch' in sys.modules, 'typer' in sys.modules)")
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize("module", ["typer", "torch", "scipy.sparse", "hcdc.cli.report"])
def test_while_modules_load(module):
    """The process is interrupted at the moment in which a module is looked for."""
    done = python(
        """
        import os, signal, sys

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it

        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == sys.argv[1]:
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupt())
        from hcdc.cli import main
        main(["inspect", "none.hcdc"])
        """,
        module,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", SAID)


def test_ctrl_c_is_the_users_again_when_all_is_loaded(capsys):
    before = signal.getsignal(signal.SIGINT)
    assert hcdc_run(capsys, "--version")[0] == 0
    assert signal.getsignal(signal.SIGINT) is before


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


ALONE = RuntimeError("The following operation failed in the TorchScript interpreter.\nKeyboardInterrupt: ")
WRAPPED = hcdc.InputError("the module does not take images of shape (3,)")
WRAPPED.__cause__ = ALONE


@pytest.mark.parametrize("error", [ALONE, WRAPPED, KeyboardInterrupt()], ids=["alone", "wrapped", "plain"])
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_inside_torchscript(tmp_path, monkeypatch, capsys, error, debug):
    monkeypatch.setattr(Plan, "run", failing(error))
    given = ("--dataset", "embedded", "--method", "random", "--train-size", "12", "--quiet")
    run = hcdc_run(capsys, "condense", *given, "--out", tmp_path / "a.hcdc", *debug)
    assert run == (130, "", SAID)


def test_a_real_interruption_of_torchscript_is_known():
    """The function that TorchScript calls back is interrupted."""

    @torch.jit.ignore
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return interrupted(x)

    with pytest.raises(BaseException) as caught:
        scripted(torch.zeros(1))
    assert is_interruption(caught.value)


def test_other_errors_are_no_interruption():
    assert not is_interruption(RuntimeError("shapes do not match"))
    assert not is_interruption(ValueError("KeyboardInterrupt"))
