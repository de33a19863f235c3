"""NAS-Bench-201: 15,625 cells by string, number and class, their relaxation, and the benchmark's results."""

from __future__ import annotations

import csv
import functools
import gzip
import itertools
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, require, unknown_name
from hcdc.networks import EDGES, KERNELS, MIXTURE, NONE, OPERATIONS, SKIP, CellNetwork, check_lam, split_edges
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import Dimension, check_names
from hcdc.spaces._finite import draw, project_simplex
from hcdc.spaces._registry import register

Cell = str | Sequence[int]
"""A cell: its string, or its six operation numbers in the order of the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3."""

EXAMPLE = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|"


def parse(cell: str) -> tuple[int, ...]:
    """The six operation numbers of ``"|op~0|+|op~0|op~1|+|op~0|op~1|op~2|"``.

    Raises:
        InputError: The string is not a cell; the sentence says where it stops being one.
    """
    if not isinstance(cell, str):
        raise InputError(f"a cell must be a string such as '{EXAMPLE}', got {cell!r}")
    nodes = cell.split("+")
    if len(nodes) != 3:
        raise InputError(
            f"cell '{cell}' has {len(nodes)} nodes between '+'; a cell has 3, such as '{EXAMPLE}'"
        )
    numbers: list[int] = []
    for target, node in enumerate(nodes, 1):
        if len(node) < 2 or not (node.startswith("|") and node.endswith("|")):
            raise InputError(f"node {target} of cell '{cell}' is '{node}'; it must begin and end with '|'")
        edges = node[1:-1].split("|")
        if len(edges) != target:
            raise InputError(f"node {target} of cell '{cell}' has {len(edges)} edges; it must have {target}")
        for source, edge in enumerate(edges):
            name, separator, given = edge.partition("~")
            if not separator or given != str(source):
                raise InputError(
                    f"edge {source + 1} of node {target} of cell '{cell}' is '{edge}'; "
                    f"it must be an operation followed by '~{source}'"
                )
            if name not in OPERATIONS:
                raise unknown_name(f"in cell '{cell}' the operation", name, OPERATIONS)
            numbers.append(OPERATIONS.index(name))
    return tuple(numbers)


def operations(cell: Cell) -> tuple[int, ...]:
    """The six operation numbers of a cell given in either form; `OPERATIONS` has their names.

    Raises:
        InputError: It is neither a cell's string nor six numbers from 0 to 4.

    Example:
        >>> operations("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|")
        (3, 0, 1, 0, 0, 4)
    """
    if isinstance(cell, str):
        return parse(cell)
    given: Any = cell
    given = given.tolist() if isinstance(given, np.ndarray | Tensor) else given
    numbers: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, bytes) else []
    whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in numbers)
    if len(numbers) != len(EDGES) or not whole or not all(0 <= n < len(OPERATIONS) for n in numbers):
        raise InputError(
            f"{cell!r} is not a cell; a cell is a string such as '{EXAMPLE}', or operation numbers, 6 of "
            f"them, each from 0 to 4, such as {list(parse(EXAMPLE))} (NASBench201Table.cell has cells by "
            "their number in the benchmark)"
        )
    return tuple(int(n) for n in numbers)


def cell_string(cell: Cell) -> str:
    """The string of a cell given in either form.

    Example:
        >>> cell_string([3, 0, 1, 0, 0, 4])
        '|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|'
    """
    numbers = operations(cell)
    nodes = []
    for node in (1, 2, 3):
        edges = [
            f"{OPERATIONS[number]}~{source}"
            for number, (source, target) in zip(numbers, EDGES)
            if target == node
        ]
        nodes.append(f"|{'|'.join(edges)}|")
    return "+".join(nodes)


def connected(cell: Cell) -> bool:
    """Whether a path without ``none`` leads from the input to the output; 341 of the 15,625 have none.

    Example:
        >>> connected([3, 0, 1, 0, 0, 4]), connected([3, 0, 0, 0, 0, 0])
        (True, False)
    """
    reached = {0}
    for number, (source, target) in zip(operations(cell), EDGES):
        if number != NONE and source in reached:
            reached.add(target)
    return 3 in reached


