"""Checks that refuse bad arguments before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth

TRAIN = "train."
"""Before the name of a setting of HCDC: it is one of the method that makes S_train."""


def check_s_train(
    s_train: CondensedDataset,
    task: Task,
    train_size: int,
    train_method: str | None,
    method: str,
    options: Mapping[str, Any],
) -> str:
    """What made an S_train that is taken; refused where the other arguments say otherwise."""
    meta, size = s_train.meta, len(s_train.train)
    made = str(meta["train_method"])
    if meta["data"].get("fingerprint") != task.describe().get("fingerprint"):
        raise InputError(f"s_train is a copy of other data than '{task.name}'; give one of the same data")
    if train_size != size:
        raise InputError(f"train_size {train_size}: s_train has {size}; leave it out")
    if (train_method or made) != made or method not in ("hcdc", made):
        raise InputError(f"s_train was made by '{made}', not by '{train_method or method}'; leave that out")
    for name in options:
        if method != "hcdc" or name.startswith(TRAIN):
            raise InputError(f"setting '{name}': s_train is made already; leave it out")
    return made


def check_types(
    task: object, space: object, train_size: object, val_size: object, seed: object, truth_epochs: object
) -> None:
    """Refuse arguments of the wrong type."""
    for what, given, form, example in (
        ("task", task, Task, "a task, e.g. ImageTask(hcdc.data(...)) or GraphTask(...)"),
        ("space", space, Space, "a space, e.g. hcdc.spaces.NASBench201()"),
    ):
        if not isinstance(given, form):
            raise InputError(f"{what} is {type(given).__name__}; give {example}")
    whole = {"train_size": train_size, "seed": seed, "truth_epochs": truth_epochs}
    whole |= {} if val_size is None else {"val_size": val_size}
    for name, value in whole.items():
        if value is True or value is False or not isinstance(value, Integral):
            raise InputError(f"{name} {value!r}: give a whole number")
    if isinstance(seed, Integral) and seed < 0:
        raise InputError(f"seed {seed}: at least 0 is needed")
    if isinstance(truth_epochs, Integral) and truth_epochs < 1:
        raise InputError(f"truth_epochs {truth_epochs}: at least 1 is needed")


def check_sizes(task: Task, train_size: int, val_size: int | None) -> None:
    """Refuse sizes that no method can make."""
    classes, least = task.num_classes, task.least
    needed = "at least 1 is" if classes is None else f"there are {classes} classes, so at least {classes} are"
    for what, size, part in (("train_size", train_size, task.train), ("val_size", val_size, task.val)):
        if size is None:
            continue
        if size < least:
            raise InputError(f"{what} {size}: {needed} needed; try {min(5 * least, len(part))}")
        if size > len(part):
            raise InputError(
                f"{what} {size}: the original has only {len(part)} such examples; choose at most that"
            )


def check_truth_has(truth: Truth, asked: Sequence[Config], val_method: str) -> None:
    """Refuse full-data results that are not needed, or that lack a probe."""
    if not asked:
        raise InputError(
            f"truth: val_method '{val_method}' needs no full-data results of probes; leave it out"
        )
    truth.ensure(asked)


def checked_recipe(argument: str, recipe: Recipe, changes: Mapping[str, Any], task: Task) -> Recipe:
    """The recipe with the user's changes, which were given as ``argument`` of `plan`."""
    known: Sequence[str] = task.recipe_settings
    if argument == "full_recipe":  # full-data scores are always accuracies with batch statistics
        known = [name for name in known if name not in ("metric", "statistics")]
    for name in changes:
        if name not in known:
            raise unknown_name(f"{argument} setting", name, known)
    found = dataclasses.replace(recipe, **changes)
    task.check_recipe(argument, found)
    if "metric" in changes and found.metric == "accuracy" and task.num_classes is None:
        raise InputError(f"{argument} setting metric 'accuracy': this task has no classes; choose 'loss'")
    return found
