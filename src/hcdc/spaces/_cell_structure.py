"""The structure of a NAS-Bench-201 cell in numbers: its operations and its paths."""

from __future__ import annotations

from collections.abc import Sequence

from hcdc.networks import EDGES, KERNELS, NONE, OPERATIONS, SKIP

PATHS = ((3,), (0, 4), (1, 5), (0, 2, 5))
"""The paths from input to output, as edge numbers: 0-3, 0-1-3, 0-2-3, 0-1-2-3."""


def structure(numbers: Sequence[int]) -> dict[str, float]:
    """Features of the cell with these six operation numbers; paths have no ``none``, live edges are on paths.

    - The name of each operation: how many live edges have it; dead edges count as ``none``.
    - ``skip_paths``, ``pool_paths``, ``conv_paths``, ``mixed_paths``: paths of skips alone, with pools but no
      convolution, with convolutions but no pool, and with both.
    - ``pool_path``: 1 if there is a path of skips and pools only with at least one pool.
    - ``depth``: edges of the longest path. ``longest_conv``: most convolutions on a path.
    - ``width``: most live edges side by side, between two consecutive nodes.
    """
    paths = [path for path in PATHS if all(numbers[edge] != NONE for edge in path)]
    live = {edge for path in paths for edge in path}
    convs = [sum(numbers[edge] in KERNELS for edge in path) for path in paths]
    pools = [sum(numbers[edge] not in (SKIP, *KERNELS) for edge in path) for path in paths]
    kinds = [(conv > 0, pool > 0) for conv, pool in zip(convs, pools)]
    found = {
        name: sum((numbers[edge] if edge in live else NONE) == operation for edge in range(len(EDGES)))
        for operation, name in enumerate(OPERATIONS)
    }
    found |= {
        "skip_paths": kinds.count((False, False)),
        "pool_paths": kinds.count((False, True)),
        "conv_paths": kinds.count((True, False)),
        "mixed_paths": kinds.count((True, True)),
        "pool_path": int((False, True) in kinds),
        "depth": max(map(len, paths), default=0),
        "longest_conv": max(convs, default=0),
        "width": max(sum(EDGES[edge][0] <= node < EDGES[edge][1] for edge in live) for node in range(3)),
    }
    return {name: float(value) for name, value in found.items()}
