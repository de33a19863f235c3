"""Searchers by name."""

from __future__ import annotations

from typing import Any, TypeVar

from hcdc.core.errors import InputError, unknown_name
from hcdc.search.searchers._base import Searcher
from hcdc.spaces import Space
from hcdc.tasks import Task

Kind = TypeVar("Kind", bound=type[Searcher])

SEARCHERS: dict[str, type[Searcher]] = {}
"""The registered searchers by name."""


def register_searcher(kind: Kind) -> Kind:
    """Class decorator: register a `Searcher` subclass under its class attribute ``name``.

    Raises:
        ValueError: Another class already has that name (a programming error, not a user error).
    """
    if kind.name in SEARCHERS:
        raise ValueError(
            f"a searcher named '{kind.name}' is registered already: {SEARCHERS[kind.name].__qualname__}"
        )
    SEARCHERS[kind.name] = kind
    return kind


def searcher(name: str, space: Space, seed: int = 0, task: Task | None = None, **settings: Any) -> Searcher:
    """The searcher of that name.

    Args:
        name: One of `SEARCHERS`.
        space: The search space.
        seed: The user's seed.
        task: The task; only searchers that train themselves need it, the others ignore it.
        settings: Settings of the searcher; for one that trains itself also ``train`` and ``val``.

    Example:
        >>> from hcdc.spaces import Finite
        >>> asked = searcher("grid", Finite("depth", [2, 4]))
        >>> asked.ask(), asked.ask()
        ({'depth': 2}, {'depth': 4})
    """
    if name not in SEARCHERS:
        raise unknown_name("searcher", name, SEARCHERS)
    kind = SEARCHERS[name]
    if not kind.needs_task:
        return kind(space, seed, **settings)
    if task is None:
        raise InputError(f"searcher '{name}' trains on a task itself; pass task=")
    return kind(space, seed, task=task, **settings)