def canonical(cell: Cell) -> str:
    """The benchmark's own name of what a cell computes, by which it counts 6,466 classes.

    In its notation: ``0`` is the input, ``#`` is zero, ``(a)@op`` an operation. A skip is what it leads from,
    ``none`` and every edge from a node ``#`` are ``#``, the terms of a sum are sorted as text. Sums of zeros
    stay, and sums are not flattened: cells that compute the same can have two names, see `computation`.

    Example:
        >>> canonical([3, 0, 1, 0, 0, 4])
        '#+#+(#+(0)@nor_conv_3x3)@avg_pool_3x3'
    """
    nodes = ["0", "", "", ""]
    for node in (1, 2, 3):
        terms = []
        for number, (source, target) in zip(operations(cell), EDGES):
            if target != node:
                continue
            if number == NONE or nodes[source] == "#":
                terms.append("#")
            elif number == SKIP:
                terms.append(nodes[source])
            else:
                terms.append(f"({nodes[source]})@{OPERATIONS[number]}")
        nodes[node] = "+".join(sorted(terms))
    return nodes[3]


def computation(cell: Cell) -> tuple[Any, ...]:
    """What a cell computes as a flat, sorted sum without zeros; 4,930 different ones.

    Cells of one class of `canonical` compute the same. A term is the input, ``("x",)``, or
    ``(operation, *sum)``; ``()`` is zero, what all unconnected cells compute.

    Example:
        >>> computation([3, 0, 1, 0, 0, 4])
        (('avg_pool_3x3', ('nor_conv_3x3', ('x',))),)
    """
    nodes: list[tuple[Any, ...]] = [(("x",),), (), (), ()]
    for number, (source, target) in zip(operations(cell), EDGES):
        if number == SKIP:
            nodes[target] += nodes[source]
        elif number != NONE and nodes[source]:
            nodes[target] += ((OPERATIONS[number], *sorted(nodes[source])),)
    return tuple(sorted(nodes[3]))


def genotype(lam: Tensor) -> Config:
    """The cell of the largest weight or logit at each edge (the first of equals), from lambda ``[30]``.

    Example:
        >>> genotype(torch.tensor([0.6, 0.4, 0.0, 0.0, 0.0] * 6))
        {'cell': '|none~0|+|none~0|none~1|+|none~0|none~1|none~2|'}
    """
    check_lam(lam, MIXTURE)
    return {"cell": cell_string(split_edges(lam).argmax(-1).tolist())}


@functools.cache
def _unique_connected() -> tuple[str, ...]:
    """One cell for each `computation` but zero: the fewest weights, then the first by number; by hash."""
    chosen: dict[tuple[Any, ...], tuple[int, tuple[int, ...]]] = {}
    for numbers in itertools.product(range(len(OPERATIONS)), repeat=len(EDGES)):
        found = (sum(KERNELS.get(number, 0) ** 2 for number in numbers), numbers)
        key = computation(numbers)
        chosen[key] = min(chosen.get(key, found), found)
    chosen.pop(())
    cells = [cell_string(numbers) for _, numbers in chosen.values()]
    return tuple(sorted(cells, key=lambda cell: config_hash({"cell": cell})))


@functools.cache
def _by_computation() -> dict[tuple[Any, ...], str]:
    """The candidates by what they compute."""
    return {computation(cell): cell for cell in _unique_connected()}


