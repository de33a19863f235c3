"""The graph that comes with the package: Citeseer with Planetoid's public split (see embedded/NOTICE)."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from scipy import sparse

from hcdc.datasets._graph import GraphData
from hcdc.datasets._nodes import node_data


def embedded(*, split: Any = None, seed: int = 0) -> GraphData:
    """Citeseer: 3,327 nodes, 4,552 undirected edges, 3,703 features, 6 classes, split 120 / 500 / 1,000.

    15 nodes have neither features nor a label; their label is -1 and they are in no part of the split.

    Args:
        split, seed: As in `hcdc.data`.
    """
    with (
        (resources.files("hcdc.datasets") / "embedded" / "citeseer.npz").open("rb") as stream,
        np.load(stream) as file,
    ):
        stored = {key: file[key] for key in file.files}
    counts, columns = stored["x_counts"].astype(np.int64), stored["x_columns"].astype(np.int64)
    pointers = np.concatenate([[0], np.cumsum(counts)])
    shape = (len(counts), int(stored["num_features"]))
    return node_data(
        "citeseer-embedded",
        "embedded",
        sparse.csr_matrix((np.ones(len(columns)), columns, pointers), shape),
        stored["edges"].astype(np.int64),
        stored["labels"],
        normalisation="row",
        own_parts=[stored[part].astype(np.int64) for part in ("train", "val", "test")],
        split=split,
        seed=seed,
    )
