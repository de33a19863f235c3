"""A fingerprint of an objective's code, so that a storage can tell an edited objective from the old one."""

from __future__ import annotations

import dis
import functools
import hashlib
from types import CodeType, FunctionType
from typing import Any

PLAIN = (str, bytes, bool, int, float, complex, tuple, frozenset)
"""What does not change while a search runs."""


def code_fingerprint(function: Any) -> str | None:
    """A hash of what a callable does; None for one without code of its own, such as a built-in.

    It covers the instructions, with their constants and names, of the function and of functions inside it,
    its defaults, and plain values and functions from the scope around it. Comments, docstrings, line numbers
    and file paths do not matter. Helpers and global variables that it merely names are not covered.
    """
    lines = _function(function, set())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32] if lines else None


def _function(function: Any, met: set[int]) -> list[str]:
    """What a callable does, line by line; nothing if it was met before."""
    if isinstance(function, functools.partial):
        named = [f"{name} {_text(value)}" for name, value in sorted(function.keywords.items())]
        return [*_function(function.func, met), _text(function.args), *named]
    if not hasattr(function, "__code__") and not isinstance(function, type):
        function = type(function).__call__  # an object that can be called
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or id(code) in met:
        return []
    met.add(id(code))
    lines = _instructions(code)
    lines += [_text(function.__defaults__), _text(tuple(sorted((function.__kwdefaults__ or {}).items())))]
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        if f"STORE_DEREF {name!r}" in lines:  # a counter of its own
            continue
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if isinstance(value, FunctionType):
            lines += [name, *_function(value, met)]
        elif isinstance(value, PLAIN):
            lines += [name, _text(value)]
    return lines


def _instructions(code: CodeType) -> list[str]:
    """Names of operations and what they work on, those of code inside included."""
    found = [_text(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])]
    for step in dis.get_instructions(code):
        if isinstance(step.argval, CodeType):
            found += [step.opname, *_instructions(step.argval)]
        elif step.opname != "EXTENDED_ARG":
            found.append(f"{step.opname} {_text(step.argval)}")
    return found


def _text(value: Any) -> str:
    """A plain value, or a tuple or frozen set of them, in one spelling; the type of what may change."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__