@register
@dataclass(frozen=True)
class NASBench201(Space):
    """The cells of NAS-Bench-201: ``{"cell": "|nor_conv_3x3~0|+|...|+|...|"}``.

    Every one of the 15,625 strings is a configuration. The candidates are 4,929, one for each thing that a
    connected cell can compute (that with the fewest parameters; they are in different classes of `canonical`
    too): what was condensed with never comes back under another string, and dead cells, which are at chance,
    do not inflate rank correlations.

    Extended space: the product of six simplices. lambda ``[30]`` holds, edge by edge, the weights of the five
    operations, non-negative with sum 1; a cell is one-hot at each edge, ``project`` is the projection onto
    the simplex at each edge. (With logits as lambda no cell would be a member: a softmax is never one-hot.)

    Attributes:
        cells: N, cells a stage: 5 in the benchmark, 1 where candidates are searched for.
        channels: C of the first stage.
    """

    cells: int = 1
    channels: int = 16

    name = "nasbench201"

    def __post_init__(self) -> None:
        given: tuple[object, ...] = (self.cells, self.channels)
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in given):
            raise InputError(
                f"NASBench201 needs cells and channels of at least 1, whole numbers; got {self.cells!r} and "
                f"{self.channels!r}"
            )

    @property
    def dimension(self) -> int:
        return MIXTURE

    def dimensions(self) -> tuple[Dimension, ...]:
        """The cell alone; its choices are the candidates."""
        return (Dimension("cell", "choice", choices=_unique_connected(), read_by="network"),)

    def check(self, config: Config) -> None:
        """Any of the 15,625 strings is right, not the candidates alone."""
        self._operations(config)

    def candidates(self) -> list[Config]:
        """Unique connected cells in an order without meaning (of hashes): the first n are a fair sample."""
        return [{"cell": cell} for cell in _unique_connected()]

    def counterpart(self, config: Config) -> Config:
        """The candidate that computes what a cell does; the cell itself where that is zero."""
        numbers = self._operations(config)
        return {"cell": _by_computation().get(computation(numbers), cell_string(numbers))}

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` unique connected cells, all equally likely; all of them before any comes twice."""
        every = _unique_connected()
        return [{"cell": every[i]} for i in draw(len(every), count, rng)]

    def encode(self, config: Config) -> Tensor:
        """One-hot at each edge."""
        numbers = torch.tensor(self._operations(config))
        return torch.nn.functional.one_hot(numbers, len(OPERATIONS)).flatten().double()

    def decode(self, lam: Tensor) -> Config:
        """The nearest cell, `genotype`; it may be unconnected."""
        return genotype(lam)

    def project(self, lam: Tensor) -> Tensor:
        """Onto the simplex, edge by edge."""
        check_lam(lam, MIXTURE)
        return project_simplex(split_edges(lam)).flatten(-2)

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "cells": self.cells, "channels": self.channels}

    def network(self, features: int, classes: int, config: Config | None = None) -> CellNetwork:
        """The network of a cell, or the relaxed one (without scales in its cells) where ``config`` is None.

        Args:
            features: Channels of the images.
            classes: Number of classes.
            config: The cell.
        """
        cell = None if config is None else self._operations(config)
        return CellNetwork(cell, self.cells, self.channels, features, classes, affine=cell is not None)

    def features(self, config: Config) -> list[float]:
        """How often each operation occurs, and the logarithm of the number of parameters: what is free."""
        numbers = self._operations(config)
        counts = [float(numbers.count(operation)) for operation in range(len(OPERATIONS))]
        return [*counts, math.log(self.parameter_count(config, 3, 10))]

    def parameter_count(self, config: Config, features: int, classes: int) -> int:
        return sum(math.prod(shape) for shape in self.network(features, classes, config).shapes().values())

    def _operations(self, config: Config) -> tuple[int, ...]:
        check_names(self.name, config, ("cell",), ("cell",))
        return parse(config["cell"])


# --- truth ------------------------------------------------------------------------------------------------

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
    """Results of the benchmark's cells from a flat table (``.csv`` or ``.csv.gz``).

    Needed are the columns ``index`` (the benchmark's number of the cell), ``ops`` (six operation numbers
    joined by ``-``) and those of `COLUMNS`; others are not read. In the published numbers ``params_m`` of 150
    cells is that of another cell of their class (with the same function and fewer or more useless weights);
    `NASBench201.parameter_count` is right for all.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        if not path.is_file():
            raise InputError(
                f"there is no NAS-Bench-201 table at '{path}'; it is a .csv or .csv.gz file with a line a "
                f"cell and the columns index, ops, {', '.join(COLUMNS)}"
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
                    f"line {line} of '{path}' has an entry that is no number: {error}"
                ) from error
            wrong = [name for name in ACCURACIES if not 0 <= values[name] <= 100]
            if wrong:
                raise InputError(
                    f"line {line} of '{path}': {wrong[0]} is {values[wrong[0]]}; 0 to 100 % is needed"
                )
            if numbers in self._index or index in self._cells:
                raise InputError(f"line {line} of '{path}': cell {row['ops']} or index {index} comes twice")
            self._index[numbers], self._cells[index], self._values[numbers] = index, numbers, values

    def __len__(self) -> int:
        return len(self._index)

    def index(self, cell: Cell) -> int:
        """The benchmark's number of a cell."""
        return self._index[self._found(cell)]

    def cell(self, index: int) -> str:
        """The string of the cell with that number."""
        if index not in self._cells:
            raise InputError(f"index {index} is not in this NAS-Bench-201 table of {len(self)} cells")
        return cell_string(self._cells[index])

    def lookup(self, cell: Cell, column: str) -> float:
        """The entry of a cell in one of `COLUMNS`."""
        if column not in COLUMNS:
            raise unknown_name("column", column, COLUMNS)
        return self._values[self._found(cell)][column]

    def _found(self, cell: Cell) -> tuple[int, ...]:
        numbers = operations(cell)
        if numbers not in self._index:
            raise InputError(f"cell '{cell_string(cell)}' is not in this NAS-Bench-201 table of {len(self)}")
        return numbers


class NATSBench:
    """The same results from the files of the package ``nats_bench`` (topology search space).

    Args:
        source: A benchmark file, a folder of single files (fast mode), or an API that is open already.
            ``nats_bench`` unpickles its files: open none that you do not trust.
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

    def index(self, cell: Cell) -> int:
        """The benchmark's number of a cell."""
        index = int(self._api.query_index_by_arch(cell_string(cell)))
        if index < 0:
            raise InputError(f"cell '{cell_string(cell)}' is not in these nats_bench files")
        return index

    def lookup(self, cell: Cell, column: str) -> float:
        """The entry of a cell in one of `COLUMNS`, averaged over the benchmark's seeds."""
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


PREFIXES = {"cifar10": "c10", "cifar100": "c100"}
"""The benchmark's columns for a data set of ours."""
BENCHMARKS = {"cifar10": 10, "cifar100": 100}
"""Data sets of which tables have results, and their number of classes."""


class TableTruth:
    """Full-data results of cells from a table, in the place of training them.

    Args:
        table: A `NASBench201Table` or `NATSBench`.
        dataset: ``"cifar10"`` or ``"cifar100"``.
        name: What condensed files call it.
    """

    def __init__(self, table: NASBench201Table | NATSBench, dataset: str, name: str = "nasbench201"):
        if dataset not in PREFIXES:
            raise unknown_name("data set of the NAS-Bench-201 table", dataset, PREFIXES)
        self.table, self.dataset, self.name = table, dataset, name

    def score(self, config: Config, part: str, epochs: int = 200) -> float:
        """Accuracy (0 .. 1) on ``part`` (``"val"`` or ``"test"``) after 200 or 12 epochs."""
        column = f"{PREFIXES[self.dataset]}_{'valid' if part == 'val' else part}_{epochs}"
        return self.table.lookup(self._cell(config), column) / 100

    def seconds(self, config: Config) -> float:
        """Seconds of training for 200 epochs by the benchmark's own clock (on half of CIFAR-10)."""
        return self.table.lookup(self._cell(config), SECONDS)

    @staticmethod
    def _cell(config: Config) -> str:
        if "cell" not in config:
            raise InputError(
                f"configuration {config} is no cell of NAS-Bench-201, so no table has its results"
            )
        return str(config["cell"])

    def words(self) -> str:
        """Where the results are from."""
        return f"NAS-Bench-201 table ({self.dataset}, 200 epochs)"

    def spec(self) -> dict[str, Any]:
        """What condensed files say of it."""
        return {"name": self.name, "dataset": self.dataset, "epochs": 200}
