"""The command ``hcdc``, one module per command: parse, call, print.

Errors are one sentence on stderr. Exit codes: 2 for invalid input (nothing is written), 1 for a failed
computation, 130 for Ctrl-C. Tracebacks appear only with ``--debug``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from hcdc.cli import _clock
from hcdc.cli._interrupt import one_sentence_while_loading
from hcdc.core.threads import wait_briefly

__all__ = ["main"]

COMMANDS = ("search", "plan", "condense", "evaluate", "trust", "inspect", "report", "reproduce", "demo")
"""In the order of the help."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; always raises `SystemExit`."""
    _clock.start()
    wait_briefly()
    with one_sentence_while_loading():
        from hcdc.cli._app import run

        for name in COMMANDS:
            importlib.import_module(f"hcdc.cli.{name}")
    run(argv)
