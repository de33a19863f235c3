"""ogbn-arxiv, in the raw layout of the Open Graph Benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.errors import InputError
from hcdc.datasets._graph import GraphData
from hcdc.datasets._nodes import node_data

FILES = {
    "edges": "raw/edge.csv.gz",
    "x": "raw/node-feat.csv.gz",
    "y": "raw/node-label.csv.gz",
    "count": "raw/num-node-list.csv.gz",
    "train": "split/time/train.csv.gz",
    "val": "split/time/valid.csv.gz",
    "test": "split/time/test.csv.gz",
}


def arxiv(root: Path, *, split: Any = None, seed: int = 0) -> GraphData:
    """The citation graph, made symmetric, with features standardised on the training nodes; split by year.

    Args:
        root: Folder that holds ``ogbn_arxiv``.
        split, seed: As in `hcdc.data`.
    """
    folder = root / "ogbn_arxiv"
    missing = [file for file in FILES.values() if not (folder / file).exists()]
    if missing:
        raise InputError(
            f"ogbn-arxiv: '{folder}' lacks {', '.join(missing)}; set HCDC_DATA to a folder that holds "
            "ogbn_arxiv as the Open Graph Benchmark unpacks it, or use the graph that comes with the "
            "package: 'citeseer-embedded'"
        )
    stored = {
        key: _table(folder / file, np.float32 if key == "x" else np.int64) for key, file in FILES.items()
    }
    count = int(stored["count"][0, 0])
    if len(stored["x"]) != count:
        raise InputError(f"ogbn-arxiv: '{folder}' lists {count} nodes but features for {len(stored['x'])}")
    return node_data(
        "ogbn-arxiv",
        "ogb",
        stored["x"],
        stored["edges"].T,
        stored["y"],
        normalisation="standard",
        own_parts=[stored[part][:, 0] for part in ("train", "val", "test")],
        own_split="public (by year)",
        split=split,
        seed=seed,
    )


def _table(path: Path, dtype: Any) -> NDArray[Any]:
    try:
        return np.loadtxt(path, delimiter=",", dtype=dtype, ndmin=2)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"ogbn-arxiv: '{path}' cannot be read: {error}") from error
