"""Splits: seeded and stratified if the data has none, checked if it does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.errors import InputError, unknown_name
from hcdc.core.seeds import numpy_stream

Index = NDArray[np.int64]
Parts = tuple[Index, Index, Index]

PART_NAMES = ("train", "val", "test")
TRAIN_PER_CLASS = 20
VALIDATION_NODES = 500
TABLE_SHARES = (0.6, 0.2)


def seeded_nodes(y: NDArray[Any], seed: int) -> tuple[Parts, str]:
    """20 nodes per class for training, 500 for validation in class proportions, the rest for testing.

    A class with fewer than 40 labelled nodes gives half of them to training. At most half of the remaining
    nodes go to validation. Every class is in every part.

    Args:
        y: Labels ``[n]``; nodes with -1 are in no part.
        seed: Seed of the split.

    Returns:
        The three parts, sorted, and the split in words.
    """
    rng = numpy_stream(seed, "split")
    members = [rng.permutation(np.flatnonzero(y == c)) for c in range(int(y.max()) + 1)]
    _enough([len(m) for m in members], [str(c) for c in range(len(members))], "labelled nodes", "label -1")
    first = [min(TRAIN_PER_CLASS, len(m) // 2) for m in members]
    left = np.array([len(m) - k for m, k in zip(members, first)])
    second = _proportional(left, min(VALIDATION_NODES, int(left.sum()) // 2), left - 1)
    parts = _cut(members, first, second)
    whole = set(first) == {TRAIN_PER_CLASS}
    each = f"{TRAIN_PER_CLASS} a class" if whole else f"at most {TRAIN_PER_CLASS} and at most half of a class"
    return parts, f"seeded stratified split, seed {seed}: {_sizes(parts)} nodes ({each} for training)"


def seeded_rows(y: NDArray[Any], names: tuple[str, ...] | None, seed: int) -> tuple[Parts, str]:
    """60 / 20 / 20 per cent of the rows, class by class for classification.

    Args:
        y: Class numbers or values ``[m]``.
        names: Class names; None for regression.
        seed: Seed of the split.
    """
    rng = numpy_stream(seed, "split")
    if names is None:
        if len(y) < 5:
            raise InputError(f"the table has {len(y)} rows; a 60 / 20 / 20 split needs at least 5")
        members = [rng.permutation(len(y))]
    else:
        members = [rng.permutation(np.flatnonzero(y == c)) for c in range(len(names))]
        _enough([len(m) for m in members], list(names), "rows", "another class or leave it out")
    second = [max(1, round(TABLE_SHARES[1] * len(m))) for m in members]
    first = [min(max(1, round(TABLE_SHARES[0] * len(m))), len(m) - k - 1) for m, k in zip(members, second)]
    parts = _cut(members, first, second)
    kind = "random" if names is None else "stratified"
    return parts, f"seeded {kind} 60 / 20 / 20 split, seed {seed}: {_sizes(parts)} rows"


def chosen(split: Any, count: int) -> Parts | None:
    """The parts given by the argument ``split=`` of `hcdc.data`, or None for ``"seeded"``.

    Args:
        split: ``"seeded"``, or three index arrays or masks (train, val, test).
        count: Number of nodes or rows.
    """
    if isinstance(split, str):
        if split != "seeded":
            raise unknown_name("split", split, ["seeded"])
        return None
    if not isinstance(split, (tuple, list)) or len(split) != 3:
        raise InputError(
            f"split must be 'seeded' or three index arrays (train, val, test), got {type(split).__name__}"
        )
    return as_parts(split, count)


def as_parts(given: Any, count: int) -> Parts:
    """Three index arrays or masks as sorted indices; refuse them if out of range, empty or overlapping."""
    parts = [_as_index(part, name, count) for part, name in zip(given, PART_NAMES, strict=True)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        shared = len(np.intersect1d(parts[i], parts[j]))
        if shared:
            raise InputError(
                f"{shared} examples are in both {PART_NAMES[i]} and {PART_NAMES[j]}; the parts of a "
                "split must not overlap (split='seeded' makes a new one)"
            )
    return parts[0], parts[1], parts[2]


def _as_index(part: Any, name: str, count: int) -> Index:
    array = np.asarray(part)
    if array.ndim != 1:
        raise InputError(f"the {name} part of the split has shape {array.shape}; one dimension is needed")
    if array.dtype == bool:
        if len(array) != count:
            raise InputError(f"the {name} mask has {len(array)} entries for {count} examples")
        array = np.flatnonzero(array)
    if len(array) == 0:
        raise InputError(f"the {name} part of the split is empty; split='seeded' makes a new one")
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"the {name} part of the split has type {array.dtype}; integers or a mask are needed"
        )
    if array.min() < 0 or array.max() >= count:
        raise InputError(
            f"the {name} part of the split names example "
            f"{int(array.max() if array.max() >= count else array.min())}; "
            f"there are examples 0 .. {count - 1}"
        )
    index: Index = np.unique(array).astype(np.int64)
    return index


def _enough(counts: list[int], names: list[str], what: str, road: str) -> None:
    for count, name in zip(counts, names):
        if count < 3:
            raise InputError(
                f"class {name} has {count} {what}; a split in three parts needs at least 3 of each class "
                f"(give them {road}, or pass split=(train, val, test))"
            )


def _proportional(counts: NDArray[Any], total: int, most: NDArray[Any]) -> list[int]:
    """``total`` shared in proportion to ``counts`` (largest remainders), each from 1 to ``most``."""
    total = min(max(total, len(counts)), int(most.sum()))
    share = counts / counts.sum() * total
    given = np.clip(np.floor(share), 1, most)
    while given.sum() > total:
        given[np.argmax(np.where(given > 1, given - share, -np.inf))] -= 1
    while given.sum() < total:
        given[np.argmax(np.where(given < most, share - given, -np.inf))] += 1
    return [int(g) for g in given]


def _cut(members: list[NDArray[Any]], first: list[int], second: list[int]) -> Parts:
    train = np.concatenate([m[:a] for m, a in zip(members, first)])
    val = np.concatenate([m[a : a + b] for m, a, b in zip(members, first, second)])
    test = np.concatenate([m[a + b :] for m, a, b in zip(members, first, second)])
    return np.sort(train).astype(np.int64), np.sort(val).astype(np.int64), np.sort(test).astype(np.int64)


def _sizes(parts: Parts) -> str:
    return " / ".join(str(len(part)) for part in parts)
