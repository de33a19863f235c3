"""Errors are sentences: what is wrong, what was found, what is allowed."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class HcdcError(Exception):
    """Base of every error that hcdc raises on purpose; the text is one sentence for the user."""


class InputError(HcdcError):
    """The user's input cannot be used; the command exits with code 2 and writes nothing."""


class NumericalError(HcdcError):
    """A computation produced NaN or infinity, or a solver cannot go on; the text is a diagnosis."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice spelled most like ``name``, ignoring case; None if none is close."""
    plain = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
    return plain[near[0]] if near else None


def unknown_name(what: str, name: str, choices: Iterable[str]) -> InputError:
    """An `InputError` for a name outside ``choices``; it suggests the nearest match.

    Args:
        what: What the name stands for, e.g. ``"--method"``.
        name: The name given.
        choices: The allowed names.
    """
    allowed = sorted(choices)
    near = nearest(name, allowed)
    hint = f"did you mean '{near}'? " if near else ""
    return InputError(f"{what} '{name}' is not known; {hint}choose one of: {', '.join(allowed)}")


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra installs it.

    Args:
        module: Module to import, e.g. ``"torch_geometric"``.
        extra: The extra of this package that installs it, e.g. ``"graph"``.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise InputError(f"this needs the package '{package}': pip install 'hcdc[{extra}]'") from error
