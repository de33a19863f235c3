"""What commands say before the work: what is about to be done, how, and what it costs."""

from __future__ import annotations

from typing import Any

from hcdc.condensers import full_trainings, in_words, space_words
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name
from hcdc.datasets import CondensedDataset
from hcdc.spaces import from_spec
from hcdc.truth import Truth


def judge_lines(
    small: CondensedDataset, task: Any, candidates: int, device: str, table: Truth | None
) -> list[tuple[str, object]]:
    """What is about to be judged, how, and what it costs."""
    meta, space = small.meta, from_spec(small.meta["space"])
    if table is not None:
        cost = "nothing is trained on the full data"
    else:
        full = Recipe.from_dict(meta["full_recipe"])
        cost = full_trainings(candidates, task, space, full, device).words
        if meta.get("truth"):
            cost += "; the copy was made with a table of results, and --truth FILE judges by it"
    return [
        ("data", f"{meta['data'].get('name')}, split: {meta['data'].get('split')}"),
        ("candidates", f"{candidates} of {space_words(space)}"),
        _full_line(meta, table),
        ("calibrated recipe", in_words(meta["calibrated_recipe"])),
        ("device", device_name(device)),
        ("cost", cost),
    ]


def _full_line(meta: dict[str, Any], table: Truth | None) -> tuple[str, object]:
    """How candidates are trained on the full data, or the table that has their results."""
    if table is not None:
        return "full data", f"results from the {table.words()}"
    return "full recipe", in_words(meta["full_recipe"])
