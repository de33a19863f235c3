"""NAS-Bench-Graph: 26,206 graph neural networks of four operations."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.networks import WiredNetwork, check_lam
from hcdc.spaces._base import Space, nearby
from hcdc.spaces._dimension import Dimension
from hcdc.spaces._finite import draw, project_simplex
from hcdc.spaces._registry import register

WIRINGS = ("0000", "0001", "0011", "0012", "0013", "0111", "0112", "0122", "0123")
"""The input of each of the four nodes; 0 is the input of the network. Numbered 0 to 8 by the benchmark."""

LAYERS = ("gat", "gcn", "gin", "cheb", "sage", "arma", "graph", "fc", "skip")
"""The operations in the benchmark's order; ``graph`` is the k-GNN, ``fc`` a linear layer."""

FILTERS = {"gin": "gin-0", "cheb": "cheb-2", "sage": "sage-mean"}
"""Operations whose layer has another name among the zoo's filters."""

PARAMETERS = {
    "gat": (1, 3), "gcn": (1, 1), "gin": (2, 2), "cheb": (2, 1), "sage": (2, 1), "arma": (2, 1),
    "graph": (2, 1), "fc": (1, 1), "skip": (0, 0),
}  # fmt: skip
"""Square matrices and vectors that each operation learns."""

WIDTH = 64
"""Hidden units of the networks."""

NODES = ("op1", "op2", "op3", "op4")
SKIP = LAYERS.index("skip")
INPUT = (-1,)
DIMENSIONS = (
    Dimension("wiring", "choice", choices=WIRINGS, read_by="network"),
    *(Dimension(node, "choice", choices=LAYERS, read_by="network") for node in NODES),
)

Numbers = tuple[int, ...]
"""The wiring and the four operations, by number."""


@functools.cache
def computation(numbers: Numbers) -> tuple[Any, ...]:
    """What an architecture computes: the sorted trees that hang on the input, without skips.

    A tree is ``(operation, *subtrees)``. A skip is replaced by its subtrees, and at the end of a path by
    `INPUT`. The network concatenates the ends of all paths, so the order of trees does not matter.
    """
    sources = [int(source) for source in WIRINGS[numbers[0]]]

    def trees(source: int) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for node in (k for k in range(1, 5) if sources[k - 1] == source):
            below = trees(node)
            if numbers[node] != SKIP:
                found.append((numbers[node], *below))
            else:
                found += below if node in sources else [INPUT]
        return sorted(found)

    return tuple(trees(0))


def _listed(trees: Sequence[tuple[Any, ...]]) -> bool:
    """Whether the benchmark has it: no raw input among the outputs, and no tree whose only subtree is one."""
    return INPUT not in trees and all(
        len(tree) == 1 or (tree[1:] != (INPUT,) and _listed([t for t in tree[1:] if t != INPUT]))
        for tree in trees
    )


@functools.cache
def _by_computation() -> dict[tuple[Any, ...], Numbers]:
    """The benchmark's architecture for each of the 26,206 computations.

    Among equals it takes the last wiring, then the most skips at the front, then the lowest operations.
    """
    chosen: dict[tuple[Any, ...], tuple[tuple[int, int, Numbers], Numbers]] = {}
    for numbers in itertools.product(range(len(WIRINGS)), *[range(len(LAYERS))] * len(NODES)):
        front = next((k for k, number in enumerate(numbers[1:]) if number != SKIP), len(NODES))
        key, found = computation(numbers), ((-numbers[0], -front, numbers), numbers)
        chosen[key] = min(chosen.get(key, found), found)
    return {key: numbers for key, (_, numbers) in chosen.items() if _listed(key)}


@functools.cache
def _candidates() -> tuple[Numbers, ...]:
    """The candidates sorted by hash, so the first n are a fair sample."""
    return tuple(sorted(_by_computation().values(), key=lambda numbers: config_hash(_config(numbers))))


def _config(numbers: Sequence[int]) -> Config:
    wiring, *operations = numbers
    return {"wiring": WIRINGS[wiring], **{node: LAYERS[n] for node, n in zip(NODES, operations)}}


