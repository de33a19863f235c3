"""Structure of cells: hand-made ones, and every cell by brute force on its graph."""

import itertools

import numpy as np
import pytest

from hcdc.networks import EDGES, OPERATIONS
from hcdc.spaces import NASBench201, cell_string

SPACE = NASBench201()


def structure(*numbers):
    return SPACE.structure({"cell": cell_string(numbers)})


def walks(numbers, node=0):
    """All ways from a node to the output, as operation numbers, by walking edge after edge."""
    if node == 3:
        return [[]]
    return [
        [(edge, numbers[edge]), *rest]
        for edge, (source, target) in enumerate(EDGES)
        if source == node and numbers[edge] != 0
        for rest in walks(numbers, target)
    ]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 0, 0, 0, 0, 0), {"none": 6}),
        ((3, 0, 0, 0, 0, 0), {"none": 6}),  # the convolution leads nowhere
        ((0, 0, 0, 1, 0, 0), {"none": 5, "skip_connect": 1, "skip_paths": 1, "depth": 1, "width": 1}),
        (
            (1, 0, 4, 0, 0, 1),  # one path: skip, pool, skip
            {"none": 3, "skip_connect": 2, "avg_pool_3x3": 1, "pool_paths": 1, "pool_path": 1}
            | {"depth": 3, "width": 1},
        ),
        (
            (3, 2, 3, 1, 4, 3),  # paths: skip; conv, pool; conv, conv; conv, conv, conv
            {"skip_connect": 1, "nor_conv_1x1": 1, "nor_conv_3x3": 3, "avg_pool_3x3": 1, "skip_paths": 1}
            | {"conv_paths": 2, "mixed_paths": 1, "depth": 3, "longest_conv": 3, "width": 4},
        ),
    ],
)  # fmt: skip
def test_hand_made_cells(numbers, expected):
    found = structure(*numbers)
    assert {name: value for name, value in found.items() if value} == expected


def test_every_kind_of_cell_by_walking():
    rng = np.random.default_rng(0)
    every = list(itertools.product(range(5), repeat=6))
    for k in rng.choice(len(every), 500, replace=False):
        numbers = every[k]
        found, ways = structure(*numbers), walks(numbers)
        live = {edge for way in ways for edge, _ in way}
        kept = [numbers[edge] if edge in live else 0 for edge in range(6)]
        assert [found[name] for name in OPERATIONS] == [kept.count(operation) for operation in range(5)]
        sets = [{operation for _, operation in way} for way in ways]
        assert found["skip_paths"] == sum(s == {1} for s in sets)
        assert found["pool_paths"] == sum(s in ({4}, {1, 4}) for s in sets)
        assert found["pool_path"] == any(s in ({4}, {1, 4}) for s in sets)
        assert found["mixed_paths"] == sum(4 in s and bool(s & {2, 3}) for s in sets)
        assert found["conv_paths"] == sum(4 not in s and bool(s & {2, 3}) for s in sets)
        assert found["depth"] == max([0, *map(len, ways)])
        assert found["longest_conv"] == max([0, *(sum(o in (2, 3) for _, o in way) for way in ways)])
        cuts = [sum(s <= node < t for e, (s, t) in enumerate(EDGES) if e in live) for node in range(3)]
        assert found["width"] == max(cuts)


def test_features_are_as_they_were():
    assert SPACE.features({"cell": cell_string((3, 0, 1, 0, 0, 4))})[:5] == [3, 1, 0, 1, 1]
