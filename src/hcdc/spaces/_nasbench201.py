"""NAS-Bench-201: 15,625 cells by string, number and class, and their relaxation."""

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
        return self.network(features, classes, config).parameter_count()

    def _operations(self, config: Config) -> tuple[int, ...]:
        check_names(self.name, config, ("cell",), ("cell",))
        return parse(config["cell"])
