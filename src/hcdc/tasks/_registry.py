"""Tasks by kind: a condensed file names its task, and a data set finds the task that learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from hcdc.core.errors import InputError, unknown_name
from hcdc.tasks._base import Task

Kind = TypeVar("Kind", bound=type[Task])

_TASKS: dict[str, type[Task]] = {}


def register_task(task: Kind) -> Kind:
    """Class decorator: make a `Task` subclass known by its ``kind``.

    Raises:
        ValueError: Another class has that kind already.
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
    """The task that ``spec`` (made by `Task.spec`) describes, on its data."""
    return task_class(str(spec.get("name"))).from_spec(spec, data)


def task_for(data: Any, **flags: Any) -> Task:
    """The task for a data set; ``flags`` are those of the command line, None where they were not given."""
    found = task_class(data.kind)
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in given.items():
        if name not in found.flags:
            raise InputError(f"--{name} {value}: '{data.name}' is {data.words}; leave it out")
    return found.from_flags(data, **given)
