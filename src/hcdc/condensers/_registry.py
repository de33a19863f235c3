"""Reducers by name, with reference settings as named presets (JSON files beside this module)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from hcdc.condensers._base import Reducer
from hcdc.condensers._dc import DC, DSA
from hcdc.condensers._dm import DM
from hcdc.condensers._gcond import GCond, GCondX
from hcdc.condensers._herding import Herding
from hcdc.condensers._kcenter import KCenter
from hcdc.condensers._kip import KIP
from hcdc.condensers._neighbours import Neighbours
from hcdc.condensers._random import RandomReducer
from hcdc.condensers._reach import Reach
from hcdc.condensers._tm import TM
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.settings import Presets
from hcdc.tasks import Task

REDUCERS: dict[str, type[Reducer]] = {}
"""Every method that makes S_train, by name."""

PRESETS: dict[str, Presets] = {}
"""The presets of each method, once loaded."""

BARE: Presets = {"default": {"note": "the defaults of the class", "settings": {}}}


def register_reducer(reducer: type[Reducer], presets: Presets | None = None) -> type[Reducer]:
    """Register a method under its ``name`` for `condense` and the command line.

    Args:
        reducer: The class; also works as a decorator.
        presets: Named settings, ``{preset: {"note": source, "settings": {...}}}``.

    Example:
        >>> from dataclasses import dataclass
        >>> import hcdc
        >>> @hcdc.condensers.register_reducer
        ... @dataclass(frozen=True)
        ... class First(hcdc.condensers.Reducer):
        ...     name = "first"
        ...     def reduce(self, task, part, size, seed, *, progress, checkpoint):
        ...         return task.sample(part, size, 0)
        >>> hcdc.condensers.make_reducer("first")
        First()
    """
    known = REDUCERS.get(reducer.name, reducer)
    if (known.__module__, known.__qualname__) != (reducer.__module__, reducer.__qualname__):
        raise InputError(
            f"method '{reducer.name}' is {known.__module__}.{known.__qualname__} already; choose another name"
        )
    for preset, content in (presets or {}).items():
        reducer(**content["settings"])
        if "note" not in content:
            raise InputError(f"preset '{preset}' of method '{reducer.name}' needs a note")
    REDUCERS[reducer.name], PRESETS[reducer.name] = reducer, {**BARE, **(presets or {})}
    return reducer


def reducer_presets(name: str) -> Presets:
    """The presets of a method: ``{preset: {"note": source, "settings": {...}}}``."""
    if name not in REDUCERS:
        raise unknown_name("method", name, REDUCERS)
    if name not in PRESETS:
        text = resources.files("hcdc.condensers").joinpath("presets", f"{name}.json").read_text()
        PRESETS[name] = json.loads(text)
    return PRESETS[name]


def make_reducer(name: str, preset: str | None = None, **overrides: Any) -> Reducer:
    """A reducer by name.

    Args:
        name: One of `REDUCERS`.
        preset: One of `reducer_presets(name)`; None takes the class defaults.
        overrides: Settings that differ from the preset.

    Example:
        >>> make_reducer("gcond", "cora", epochs=100).settings()["epochs"]
        100
    """
    presets = reducer_presets(name)
    return REDUCERS[name].from_preset(preset, overrides, presets)


def reducer_for(
    name: str, task: Task, preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Reducer, str]:
    """A reducer for a task, and its preset.

    The preset is the given one, else the one named like the data set, else the default, with settings that
    suit the task. A preset that the method lacks counts as not given.
    """
    presets = reducer_presets(name)
    REDUCERS[name].check_task(task)
    for choice in (preset or "default", task.name.removesuffix("-embedded")):
        if choice in presets and choice != "default":
            return make_reducer(name, choice, **(overrides or {})), choice
    fitting = {**REDUCERS[name].defaults_for(task), **(overrides or {})}
    return make_reducer(name, "default", **fitting), "default"


REDUCERS.update(
    (reducer.name, reducer)
    for reducer in (RandomReducer, Reach, Neighbours, KCenter, Herding, GCondX, GCond, DC, DSA, DM, KIP, TM)
)
