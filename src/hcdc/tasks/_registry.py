"""Tasks by kind: finds the task that a condensed file names, or that fits a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from hcdc.core.errors import InputError, unknown_name
from hcdc.tasks._base import Task

Kind = TypeVar("Kind", bound=type[Task])

_TASKS: dict[str, type[Task]] = {}


def register_task(task: Kind) -> Kind:
    """Class decorator that registers a `Task` subclass by its ``kind``.

    Raises:
        ValueError: If another class has that kind.
    """
    if task.kind in _TASKS:
        raise ValueError(
            f"a task of kind '{task.kind}' is registered already: {_TASKS[task.kind].__qualname__}"
        )
    _TASKS[task.kind] = task
    return task


def task_class(kind: str) -> type[Task]:
    """The task registered for a kind of data."""
    if kind not in _TASKS:
        raise unknown_name("task", kind, _TASKS)
    return _TASKS[kind]


def task_from_spec(spec: Mapping[str, Any], data: Any) -> Task:
    """The task described by ``spec`` (from `Task.spec`), on its data."""
    return task_class(str(spec.get("name"))).from_spec(spec, data)


def task_for(data: Any, **flags: Any) -> Task:
    """The task for a data set; ``flags`` come from the command line, None if not given."""
    found = task_class(data.kind)
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in given.items():
        if name not in found.flags:
            raise InputError(f"--{name} {value}: '{data.name}' is {data.words}; leave it out")
    return found.from_flags(data, **given)
