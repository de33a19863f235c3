"""Turns flags into a task, its space, sizes and a table of full-data results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hcdc.cli._arguments import settings
from hcdc.core.errors import InputError, unknown_name
from hcdc.datasets import Dataset
from hcdc.spaces import Space, Training, from_spec
from hcdc.tasks import Task, task_class, task_for
from hcdc.truth import BENCHMARKS, NASBench201Table, TableTruth


def task_and_space(
    data: Dataset, space: str | None, setting: str | None, model: str | None
) -> tuple[Any, Space]:
    """The task for the data, and its search space; some tasks have only one, beside their training."""
    form = task_class(data.kind)
    training = (space or "").partition(",")[0] == Training.name
    if not form.spaces and space is not None and not training:
        raise InputError(
            f"--space {space}: '{data.name}' is {data.words}, which has its own space; leave it out"
        )
    task: Any = task_for(data, setting=setting, model=model)
    if space is not None and training:
        return task, _training(space, task)
    return task, _space(space or form.spaces[0]) if form.spaces else task.space()


def _space(text: str) -> Space:
    """The space ``NAME`` or ``NAME,KEY=VALUE,...``."""
    name, *pairs = text.split(",")
    usual = {key: value for key, value in from_spec({"name": name}).spec().items() if key != "name"}
    given = settings(pairs, "--space", f"--space {name},{next(iter(usual), 'KEY')}=2")
    for key, value in given.items():
        if key not in usual:
            raise unknown_name(f"--space {name}: setting", key, usual)
        wanted = type(usual[key])
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise InputError(
                f"--space {name}: {key} must be {wanted.__name__}, as in {key}={usual[key]}, got {value!r}"
            )
    return from_spec({"name": name, **given})


def _training(text: str, task: Task) -> Training:
    """``training``: the usual settings that the task reads; or ``training,settings=lr+dropout``."""
    given = settings(text.split(",")[1:], "--space", "--space training,settings=lr+dropout")
    for key in given.keys() - {"settings"}:
        raise unknown_name("--space training: setting", key, ["settings"])
    if given:
        return Training(str(given["settings"]).split("+"))
    usual = Training()
    unread = usual.unread(task.reads(usual), task.training)
    return Training([d.name for d in usual.dimensions() if d.name not in unread])


def check_image_flags(data: Dataset, **given: object) -> None:
    """Refuse flags for images if the data is of another kind."""
    for name, value in given.items():
        if value is not None and data.kind != "image":
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} {value}: this flag is for images, but '{data.name}' is {data.words}")


def total_size(
    flags: tuple[str, str], size: int | None, per_class: int | None, task: Any, part: str
) -> int | None:
    """The total size, from either flag: a total, or images per class."""
    if size is not None and per_class is not None:
        raise InputError(f"{flags[0]} {size} and {flags[1]} {per_class} set the same size; give one of them")
    if per_class is None:
        return size
    if per_class < 1:
        raise InputError(f"{flags[1]} {per_class}: at least 1 is needed")
    counts = getattr(task, part).y.bincount(minlength=task.num_classes)
    least = int(counts.argmin())
    if per_class > (most := int(counts[least])):
        lacks = f"has only {most} {part} images; choose at most {most}"
        if most == 0:
            lacks = f"has no {part} images; add some, or use the real ones there are with --val-method real"
        raise InputError(f"{flags[1]} {per_class}: class {least} ('{task.data.class_names[least]}') {lacks}")
    return per_class * int(task.num_classes)


def truth_table(path: Path | None, dataset: str | None, name: str) -> TableTruth | None:
    """The table of full-data results for the data called ``name``."""
    if path is None:
        if dataset is not None:
            raise InputError(f"--truth-dataset {dataset}: it needs --truth FILE")
        return None
    if dataset is not None and dataset not in BENCHMARKS:
        raise unknown_name("--truth-dataset", dataset, BENCHMARKS)
    if dataset is not None and name in BENCHMARKS and name != dataset:
        raise InputError(f"--truth-dataset {dataset}: the data is '{name}'; leave the flag out")
    told = dataset or name
    if told not in BENCHMARKS:
        raise InputError(
            f"--truth {path}: the table has results for cifar10 and cifar100, but the data is '{name}'; if "
            "it is one of them under another name, say which with --truth-dataset"
        )
    return TableTruth(NASBench201Table(path), told)
