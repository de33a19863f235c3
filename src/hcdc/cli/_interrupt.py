"""Ctrl-C at any time gives one sentence and exit code 130. Imports nothing slow."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SENTENCE = "interrupted; the same command continues where this one stopped"
EXIT_CODE = 130


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence of the command's own."""


def _leave(*_: object) -> None:
    sys.stderr.write(f"hcdc: {SENTENCE}\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


@contextmanager
def one_sentence_while_loading() -> Iterator[None]:
    """End the process at once if Ctrl-C is pressed while modules load.

    Nothing has to be saved, and the module being loaded might catch or print an exception.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else handles Ctrl-C
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def own_sentence(sentence: str) -> Iterator[None]:
    """Say ``sentence`` if Ctrl-C is pressed in this block."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if is_interruption(error):
            raise Interrupted(sentence) from None
        raise


def kept_in(storage: Path | None) -> str:
    """Where finished trials are kept."""
    return "nowhere; --storage FILE keeps them" if storage is None else str(storage)


def if_interrupted(storage: Path | None) -> str:
    """What Ctrl-C costs a command that keeps finished trials in a storage."""
    kept = f"finished trials are in {storage}, and the same command continues"
    lost = "nothing was kept; --storage FILE keeps finished trials"
    return f"interrupted; {lost if storage is None else kept}"


def is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error; TorchScript and the command parser raise others in its place."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        if isinstance(error, RuntimeError) and "KeyboardInterrupt" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
