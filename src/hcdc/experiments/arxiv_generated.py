"""``ogbn-arxiv-generated``: ogbn-arxiv's real edges, labels and split by year, with generated features.

Its features are not available here. A node's generated ones are its class's mean plus noise, so they say less
than the neighbours do, as in the real data. This runs the code at the real size; figures on it say nothing
about ogbn-arxiv.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy import sparse

from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import GraphData, node_data, register_data

NAME = "ogbn-arxiv-generated"
FILE = "ogbn_arxiv_graph.npz"
FEATURES, APART = 128, 0.2
"""Their number, and the deviation of class means; that of the noise is 1."""


@register_data(NAME)
def arxiv_generated(*, seed: int = 0) -> GraphData:
    """The graph of a file with ``indptr``, ``indices``, ``labels``, ``train_idx``, ``val_idx``, ``test_idx``.

    Args:
        seed: Of the features.
    """
    path = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc") / FILE
    if not path.exists():
        raise InputError(f"{NAME}: '{path}' does not exist; set HCDC_DATA to a folder that holds it")
    with np.load(path) as file:
        indptr, indices, labels = (file[key] for key in ("indptr", "indices", "labels"))
        parts = [file[f"{part}_idx"].astype(np.int64) for part in ("train", "val", "test")]
    count, y = len(labels), labels.astype(np.int64)
    rng = numpy_stream(seed, "arxiv-generated")
    means = APART * rng.standard_normal((int(y.max()) + 1, FEATURES), dtype=np.float32)
    x = means[y] + rng.standard_normal((count, FEATURES), dtype=np.float32)
    edges = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), (count, count))
    return node_data(
        NAME, "ogb, features generated", x, edges, y, normalisation="standard", own_parts=parts,
        own_split="public (by year)",
    )  # fmt: skip
