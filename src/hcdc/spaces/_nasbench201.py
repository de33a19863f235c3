"""NAS-Bench-201: 15,625 cells and their relaxation."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, unknown_name
from hcdc.networks import EDGES, KERNELS, MIXTURE, NONE, OPERATIONS, SKIP, CellNetwork, check_lam, split_edges
from hcdc.spaces._base import Space, nearby
from hcdc.spaces._cell_structure import structure
from hcdc.spaces._dimension import Dimension, check_names
from hcdc.spaces._finite import draw, project_simplex
from hcdc.spaces._registry import register

Cell = str | Sequence[int]
"""A cell: its string, or six operation numbers for the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3."""

EXAMPLE = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|"


def parse(cell: str) -> tuple[int, ...]:
    """The six operation numbers of ``"|op~0|+|op~0|op~1|+|op~0|op~1|op~2|"``.

    Raises:
        InputError: The string is not a cell; the message says where it goes wrong.
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
    """The six operation numbers of a cell in either form; `OPERATIONS` has their names.

    Raises:
        InputError: The cell is neither a cell string nor six numbers from 0 to 4.

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
            f"{cell!r} is not a cell; a cell is a string such as '{EXAMPLE}', or 6 operation numbers from 0 "
            f"to 4, such as {list(parse(EXAMPLE))} (NASBench201Table.cell gives the cell for a number in the "
            "benchmark)"
        )
    return tuple(int(n) for n in numbers)


def cell_string(cell: Cell) -> str:
    """The string of a cell in either form.

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
    """Whether a path without ``none`` leads from input to output; 341 of the 15,625 cells have none.

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
    """The benchmark's own name for what a cell computes; it distinguishes 6,466 classes.

    Notation: ``0`` is the input, ``#`` is zero, ``(a)@op`` is an operation. A skip is its source node;
    ``none`` and every edge from a node ``#`` are ``#``; the terms of a sum are sorted as text. Zeros stay in
    sums, and sums are not flattened, so cells that compute the same can have two names; see `computation`.

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
    """What a cell computes, as a flat, sorted sum without zeros; there are 4,930 different sums.

    Cells in the same class of `canonical` compute the same. A term is the input, ``("x",)``, or
    ``(operation, *sum)``. ``()`` is zero, which all unconnected cells compute.

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
    """The cell with the largest weight or logit of lambda ``[30]`` at each edge; ties go to the first.

    Example:
        >>> genotype(torch.tensor([0.6, 0.4, 0.0, 0.0, 0.0] * 6))
        {'cell': '|none~0|+|none~0|none~1|+|none~0|none~1|none~2|'}
    """
    check_lam(lam, MIXTURE)
    return {"cell": cell_string(split_edges(lam).argmax(-1).tolist())}


@functools.cache
def _unique_connected() -> tuple[str, ...]:
    """One cell per nonzero `computation`: fewest weights, then lowest numbers; sorted by hash."""
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

    All 15,625 strings are configurations. The 4,929 candidates are one cell per function that a connected
    cell can compute (the one with the fewest parameters; all are in different classes of `canonical`). So a
    cell used for condensing never returns under another string, and dead cells, which perform at chance, do
    not inflate rank correlations.

    The extended space is the product of six simplices. lambda ``[30]`` holds the weights of the five
    operations edge by edge, non-negative with sum 1; a cell is one-hot at each edge, and ``project`` projects
    each edge onto its simplex. (With logits no cell would be a member: a softmax is never one-hot.)

    Attributes:
        cells: N, cells per stage: 5 in the benchmark, 1 for searching.
        channels: C, channels of the first stage.
        skip: Leaves out this many candidates, the first in order, so that they can judge.
    """

    cells: int = 1
    channels: int = 16
    skip: int = 0

    name = "nasbench201"

    def __post_init__(self) -> None:
        given: tuple[object, ...] = (self.cells, self.channels)
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in given):
            raise InputError(
                f"NASBench201 needs cells and channels of at least 1, whole numbers; got {self.cells!r} and "
                f"{self.channels!r}"
            )
        if self.skip and not 0 < self.skip <= len(_unique_connected()) - 2:
            raise InputError(f"NASBench201 skip {self.skip}: at least 2 of the candidates must be left")

    @property
    def dimension(self) -> int:
        return MIXTURE

    def dimensions(self) -> tuple[Dimension, ...]:
        """The cell alone; its choices are the candidates."""
        return (Dimension("cell", "choice", choices=_unique_connected()[self.skip :], read_by="network"),)

    def check(self, config: Config) -> None:
        """All 15,625 strings are valid, not only the candidates."""
        self._operations(config)

    def candidates(self) -> list[Config]:
        """Unique connected cells ordered by hash, so the first n are a fair sample."""
        return [{"cell": cell} for cell in _unique_connected()[self.skip :]]

    def counterpart(self, config: Config) -> Config:
        """The candidate that computes the same as a cell; the cell itself if that is zero."""
        numbers = self._operations(config)
        return {"cell": _by_computation().get(computation(numbers), cell_string(numbers))}

    def decisions(self) -> tuple[int, ...]:
        """The operation of each edge."""
        return (len(OPERATIONS),) * len(EDGES)

    def to_numbers(self, config: Config) -> tuple[int, ...]:
        return self._operations(config)

    def from_numbers(self, numbers: Sequence[int]) -> Config:
        return {"cell": cell_string(list(numbers))}

    def neighbours(self, config: Config) -> list[Config]:
        """The other candidates that some change of one edge makes."""
        own, known = self._operations(config), _by_computation()
        near = [computation(numbers) for numbers in nearby(own, self.decisions())]
        return [
            {"cell": known[key]} for key in dict.fromkeys(near) if key in known and key != computation(own)
        ]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` unique connected cells, equally likely; each comes once before any repeats."""
        every = _unique_connected()[self.skip :]
        return [{"cell": every[i]} for i in draw(len(every), count, rng)]

    def encode(self, config: Config) -> Tensor:
        """One-hot at each edge."""
        numbers = torch.tensor(self._operations(config))
        return torch.nn.functional.one_hot(numbers, len(OPERATIONS)).flatten().double()

    def decode(self, lam: Tensor) -> Config:
        """The nearest cell (`genotype`), which may be unconnected."""
        return genotype(lam)

    def project(self, lam: Tensor) -> Tensor:
        """Project each edge onto its simplex."""
        check_lam(lam, MIXTURE)
        return project_simplex(split_edges(lam)).flatten(-2)

    def spec(self) -> dict[str, Any]:
        skipped = {"skip": self.skip} if self.skip else {}
        return {"name": self.name, "cells": self.cells, "channels": self.channels, **skipped}

    def network(self, features: int, classes: int, config: Config | None = None) -> CellNetwork:
        """The network of a cell, or the relaxed one (without scales in its cells) if ``config`` is None.

        Args:
            features: Channels of the images.
            classes: Number of classes.
            config: The cell.
        """
        cell = None if config is None else self._operations(config)
        return CellNetwork(cell, self.cells, self.channels, features, classes, affine=cell is not None)

    def features(self, config: Config) -> list[float]:
        """How often each operation occurs, and the log of the number of parameters; both cost nothing."""
        numbers = self._operations(config)
        counts = [float(numbers.count(operation)) for operation in range(len(OPERATIONS))]
        return [*counts, math.log(self.parameter_count(config, 3, 10))]

    def structure(self, config: Config) -> dict[str, float]:
        """The cell's operations, its paths by kind, depth, width and longest run of convolutions, by name."""
        return structure(self._operations(config))

    def promises(self, config: Config) -> dict[str, float]:
        """A path of skips alone is good, one of skips and pools with at least one pool is bad."""
        found = self.structure(config)
        return {"skip_path": float(found["skip_paths"] > 0), "no_pool_path": -found["pool_path"]}

    def parameter_count(self, config: Config, features: int, classes: int) -> int:
        return self.network(features, classes, config).parameter_count()

    def _operations(self, config: Config) -> tuple[int, ...]:
        check_names(self.name, config, ("cell",), ("cell",))
        return parse(config["cell"])
