"""Results for NAS-Bench-201 cells, from a flat table or from ``nats_bench`` files."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError, require, unknown_name
from hcdc.spaces import cell_string, operations

Cell = str | Sequence[int]
"""A cell as a string or as six operation numbers."""

DATASETS = ("c10", "c100", "in16")
"""CIFAR-10, CIFAR-100 and ImageNet16-120."""

ACCURACIES = tuple(
    f"{d}_{part}_{epochs}" for epochs in (12, 200) for d in DATASETS for part in ("valid", "test")
)
"""Accuracies in percent by data set, part and epochs; probes take a ``valid`` one."""

PARAMETERS, SECONDS = "params_m", "c10_train_seconds_200"
"""Parameters in millions (10 classes); seconds of 200 epochs on half of CIFAR-10's training set."""

COLUMNS = (*ACCURACIES, PARAMETERS, SECONDS)


class NASBench201Table:
    """Results for the benchmark's cells from a flat table (``.csv`` or ``.csv.gz``).

    Required columns: ``index`` (the cell's number in the benchmark), ``ops`` (six operation numbers joined by
    ``-``) and `COLUMNS`; others are ignored. The published ``params_m`` of 150 cells belongs to an equivalent
    cell with fewer or more unused weights; `NASBench201.parameter_count` is right for all cells.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        if not path.is_file():
            raise InputError(
                f"there is no NAS-Bench-201 table at '{path}'; it is a .csv or .csv.gz file with a line for "
                f"each cell and the columns index, ops, {', '.join(COLUMNS)}; give its path, or set "
                "HCDC_DATA to its folder"
            )
        try:
            with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
                reader = csv.DictReader(file)
                missing = {"index", "ops", *COLUMNS} - set(reader.fieldnames or ())
                rows = list(reader)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
            raise InputError(
                f"the NAS-Bench-201 table '{path}' cannot be read as a .csv or .csv.gz file: {error}"
            ) from error
        if missing:
            raise InputError(f"the NAS-Bench-201 table '{path}' has no column {', '.join(sorted(missing))}")
        self._index: dict[tuple[int, ...], int] = {}
        self._cells: dict[int, tuple[int, ...]] = {}
        self._values: dict[tuple[int, ...], dict[str, float]] = {}
        for line, row in enumerate(rows, 2):
            if not re.fullmatch(r"[0-4](-[0-4]){5}", row["ops"] or ""):
                raise InputError(f"line {line} of '{path}': ops '{row['ops']}' are not six numbers 0 to 4")
            numbers = tuple(int(number) for number in row["ops"].split("-"))
            try:
                index, values = int(row["index"]), {name: float(row[name]) for name in COLUMNS}
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"line {line} of '{path}' has an entry that is not a number: {error}"
                ) from error
            wrong = [name for name in ACCURACIES if not 0 <= values[name] <= 100]
            if wrong:
                raise InputError(
                    f"line {line} of '{path}': {wrong[0]} is {values[wrong[0]]}; 0 to 100 % is needed"
                )
            if numbers in self._index or index in self._cells:
                raise InputError(f"line {line} of '{path}' repeats cell {row['ops']} or index {index}")
            self._index[numbers], self._cells[index], self._values[numbers] = index, numbers, values

    def __len__(self) -> int:
        return len(self._index)

    def has(self, cell: Cell) -> bool:
        """Whether the table has this cell."""
        return operations(cell) in self._index

    def index(self, cell: Cell) -> int:
        """The cell's number in the benchmark."""
        return self._index[self._found(cell)]

    def cell(self, index: int) -> str:
        """The cell with that number, as a string."""
        if index not in self._cells:
            raise InputError(f"index {index} is not in this NAS-Bench-201 table of {len(self)} cells")
        return cell_string(self._cells[index])

    def lookup(self, cell: Cell, column: str) -> float:
        """A cell's entry in one of `COLUMNS`."""
        if column not in COLUMNS:
            raise unknown_name("column", column, COLUMNS)
        return self._values[self._found(cell)][column]

    def _found(self, cell: Cell) -> tuple[int, ...]:
        numbers = operations(cell)
        if numbers not in self._index:
            raise InputError(f"cell '{cell_string(cell)}' is not in this NAS-Bench-201 table of {len(self)}")
        return numbers


class NATSBench:
    """The same results from the files of the ``nats_bench`` package (topology search space).

    Args:
        source: A benchmark file, a folder of single files (fast mode), or an open API.
            ``nats_bench`` unpickles its files, so open only files that you trust.
    """

    def __init__(self, source: str | Path | Any):
        if isinstance(source, str | Path):
            path, package = Path(source), require("nats_bench", "nas")
            if not path.exists():
                raise InputError(f"there is no nats_bench file or folder at '{path}'")
            try:
                source = package.create(str(path), "topology", fast_mode=path.is_dir(), verbose=False)
            except (OSError, EOFError, ValueError) as error:
                raise InputError(
                    f"'{path}' cannot be read as a nats_bench file or folder: {error}"
                ) from error
        self._api = source

    def has(self, cell: Cell) -> bool:
        """Whether the files have this cell."""
        return int(self._api.query_index_by_arch(cell_string(cell))) >= 0

    def index(self, cell: Cell) -> int:
        """The cell's number in the benchmark."""
        index = int(self._api.query_index_by_arch(cell_string(cell)))
        if index < 0:
            raise InputError(f"cell '{cell_string(cell)}' is not in these nats_bench files")
        return index

    def lookup(self, cell: Cell, column: str) -> float:
        """A cell's entry in one of `COLUMNS`, averaged over the benchmark's seeds."""
        index = self.index(cell)
        if column == PARAMETERS:
            return float(self._api.get_cost_info(index, "cifar10-valid", hp="200")["params"])
        if column == SECONDS:
            return self._info(index, "cifar10-valid", "200", "train-all-time")
        if column not in ACCURACIES:
            raise unknown_name("column", column, COLUMNS)
        data, part, epochs = column.split("_")
        sets = {"c10": f"cifar10{'-valid' if part == 'valid' else ''}", "c100": "cifar100"}
        return self._info(index, sets.get(data, "ImageNet16-120"), epochs, f"{part}-accuracy")

    def _info(self, index: int, dataset: str, epochs: str, key: str) -> float:
        return float(self._api.get_more_info(index, dataset, hp=epochs, is_random=False)[key])
