"""A condensed file and the record beside it, ``NAME.hcdc.json``: which plan made it, in how many seconds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from hcdc.cli._show import write_json
from hcdc.condensers import Plan
from hcdc.core.errors import InputError
from hcdc.core.records import jsonable
from hcdc.datasets import CondensedDataset


def record_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def read_record(file: Path) -> dict[str, Any]:
    """What `condense` wrote beside the file; empty if it is missing or belongs to another file."""
    try:
        found = json.loads(record_path(file).read_text(encoding="utf-8"))
        own = isinstance(found, dict) and found.get("sha256") == hashlib.sha256(file.read_bytes()).hexdigest()
    except (OSError, ValueError, RecursionError):
        return {}
    return found if own else {}


def save_with_record(small: CondensedDataset, out: Path) -> None:
    """Write the record, then the file: a file that is there has its record."""
    record = {
        "file": out.name,
        "sha256": hashlib.sha256(small.to_bytes()).hexdigest(),
        "dataset": small.meta["data"]["name"],
        **{key: small.meta[key] for key in ("method", "preset", "train_size", "val_size", "seed")},
        **small.record,
    }
    write_json(record_path(out), record)
    small.save(out)


def already_there(out: Path, made: Plan, force: bool) -> bool:
    """Whether the same command wrote ``out`` before; another file there is refused unless forced."""
    if force or not out.exists():
        return False
    try:
        if _made_by(CondensedDataset.load(out), made):
            return True
    except InputError:
        pass
    raise InputError(
        f"--out {out}: the file exists and another command made it; choose another name, or add --force"
    )


def _made_by(small: CondensedDataset, made: Plan) -> bool:
    """Whether a file was made by the command that ``made`` plans."""
    planned = {**jsonable(made.meta), "train_size": made.train_size}
    if made.meta["val_method"] != "real":
        planned["val_size"] = made.val_size
    if tried := small.meta.get("recipes_tried"):  # the first is the planned one, the file says the best
        small = dataclasses.replace(small, meta={**small.meta, "calibrated_recipe": tried[0]["recipe"]})
    return all(small.meta.get(key) == value for key, value in json.loads(json.dumps(planned)).items())
