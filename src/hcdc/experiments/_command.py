"""The way in for ``python -m hcdc.experiments.MODULE``: errors are sentences."""

from __future__ import annotations

import sys
from collections.abc import Callable

from hcdc.core.errors import HcdcError, InputError


def as_command(main: Callable[[], None]) -> None:
    """Run a module's ``main``; input that cannot be used ends with a sentence and exit code 2.

    Other errors of ours end with exit code 1; what should not happen keeps its traceback.
    """
    try:
        main()
    except FileNotFoundError as error:
        _stop(f"'{error.filename}' does not exist", 2)
    except HcdcError as error:
        _stop(str(error), 2 if isinstance(error, InputError) else 1)


def integers(argument: str, text: str) -> list[int]:
    """The numbers of an argument such as ``--seeds 100,101``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f"{argument} {text}: give whole numbers from 0 on, with commas between them")
    return numbers


def _stop(sentence: str, code: int) -> None:
    sys.stderr.write(f"hcdc: {sentence}\n")
    raise SystemExit(code) from None
