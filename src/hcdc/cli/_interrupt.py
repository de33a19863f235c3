"""Ctrl-C at any time: one sentence, exit code 130. Imports nothing that takes long to load."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SENTENCE = "interrupted; the same command continues where this one stopped"
EXIT_CODE = 130


def _leave(*_: object) -> None:
    sys.stderr.write(f"hcdc: {SENTENCE}\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


@contextmanager
def one_sentence_while_loading() -> Iterator[None]:
    """End the process at Ctrl-C while modules load.

    There is nothing to save then, and an exception could be caught or printed by the module being loaded.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else answers Ctrl-C
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: TorchScript and the command parser raise others in its place."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        if isinstance(error, RuntimeError) and "KeyboardInterrupt" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
