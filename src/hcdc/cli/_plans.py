"""What commands say before the work: what is about to be done, how, and what it costs."""

from __future__ import annotations

from typing import Any

from hcdc.cli._choose import doubts, shape_words, size_words
from hcdc.cli._show import space_words, words
from hcdc.condensers import Plan, training_words
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name
from hcdc.datasets import CondensedDataset
from hcdc.spaces import TableTruth, from_spec


def plan_lines(made: Plan, task: Any, device: str) -> list[tuple[str, object]]:
    """What is about to be done."""
    meta, data = made.meta, task.data
    parts = " / ".join(f"{len(getattr(data, part)):,}" for part in ("train", "val", "test"))
    val = {"real": "the real validation set", "weighted": f"{made.val_size}, of any class"}
    sizes = f"S_train {size_words(made.train_size, task)}, S_val " + (
        val.get(meta["val_method"]) or size_words(made.val_size, task)
    )
    preset = f", preset {meta['preset']}" if meta["preset"] else ""
    calibrates = made.probing is not None and made.probing.calibrate
    chosen = ", or another that the probes choose" if calibrates else ""
    relaxed = []  # with a table it is all that is trained on the full data
    if made.truth is not None and made.config is not None:
        relaxed = [("relaxed network", f"trained on the full data: {words(made.relaxed(task).as_dict())}")]
    how = f"S_train by {meta['train_method']}, S_val by {meta['val_method']}"
    shape = shape_words(data)
    return [
        ("data", f"{data.name}, {parts} for training / validation / test{shape}, split: {data.split}"),
        ("method", f"{meta['method']}{preset}: {how}"),
        ("sizes", sizes),
        ("space", space_words(from_spec(meta["space"]))),
        _full_line(meta, made.truth),
        *relaxed,
        ("calibrated recipe", words(meta["calibrated_recipe"]) + chosen),
        ("device", device_name(device)),
        *doubts(made, task),
    ]


def judge_lines(
    small: CondensedDataset, task: Any, candidates: int, device: str, table: TableTruth | None
) -> list[tuple[str, object]]:
    """What is about to be judged, how, and what it costs."""
    meta, space = small.meta, from_spec(small.meta["space"])
    if table is not None:
        cost = "nothing is trained on the full data"
    else:
        full = Recipe.from_dict(meta["full_recipe"])
        cost = training_words(candidates, task, space, full, device)
        if meta.get("truth"):
            cost += "; the copy was made with a table of results, and --truth FILE judges by it"
    return [
        ("data", f"{meta['data'].get('name')}, split: {meta['data'].get('split')}"),
        ("candidates", f"{candidates} of {space_words(space)}"),
        _full_line(meta, table),
        ("calibrated recipe", words(meta["calibrated_recipe"])),
        ("device", device_name(device)),
        ("cost", cost),
    ]


def _full_line(meta: dict[str, Any], table: TableTruth | None) -> tuple[str, object]:
    """How candidates are trained on the full data, or the table that has their results."""
    if table is not None:
        return "full data", f"results from the {table.words()}"
    return "full recipe", words(meta["full_recipe"])
