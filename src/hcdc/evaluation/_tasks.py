"""The task that a copy was made for: the one in memory, or rebuilt from the source named in the file."""

from __future__ import annotations

from typing import Any

from hcdc.core.errors import InputError
from hcdc.datasets import CondensedDataset, reopen
from hcdc.tasks import Task, task_from_spec


def reopen_task(small: CondensedDataset, model: Any = None, download: bool = True) -> Task:
    """The task on the original data of a copy, read again from its source.

    Args:
        small: The condensed data set.
        model: The user's own model that it was made with, since a file holds no code.
        download: Whether data may be downloaded.
    """
    spec = small.meta["task"]
    if model is not None:
        if ":" not in str(spec.get("model")):
            raise InputError("model: the copy was not made with your own model; leave it out")
        spec = {**spec, "model": model}
    return task_from_spec(spec, reopen(small.meta["data"], download))


def task_of(small: CondensedDataset, task: Task | None = None) -> Task:
    """The given task if it fits, else the one that made the copy in this process, else `reopen_task`."""
    if task is None:
        made: Task | None = small.task
        return reopen_task(small) if made is None else made
    if not task.same_as(small.meta["task"]):
        raise InputError(f"task {task.spec()}: the copy was made for {small.meta['task']}; pass that one")
    wanted = small.meta["data"].get("fingerprint")
    if (found := task.fingerprint()) != wanted:
        raise InputError(
            f"task: its data '{task.name}' has fingerprint {found}, but the copy was made from data with "
            f"fingerprint {wanted}; pass the original data"
        )
    return task
