"""Turns flags into what is searched: a task and its space, or an objective and its full data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hcdc
from hcdc.cli._choose import check_image_flags, task_and_space, truth_table
from hcdc.condensers import space_words
from hcdc.core.errors import InputError
from hcdc.core.plugins import load_attribute
from hcdc.core.progress import duration
from hcdc.core.records import device_name
from hcdc.search import USUAL_BUDGET, parse_budget, prepare
from hcdc.tasks import task_for
from hcdc.truth import Truth


@dataclass(frozen=True)
class Subject:
    """What `hcdc.search` and `hcdc.plan` take, from flags.

    Attributes:
        subject, over: A task and its space, or an objective and its full data.
        options: Their other arguments, the budget included.
        told: What is searched, for the terminal.
        trains: Most seconds of training to expect.
    """

    subject: Any
    over: Any
    options: dict[str, Any]
    told: list[tuple[str, object]]
    trains: float


def chosen_subject(
    dataset: str | None,
    objective: str | None,
    space: str | None,
    setting: str | None,
    model: str | None,
    target: str | None,
    split_seed: int,
    truth: Path | None,
    truth_dataset: str | None,
    **options: Any,
) -> Subject:
    """What the flags choose; ``options`` are those of `hcdc.search` that need no translation."""
    options["copies"] = list(options["copies"] or ())
    options["budget"] = options["budget"] or USUAL_BUDGET
    seconds = parse_budget(options["budget"])
    table: Truth | None = None
    subject: Any
    over: Any
    if objective is not None:
        given: dict[str, object] = {"--space": space, "--model": model, "--setting": setting}
        given |= {"--truth": truth, "--truth-dataset": truth_dataset}
        for flag, value in given.items():
            if value is not None:
                raise InputError(f"{flag} {value}: this is for a task; leave it out with --objective")
        subject, over = loaded_objective(objective, dataset, target, split_seed)
        told: list[tuple[str, object]] = [("objective", objective), ("data", repr(over))]
    elif dataset is None:
        raise InputError("Missing --dataset NAME or --objective FILE.py:NAME")
    else:
        data = hcdc.data(dataset, target=target, seed=split_seed)
        check_image_flags(data, truth=truth, truth_dataset=truth_dataset)
        subject, over = task_and_space(data, space, setting, model)
        table = truth_table(truth, truth_dataset, data.name)
        told = [("data", subject.words()), ("space", space_words(over))]
    options["truth"] = table
    asked = {name: options[name] for name in ("copies", "rungs", "truth", "device", "seed")}
    names = [rung.name for rung in prepare(subject, over, **asked).rungs]
    told.append(("rungs", " -> ".join(names)))
    clock = "" if table is None else f", in seconds of the {table.words()}"
    told.append(("budget", duration(seconds) + clock))
    told.append(("device", device_name(options["device"])))
    return Subject(subject, over, options, told, seconds if table is None else 0.0)


def loaded_objective(
    text: str, dataset: str | None = None, target: str | None = None, split_seed: int = 0
) -> tuple[Any, hcdc.FullData]:
    """The objective ``FILE.py:NAME``, and what ``data()`` in the same file returns, else the data set."""
    function = load_attribute(text)
    place = text.rpartition(":")[0]
    try:
        make = load_attribute(f"{place}:data")
    except InputError as error:
        if dataset is not None:
            return function, _full_data(dataset, target, split_seed)
        raise InputError(
            f"--objective {text}: define a function data() in {place} that returns "
            "hcdc.FullData(train, val), or name the data with --dataset"
        ) from error
    for flag, value in (("--dataset", dataset), ("--target", target)):
        if value is not None:
            raise InputError(f"{flag} {value}: the file of --objective brings its own data; leave it out")
    full = make() if callable(make) else make
    if not isinstance(full, hcdc.FullData):
        raise InputError(
            f"--objective {text}: data() in {place} returned {type(full).__name__}; return hcdc.FullData"
        )
    return function, full


def _full_data(dataset: str, target: str | None, split_seed: int) -> hcdc.FullData:
    """A data set for an objective: arrays (tables), torch Datasets (images) or PyG Data (graphs)."""
    task = task_for(hcdc.data(dataset, target=target, seed=split_seed))
    parts = {"train": task.train, "val": task.val, "test": task.test}
    return hcdc.FullData(**{name: part.as_passed(name) for name, part in parts.items() if part is not None})
