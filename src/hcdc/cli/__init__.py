"""The command ``hcdc``, one module per command: parse, call, print.

Errors are one sentence on stderr: exit code 2 for input that cannot be used (nothing is written then), 1 for
a computation that failed, 130 for Ctrl-C. Tracebacks appear only with ``--debug``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from hcdc.cli._interrupt import one_sentence_while_loading

__all__ = ["main"]

COMMANDS = ("condense", "evaluate", "inspect", "report", "demo")
"""In the order in which the help lists them."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; always leaves by `SystemExit`."""
    with one_sentence_while_loading():  # torch and the commands, which takes a second or more
        from hcdc.cli._app import run

        for name in COMMANDS:
            importlib.import_module(f"hcdc.cli.{name}")
    run(argv)
