"""A few images in the form of CIFAR-10 and a table of made-up results, for protocol nas201."""

import csv
import functools

import numpy as np

from hcdc.core.seeds import numpy_stream
from hcdc.spaces import NASBench201, operations
from hcdc.truth import COLUMNS


@functools.cache
def figures():
    """Accuracies that differ from cell to cell and from column to column: ``{cell: {column: value}}``."""
    cells = [config["cell"] for config in NASBench201().candidates()]
    values = 50 + 40 * numpy_stream(0, "made-up").random((len(cells), len(COLUMNS)))
    return {cell: dict(zip(COLUMNS, row.tolist())) for cell, row in zip(cells, values)}


def write_table(path):
    with path.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["index", "ops", *COLUMNS])
        for index, (cell, row) in enumerate(figures().items()):
            rows.writerow([index, "-".join(map(str, operations(cell))), *row.values()])
    return path


def write_images(path):
    """Ten classes of 3 x 32 x 32 noise around their own level."""
    rng, parts = np.random.default_rng(0), {}
    for name, count in (("train", 60), ("val", 40), ("test", 10)):
        y = np.arange(count) % 10
        x = rng.integers(0, 56, (count, 32, 32, 3)) + 20 * y[:, None, None, None]
        parts |= {f"x_{name}": x.astype(np.uint8), f"y_{name}": y}
    np.savez(path, **parts)
    return path