@register
@dataclass(frozen=True)
class NASBenchGraph(Space):
    """The architectures of NAS-Bench-Graph (Qin et al., 2022): ``{"wiring": "0012", "op1": "gcn", ...}``.

    ``wiring`` gives the input of each of the four nodes, ``op1`` to ``op4`` their operations. All 59,049
    combinations are configurations; the 26,206 candidates are those of the benchmark, one per computation.
    lambda ``[45]`` holds the weights of the nine options of each choice, one-hot at a configuration.

    `hcdc.truth.NASBenchGraphTable` has the benchmark's results. The networks here are for trials on a copy:
    their wiring and operations are the benchmark's, their width, dropout and training are not.
    """

    name = "nasbench-graph"

    @property
    def dimension(self) -> int:
        return sum(self.decisions())

    def dimensions(self) -> tuple[Dimension, ...]:
        return DIMENSIONS

    def decisions(self) -> tuple[int, ...]:
        return (len(WIRINGS), *[len(LAYERS)] * len(NODES))

    def candidates(self) -> list[Config]:
        return [_config(numbers) for numbers in _candidates()]

    def counterpart(self, config: Config) -> Config:
        """The candidate that computes the same; itself if the benchmark has none."""
        numbers = self.to_numbers(config)
        return _config(_by_computation().get(computation(numbers), numbers))

    def neighbours(self, config: Config) -> list[Config]:
        """The other candidates that some change of one choice makes."""
        own, known = self.to_numbers(config), _by_computation()
        near = [computation(numbers) for numbers in nearby(own, self.decisions())]
        return [
            _config(known[key]) for key in dict.fromkeys(near) if key != computation(own) and key in known
        ]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` candidates in random order; each comes once before any repeats."""
        every = _candidates()
        return [_config(every[i]) for i in draw(len(every), count, rng)]

    def encode(self, config: Config) -> Tensor:
        """One-hot for each choice."""
        numbers = torch.tensor(self.to_numbers(config))
        return torch.nn.functional.one_hot(numbers, len(LAYERS)).flatten().double()

    def decode(self, lam: Tensor) -> Config:
        """The option with the largest weight for each choice, which need not be a candidate."""
        check_lam(lam, self.dimension)
        return self.from_numbers(lam.view(-1, len(LAYERS)).argmax(-1).tolist())

    def project(self, lam: Tensor) -> Tensor:
        """Project the weights of each choice onto their simplex."""
        check_lam(lam, self.dimension)
        return project_simplex(lam.reshape(*lam.shape[:-1], -1, len(LAYERS))).flatten(-2)

    def features(self, config: Config) -> list[float]:
        """How often each operation occurs in the computation, its depth, and its number of outputs."""
        trees = computation(self.to_numbers(config))
        counts = Counter(tree[0] for tree in _walk(trees))
        ends = sum(len(tree) == 1 for tree in _walk(trees))
        return [*(float(counts[k]) for k in range(SKIP)), float(_depth(trees)), float(ends)]

    def network(self, features: int, classes: int, config: Config | None = None) -> WiredNetwork | None:
        """The network of an architecture; None for None, because the space has no relaxed network."""
        if config is None:
            return None
        self.check(config)
        layers = tuple(FILTERS.get(name, name) for name in (str(config[node]) for node in NODES))
        return WiredNetwork(layers, (features, WIDTH, classes), wiring=tuple(map(int, config["wiring"])))

    def parameter_count(self, config: Config, features: int, classes: int) -> int:
        """Number of parameters of `network`, without building it: a search counts all candidates, often.

        The layer on the features, `PARAMETERS` of each operation, and the classifier of the ends.
        """
        self.check(config)
        matrices, vectors = map(sum, zip(*(PARAMETERS[str(config[node])] for node in NODES)))
        ends = len(NODES) - len(set(str(config["wiring"])) - {"0"})
        inside = WIDTH * (WIDTH * matrices + vectors)
        return (features + 1) * WIDTH + inside + (ends * WIDTH + 1) * classes

    def spec(self) -> dict[str, Any]:
        return {"name": self.name}


def _walk(trees: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for tree in trees:
        yield tree
        yield from _walk(tree[1:])


def _depth(trees: Sequence[tuple[Any, ...]]) -> int:
    return max(((tree != INPUT) + _depth(tree[1:]) for tree in trees), default=0)
