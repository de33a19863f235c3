"""What commands say before the work: what is about to be done, how, and what it costs."""

from __future__ import annotations

from typing import Any

from hcdc.condensers import in_words, space_words
from hcdc.core.records import device_name
from hcdc.datasets import CondensedDataset
from hcdc.evaluation import cost
from hcdc.spaces import from_spec
from hcdc.truth import Truth


def judge_lines(
    small: CondensedDataset, task: Any, candidates: int, device: str, table: Truth | None, rivals: bool
) -> list[tuple[str, object]]:
    """What is about to be judged, how, and what it costs."""
    meta, space = small.meta, from_spec(small.meta["space"])
    told = cost(small, task, candidates, device, rivals, table).words()
    if table is None and meta.get("truth"):
        told += "; the copy was made with a table of results, and --truth FILE judges by it"
    return [
        ("data", f"{meta['data'].get('name')}, split: {meta['data'].get('split')}"),
        ("candidates", f"{candidates} of {space_words(space)}"),
        _full_line(meta, table),
        ("calibrated recipe", in_words(meta["calibrated_recipe"])),
        ("device", device_name(device)),
        ("cost", told),
    ]


def _full_line(meta: dict[str, Any], table: Truth | None) -> tuple[str, object]:
    """How candidates are trained on the full data, or the table that has their results."""
    if table is not None:
        return "full data", f"results from the {table.words()}"
    return "full recipe", in_words(meta["full_recipe"])
