"""Reducers by name, with the reference settings as named presets (JSON files beside this module)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from hcdc.condensers._base import Reducer
from hcdc.condensers._dc import DC, DSA
from hcdc.condensers._dm import DM
from hcdc.condensers._gcond import GCond, GCondX
from hcdc.condensers._herding import Herding
from hcdc.condensers._kcenter import KCenter
from hcdc.condensers._kip import KIP
from hcdc.condensers._random import RandomReducer
from hcdc.condensers._reach import Reach
from hcdc.condensers._tm import TM
from hcdc.core.errors import unknown_name

REDUCERS: dict[str, type[Reducer]] = {
    reducer.name: reducer
    for reducer in (RandomReducer, Reach, KCenter, Herding, GCondX, GCond, DC, DSA, DM, KIP, TM)
}


@cache
def reducer_presets(name: str) -> dict[str, dict[str, Any]]:
    """The presets of a method: ``{preset: {"note": where it comes from, "settings": {...}}}``."""
    if name not in REDUCERS:
        raise unknown_name("method", name, REDUCERS)
    text = resources.files("hcdc.condensers").joinpath("presets", f"{name}.json").read_text()
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets


def make_reducer(name: str, preset: str | None = None, **overrides: Any) -> Reducer:
    """A reducer by name.

    Args:
        name: One of `REDUCERS`.
        preset: One of `reducer_presets(name)`; None takes the defaults of the class.
        overrides: Settings that differ from the preset.

    Example:
        >>> make_reducer("gcond", "cora", epochs=100).settings()["epochs"]
        100
    """
    presets = reducer_presets(name)
    return REDUCERS[name].from_preset(preset, overrides, presets)
