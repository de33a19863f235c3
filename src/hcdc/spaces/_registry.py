"""Spaces by name: rebuilds a space from the description stored in a condensed file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from hcdc.core.errors import InputError, unknown_name
from hcdc.spaces._base import Space

Kind = TypeVar("Kind", bound=type[Space])

_SPACES: dict[str, type[Space]] = {}


def register(kind: Kind) -> Kind:
    """Class decorator: register a `Space` subclass under its class attribute ``name``.

    ``kind(**settings)`` must rebuild the space from what ``spec()`` returns besides ``"name"``. If the
    constructor takes other arguments, define a classmethod ``from_settings(**settings)`` instead.

    Raises:
        ValueError: Another class already has that name (a programming error, not a user error).
    """
    if kind.name in _SPACES:
        raise ValueError(
            f"a space named '{kind.name}' is registered already: {_SPACES[kind.name].__qualname__}"
        )
    _SPACES[kind.name] = kind
    return kind


def from_spec(spec: Mapping[str, Any]) -> Space:
    """The space that ``spec`` (made by `Space.spec`) describes.

    Raises:
        InputError: The name is unknown, or the settings do not fit that space.
    """
    settings = dict(spec)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise InputError(
            f"a space specification needs a text 'name', found {name!r}; use what Space.spec() returns"
        )
    if name not in _SPACES:
        raise unknown_name("space", name, _SPACES)
    make: Any = getattr(_SPACES[name], "from_settings", _SPACES[name])
    try:
        inspect.signature(make).bind(**settings)
    except TypeError as error:
        raise InputError(f"the specification of space '{name}' does not fit it: {error}") from error
    space: Space = make(**settings)
    return space
