"""What depends on the kind of data: the task, its space, and which flags, methods and tables fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hcdc.cli._arguments import settings
from hcdc.condensers import REDUCERS, in_words
from hcdc.core.errors import InputError, unknown_name
from hcdc.datasets import CondensedDataset, Dataset, ImageData, Images
from hcdc.spaces import Space, from_spec
from hcdc.tasks import task_class, task_for
from hcdc.truth import BENCHMARKS, NASBench201Table, TableTruth

KINDS = {"graph": "a graph", "table": "a table", "image": "images"}


def task_and_space(
    data: Dataset, space: str | None, setting: str | None, model: str | None
) -> tuple[Any, Space]:
    """The task for the data, and the search space by name; some tasks bring their own."""
    form = task_class(data.kind)
    for flag, value in (("setting", setting), ("model", model)):
        if value is not None and flag not in form.flags:
            raise InputError(f"--{flag} {value}: '{data.name}' is {kind_words(data)}; leave it out")
    if not form.spaces and space is not None:
        own = f"'{data.name}' is {kind_words(data)}, which has a space of its own"
        raise InputError(f"--space {space}: {own}; leave it out")
    task: Any = task_for(data, setting=setting, model=model)
    return task, _space(space, data, form.spaces) if form.spaces else task.space()


def kind_words(data: Dataset) -> str:
    """What the data is."""
    return KINDS.get(data.kind, f"{data.kind} data")


def _space(text: str | None, data: Dataset, allowed: tuple[str, ...]) -> Space:
    """The space ``NAME`` or ``NAME,KEY=VALUE,...``; a built-in one must be for this kind of data."""
    name, *pairs = (text or allowed[0]).split(",")
    if name not in allowed and any(name in task_class(kind).spaces for kind in KINDS):
        raise InputError(
            f"--space {name}: '{data.name}' is {kind_words(data)}, for which there is {' and '.join(allowed)}"
        )
    usual = {key: value for key, value in from_spec({"name": name}).spec().items() if key != "name"}
    given = settings(pairs, "--space", f"--space {name},{next(iter(usual))}=2")
    for key, value in given.items():
        if key not in usual:
            raise unknown_name(f"--space {name}: setting", key, usual)
        wanted = type(usual[key])
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise InputError(
                f"--space {name}: {key} must be {wanted.__name__}, as in {key}={usual[key]}, got {value!r}"
            )
    return from_spec({"name": name, **given})


def check_method(flag: str, method: str | None, data: Dataset) -> None:
    """Refuse a method for another kind of data before any work."""
    kinds = REDUCERS[method].takes if method in REDUCERS else ()
    if kinds and data.kind not in kinds:
        taken = " and ".join(f"{kind}s" for kind in kinds)
        raise InputError(
            f"{flag} {method}: it condenses {taken}, and '{data.name}' is {kind_words(data)}; try random"
        )


def check_image_flags(data: Dataset, **given: object) -> None:
    """Refuse flags that are for images where the data is not."""
    for name, value in given.items():
        if value is not None and data.kind != "image":
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} {value}: it is for images, and '{data.name}' is {kind_words(data)}")


def total_size(
    flags: tuple[str, str], size: int | None, per_class: int | None, task: Any, part: str
) -> int | None:
    """A total from either flag: the number itself, or images per class times classes."""
    if size is not None and per_class is not None:
        raise InputError(
            f"{flags[0]} {size} and {flags[1]} {per_class} are two spellings of one size; give one of them"
        )
    if per_class is None:
        return size
    if per_class < 1:
        raise InputError(f"{flags[1]} {per_class}: at least 1 is needed")
    counts = getattr(task, part).y.bincount(minlength=task.num_classes)
    least = int(counts.argmin())
    if per_class > (most := int(counts[least])):
        lacks = f"has only {most} {part} images; choose at most that"
        if most == 0:
            lacks = f"has no {part} images; add some, or take the real ones there are with --val-method real"
        raise InputError(f"{flags[1]} {per_class}: class {least} ('{task.data.class_names[least]}') {lacks}")
    return per_class * int(task.num_classes)


# --- tables of full-data results ----------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """What decides whether a table of results is about some data."""

    name: str
    kind: str
    form: str
    classes: int | None

    @classmethod
    def data(cls, data: Dataset) -> About:
        form = _form(data.train.x) if isinstance(data, ImageData) else ""
        return cls(data.name, data.kind, form, data.num_classes)

    @classmethod
    def copy(cls, small: CondensedDataset) -> About:
        form = _form(small.train.x) if isinstance(small.train, Images) else ""
        return cls(str(small.meta["data"].get("name")), small.kind, form, small.num_classes)


def truth_table(path: Path | None, dataset: str | None, about: About) -> TableTruth | None:
    """The table of full-data results; one that is not about the data is refused."""
    if path is None:
        if dataset is not None:
            raise InputError(f"--truth-dataset {dataset}: there is no --truth whose data set it could name")
        return None
    name = about.name
    if about.kind != "image":
        raise InputError(
            f"--truth {path}: the table has results on images, and '{name}' is {about.kind} data"
        )
    if dataset is not None and dataset not in BENCHMARKS:
        raise unknown_name("--truth-dataset", dataset, BENCHMARKS)
    if dataset is not None and name in BENCHMARKS and name != dataset:
        raise InputError(f"--truth-dataset {dataset}: the data is '{name}'; leave it out")
    told = dataset or name
    if told not in BENCHMARKS:
        raise InputError(
            f"--truth {path}: the table has results on cifar10 and cifar100, and the data is '{name}'; if it "
            "is one of them under another name, say which with --truth-dataset"
        )
    if (about.form, about.classes) != ("3 x 32 x 32", BENCHMARKS[told]):
        raise InputError(
            f"--truth {path}: {told} has {BENCHMARKS[told]} classes of 3 x 32 x 32 pixels, and '{name}' has "
            f"{about.classes} of {about.form}, so the table's results are not about it; leave it out"
        )
    return TableTruth(NASBench201Table(path), told)


# --- words --------------------------------------------------------------------------------------------------


def _form(x: Tensor) -> str:
    return " x ".join(map(str, x.shape[1:]))


def has_pictures(small: CondensedDataset) -> bool:
    """Whether a report can show the examples."""
    return small.kind == "image"


def picture_lines(small: CondensedDataset) -> list[tuple[str, object]]:
    """What the images of a file are like, and which full-data results they were learned from."""
    lines: list[tuple[str, object]] = []
    for name, part in (("S_train", small.train), ("S_val", small.val)):
        if not isinstance(part, Images):
            continue
        counts = part.y.bincount(minlength=small.num_classes or 1)
        low, high = int(counts.min()), int(counts.max())
        told = f"{low if low == high else f'{low} to {high}'} per class, {_form(part.x)} pixels of "
        told += f"{float(part.x.min()):.2f} .. {float(part.x.max()):.2f} (normalised)"
        if part.weight is not None:
            weight = part.weight / part.weight.mean()
            told += (
                f"; weights up to {float(weight.max()):.1f} times the mean, {int((weight == 0).sum())} are 0"
            )
        lines.append((name, told))
    probes = small.meta.get("probes") or {}
    if isinstance(probes, dict) and probes.get("configs"):
        source = small.meta.get("truth") or "trained on the full data"
        source = in_words(source) if isinstance(source, dict) else source
        lines.append(("probes", f"{len(probes['configs'])} candidates, results: {source}"))
    return lines
