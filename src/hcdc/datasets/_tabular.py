"""Tables from files, data frames and arrays: one-hot columns, standardised features and values, a split."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hcdc.core.errors import InputError, require, unknown_name
from hcdc.datasets._split import chosen, seeded_rows
from hcdc.datasets._table import Rows, TableData

log = logging.getLogger("hcdc")

MOST_CLASSES = 100
MOST_CATEGORIES = 200
TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet")

Array = NDArray[Any]


def read_table(path: Path, *, target: str | None, split: Any = None, seed: int = 0) -> TableData:
    """Read a CSV file (separated by commas or semicolons) or a Parquet file; see `from_frame`."""
    pandas = require("pandas", "table")
    try:
        if path.suffix.lower() == ".parquet":
            require("pyarrow", "table")
            frame = pandas.read_parquet(path)
        else:
            frame = _read_csv(pandas, path)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"'{path}' cannot be read as a table: {error}") from error
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    return from_frame(frame, target, name=name, source=str(path), split=split, seed=seed)


def _read_csv(pandas: Any, path: Path) -> Any:
    """Read a CSV file; if the header has semicolons and no commas, semicolons separate columns.

    Such files may use decimal commas, so both readings are tried and the one with more numeric columns wins.
    """
    header = pandas.read_csv(path, nrows=0).columns
    if len(header) != 1 or ";" not in str(header[0]):
        return pandas.read_csv(path)
    frames = [pandas.read_csv(path, sep=";", decimal=mark) for mark in ".,"]
    return max(frames, key=lambda frame: len(frame.select_dtypes("number").columns))


def from_frame(
    frame: Any,
    target: str | None,
    *,
    name: str = "table",
    source: str = "memory",
    split: Any = None,
    seed: int = 0,
) -> TableData:
    """A table from a data frame; every column except ``target`` is a feature.

    Strings and categories become one column per value, Booleans become 0 and 1, and all features are then
    standardised on the training rows. Classification or regression is inferred (see `from_arrays`).
    """
    columns = [str(column) for column in frame.columns]
    if target is None:
        raise InputError(
            f"{name}: which column is to be predicted? pass target=, one of: {', '.join(columns)}"
        )
    if target not in columns:
        raise unknown_name("target", target, columns)
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise InputError(f"{name}: the column name '{twice}' occurs more than once; rename one")
    at = columns.index(target)
    y = frame.iloc[:, at]
    if bool(y.isna().any()):
        raise InputError(
            f"{name}: the target column '{target}' has {int(y.isna().sum())} missing values; drop those rows"
        )
    keep = [k for k in range(len(columns)) if k != at]
    x, names = _encode(frame.iloc[:, keep], name)
    return _table(x, _values(y), names, f"'{target}'", name=name, source=source, split=split, seed=seed)


def from_arrays(x: Any, y: Any, *, name: str = "table", split: Any = None, seed: int = 0) -> TableData:
    """A table from features ``[m, d]`` (an array, a tensor or a data frame) and targets ``[m]``.

    Strings, Booleans and integers with few values (at most 100, each three times on average) are classes.
    Other integers and floating-point numbers are regression targets, standardised on the training rows.
    """
    if hasattr(x, "iloc"):
        features, names = _encode(x, name)
    else:
        features = _plain(x)
        if features.dtype.kind not in "biuf":
            raise InputError(
                f"{name}: x holds text or other objects ({features.dtype}); encode it as numbers first, or "
                "pass a DataFrame with target="
            )
        if features.ndim != 2:
            raise InputError(
                f"{name}: x has shape {features.shape}; a table [rows, columns] is needed, or images as one "
                "array [m, h, w] (grey) or [m, h, w, c]"
            )
        names = [f"x{k}" for k in range(features.shape[1])]
    values = _plain(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(
            f"{name}: y has shape {values.shape}; one target per row is needed (from one-hot: y.argmax(1))"
        )
    return _table(features, values, names, "y", name=name, source="memory", split=split, seed=seed)


def _plain(values: Any) -> Array:
    if isinstance(values, torch.Tensor):
        dense = values.detach().cpu().to_dense()
        return (dense.float() if dense.dtype == torch.bfloat16 else dense).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"the rows given are not all of one length: {error}") from error


def _values(column: Any) -> Array:
    """A target column as an array of a matching type."""
    types = require("pandas", "table").api.types
    if types.is_bool_dtype(column):
        return np.asarray(column.to_numpy(dtype=bool))
    if types.is_integer_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.int64))
    if types.is_float_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64))
    return np.asarray(column.to_numpy())


def _encode(frame: Any, name: str) -> tuple[Array, list[str]]:
    """Features ``[m, d]`` in float64 and their names."""
    types = require("pandas", "table").api.types
    columns: list[Array] = []
    names: list[str] = []
    for k, label in enumerate(map(str, frame.columns)):
        column = frame.iloc[:, k]
        if types.is_bool_dtype(column) or types.is_numeric_dtype(column):
            if types.is_complex_dtype(column):
                raise InputError(
                    f"{name}: column '{label}' holds complex numbers; split them into two columns"
                )
            columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
            names.append(label)
            continue
        if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
            raise InputError(f"{name}: column '{label}' holds dates; turn them into numbers, or drop it")
        if bool(column.isna().any()):
            raise InputError(
                f"{name}: column '{label}' has {int(column.isna().sum())} missing values (NaN); fill or "
                "drop them first"
            )
        text = column.astype(str).to_numpy(dtype=object)
        values = sorted(set(text))
        if len(values) > MOST_CATEGORIES:
            raise InputError(
                f"{name}: column '{label}' has {len(values)} different texts, more than {MOST_CATEGORIES} "
                "categories; raw text is not supported: encode it as numbers, or drop it"
            )
        columns += [(text == value).astype(np.float64) for value in values]
        names += [f"{label}={value}" for value in values]
    return (np.stack(columns, 1) if columns else np.zeros((len(frame), 0))), names


def _target(values: Array, what: str, name: str) -> tuple[Array, tuple[str, ...] | None, str]:
    """Class numbers and names, or values and None; and what was inferred, in words."""
    kind = values.dtype.kind
    if kind == "f":
        if not np.isfinite(values).all():
            raise InputError(f"{name}: the target {what} holds NaN or infinity; drop those rows")
        found, numbers = np.unique(values), values
    elif kind in "iub":
        found, numbers = np.unique(values, return_inverse=True)
    elif kind in "OUS":
        found, numbers = np.unique(values.astype(str), return_inverse=True)
        if len(found) > MOST_CLASSES:
            raise InputError(
                f"{name}: the target {what} has {len(found)} different texts, more than {MOST_CLASSES} "
                "classes; generating text is not supported: choose a column with few values"
            )
    else:
        raise InputError(
            f"{name}: the target {what} has type {values.dtype}; numbers, Booleans or texts are needed"
        )
    if len(found) < 2:
        needed = "values" if kind == "f" else "classes"
        raise InputError(
            f"{name}: the target {what} has {len(found)} different value; at least 2 {needed} are needed"
        )
    few = len(found) <= MOST_CLASSES and 3 * len(found) <= len(values)
    if kind == "f" or (kind in "iu" and not few):
        why = "floating-point numbers" if kind == "f" else f"{len(found)} different integers"
        return values.astype(np.float64), None, f"regression on {what} ({why})"
    why = {"b": "Booleans", "i": "integers", "u": "integers"}.get(kind, "texts")
    return (
        numbers.astype(np.int64),
        tuple(map(str, found)),
        f"{len(found)} classes of {what} ({why} with few values)",
    )


def _table(
    x: Array, values: Array, names: list[str], what: str, *, name: str, source: str, split: Any, seed: int
) -> TableData:
    if len(x) != len(values):
        raise InputError(
            f"{name}: there are {len(x)} rows and {len(values)} targets; one target per row is needed"
        )
    if not len(x):
        raise InputError(f"{name}: the table has no rows")
    if x.shape[1] == 0:
        raise InputError(f"{name}: there is no feature column besides the target")
    x = x.astype(np.float64)
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(x.astype(np.float32))
    if bad.any():
        column = int(np.flatnonzero(bad.any(0))[0])
        raise InputError(
            f"{name}: column '{names[column]}' holds NaN or infinity in {int(bad[:, column].sum())} rows; "
            "fill or drop them first"
        )
    y, class_names, kind = _target(values, what, name)
    parts = None if split is None else chosen(split, len(x))
    if parts is None:
        parts, words = seeded_rows(y, class_names, seed)
    else:
        words = "split given by the caller"
        missing = (
            [] if class_names is None else sorted(set(range(len(class_names))) - set(y[parts[0]].tolist()))
        )
        if class_names is not None and missing:
            raise InputError(
                f"{name}: class '{class_names[missing[0]]}' is empty in the training part of the split"
            )
    mean, deviation = x[parts[0]].mean(0), x[parts[0]].std(0)
    x = (x - mean) / np.where(deviation > 0, deviation, 1.0)
    target_mean, target_scale = 0.0, 1.0
    if class_names is None:
        target_mean, target_scale = float(y[parts[0]].mean()), float(y[parts[0]].std())
        if not target_scale > 1e-12 * abs(target_mean):
            raise InputError(
                f"{name}: the target {what} is {target_mean:g} in every training row; nothing can be learned "
                "from a constant, so choose another target or split"
            )
        y = ((y - target_mean) / target_scale).astype(np.float32)
        kind += f", standardised: mean {target_mean:.4g}, scale {target_scale:.4g}"
    log.info("%s: %s; %s", name, kind, words)
    train, val, test = (
        Rows(torch.from_numpy(x[part].astype(np.float32)), torch.from_numpy(y[part])) for part in parts
    )
    return TableData(
        name=name,
        source=source,
        train=train,
        val=val,
        test=test,
        num_classes=None if class_names is None else len(class_names),
        feature_names=tuple(names),
        class_names=class_names or (),
        split=f"{kind}; {words}",
        target_mean=target_mean,
        target_scale=target_scale,
    )
