"""Graphs in one ``.npz`` file, in the layout of the gnn-benchmark collection (Shchur et al. 2018)."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hcdc.core.errors import InputError
from hcdc.datasets._graph import GraphData
from hcdc.datasets._nodes import node_data
from hcdc.datasets._split import PART_NAMES

FIELDS = ("data", "indices", "indptr", "shape")
DENSE_FEATURES = ("attr_matrix", "features")
SPLITS = ("{}_idx", "{}_mask")


def read_npz(
    path: Path,
    *,
    name: str | None = None,
    source: str | None = None,
    binary: bool = False,
    split: Any = None,
    seed: int = 0,
) -> GraphData:
    """A graph from ``adj_{data,indices,indptr,shape}``, ``attr_*`` (or a dense ``attr_matrix``) and labels.

    Arrays ``{train,val,test}_idx`` or ``{train,val,test}_mask`` are the split where the file has all three
    of a kind.

    Args:
        path: The file.
        name, source: As in `GraphData`; from the path by default.
        binary: Turn every positive feature into 1, as PyG does with the files of this collection.
        split, seed: As in `hcdc.data`.
    """
    arrays = _arrays(path)
    x = (
        _csr(arrays, "attr", path)
        if "attr_data" in arrays
        else arrays[next(k for k in DENSE_FEATURES if k in arrays)]
    )
    if binary:
        x = (x > 0).astype(np.float32)
    parts = None
    for pattern in SPLITS:
        keys = [pattern.format(part) for part in PART_NAMES]
        if all(key in arrays for key in keys):
            parts = [arrays[key] for key in keys]
    return node_data(
        name or path.stem,
        source or str(path),
        x,
        _csr(arrays, "adj", path),
        arrays["labels"],
        normalisation="row",
        own_parts=parts,
        own_split="the split of the file",
        split=split,
        seed=seed,
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that matter, or a refusal that names those that are missing."""
    try:
        with np.load(path) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(f"'{path}' is not an npz archive; write it with numpy.savez")
            found = set(file.files)
            missing = [key for key in (*(f"adj_{f}" for f in FIELDS), "labels") if key not in found]
            sparse_features = [f"attr_{f}" for f in FIELDS]
            if not found & set(DENSE_FEATURES):
                missing += [key for key in sparse_features if key not in found]
            if missing:
                raise InputError(
                    f"'{path}' lacks the arrays {', '.join(missing)}; a graph in the gnn-benchmark layout "
                    "has adj_data, adj_indices, adj_indptr, adj_shape, attr_data, attr_indices, attr_indptr, "
                    "attr_shape (or a dense attr_matrix) and labels"
                )
            whole = [key for key in sparse_features if key in found]
            splits = [pattern.format(part) for pattern in SPLITS for part in PART_NAMES]
            wanted = [*(f"adj_{f}" for f in FIELDS), "labels", *DENSE_FEATURES, *splits]
            wanted += whole if len(whole) == len(FIELDS) else []
            return {key: file[key] for key in wanted if key in found}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"'{path}' cannot be read as an npz file of plain arrays: {error}") from error


def _csr(arrays: dict[str, NDArray[Any]], prefix: str, path: Path) -> Any:
    data, indices, indptr, shape = (arrays[f"{prefix}_{f}"] for f in FIELDS)
    try:
        matrix = sparse.csr_matrix((data, indices, indptr), tuple(int(k) for k in shape.ravel()))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(f"'{path}': {prefix}_* is not a sparse matrix in CSR form: {error}") from error
    return matrix
