"""Graphs in an ``.npz`` file, in the layout of the gnn-benchmark collection (Shchur et al. 2018)."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
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
GRAPH_LAYOUT = (
    "a graph in the gnn-benchmark layout has adj_data, adj_indices, adj_indptr, adj_shape, attr_data, "
    "attr_indices, attr_indptr, attr_shape (or a dense attr_matrix) and labels"
)


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

    The arrays ``{train,val,test}_idx`` or ``{train,val,test}_mask`` are the split, if all three exist.

    Args:
        path: The file.
        name, source: As in `GraphData`; from the path by default.
        binary: Turn every positive feature into 1, as PyG does for this collection.
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


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an ``.npz`` file."""
    try:
        with zipfile.ZipFile(path) as file:
            return [name.removesuffix(".npy") for name in file.namelist()]
    except zipfile.BadZipFile as error:
        raise InputError(
            f"'{path}' is not an .npz file, or is truncated; write one with numpy.savez"
        ) from error
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error}") from error


def npz_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """The named arrays of an ``.npz`` file; objects are refused, because they could run code."""
    try:
        with np.load(path) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"'{path}' cannot be read as an npz file of plain arrays: {plain(error)}") from error


def plain(error: Exception) -> str:
    """The text of a ``numpy.load`` error, without its advice to load Python objects."""
    text = " ".join(str(error).split())
    return "it holds something other than plain numbers" if "pickle" in text else text


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a graph; an error names those that are missing."""
    found = set(npz_names(path))
    missing = [key for key in (*(f"adj_{f}" for f in FIELDS), "labels") if key not in found]
    sparse_features = [f"attr_{f}" for f in FIELDS]
    if not found & set(DENSE_FEATURES):
        missing += [key for key in sparse_features if key not in found]
    if missing:
        raise InputError(f"'{path}' lacks the arrays {', '.join(missing)}; {GRAPH_LAYOUT}")
    whole = [key for key in sparse_features if key in found]
    splits = [pattern.format(part) for pattern in SPLITS for part in PART_NAMES]
    wanted = [*(f"adj_{f}" for f in FIELDS), "labels", *DENSE_FEATURES, *splits]
    wanted += whole if len(whole) == len(FIELDS) else []
    return npz_arrays(path, [key for key in wanted if key in found])


def _csr(arrays: dict[str, NDArray[Any]], prefix: str, path: Path) -> Any:
    data, indices, indptr, shape = (arrays[f"{prefix}_{f}"] for f in FIELDS)
    try:
        matrix = sparse.csr_matrix((data, indices, indptr), tuple(int(k) for k in shape.ravel()))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(f"'{path}': {prefix}_* is not a sparse matrix in CSR form: {error}") from error
    return matrix
