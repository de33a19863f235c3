"""Plugins: modules that register kinds of data, tasks, spaces, condensers or rivals.

Installed packages list them in the entry point group ``hcdc.plugins``. Other modules are imported by name or
file path. Nothing named in a condensed file is imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from hcdc.core.errors import InputError

GROUP = "hcdc.plugins"
log = logging.getLogger("hcdc")


@functools.cache
def load_plugins() -> None:
    """Import the plugins of installed packages, once; log a warning for each that fails."""
    for entry in metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            log.warning("plugin '%s' (%s) cannot be loaded: %s", entry.name, entry.value, _reason(error))


def import_module_or_file(text: str) -> ModuleType:
    """Import a module, once.

    Args:
        text: A module name (modules in the current folder work too) or the path of a ``.py`` file. A file is
            imported under its own name and may import its neighbours.

    Raises:
        InputError: The module does not exist or fails to import.
    """
    place = Path(text)
    try:
        if place.suffix == ".py":
            return _import_file(place.resolve())
        _add_folder(os.getcwd())
        return importlib.import_module(text)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"'{text}' cannot be imported: {_reason(error)}") from error


def load_attribute(text: str) -> Any:
    """The object named by ``MODULE:NAME`` or ``FILE.py:NAME``."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise InputError(f"'{text}' must be FILE.py:NAME or MODULE:NAME")
    module = import_module_or_file(place)
    try:
        return functools.reduce(getattr, name.split("."), module)
    except AttributeError as error:
        raise InputError(f"'{place}' has no '{name}'; define it there, or give another name") from error


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise InputError(f"the file '{file}' does not exist")
    known = sys.modules.get(file.stem)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == file:
            return known
        raise InputError(f"'{file}': another module is named '{file.stem}' already; rename the file")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    _add_folder(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise
    return module


def _add_folder(folder: str) -> None:
    """Search a folder for modules, after all other places."""
    if folder not in sys.path:
        sys.path.append(folder)


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
