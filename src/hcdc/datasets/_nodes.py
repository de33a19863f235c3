"""From arrays to `GraphData`: checks, a symmetric binary adjacency, normalised features, a split."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets._graph import Graph, GraphData, Matrix
from hcdc.datasets._split import PART_NAMES, Parts, as_parts, chosen, seeded_nodes

log = logging.getLogger("hcdc")

SPARSE_BELOW = 0.2


def node_data(
    name: str,
    source: str,
    x: Any,
    adjacency: Any,
    y: NDArray[Any],
    *,
    normalisation: str,
    own_parts: Any = None,
    own_split: str = "public",
    split: Any = None,
    seed: int = 0,
) -> GraphData:
    """A checked `GraphData`.

    Args:
        name, source: As in `GraphData`.
        x: Features ``[n, d]``, a numpy array or a scipy sparse matrix.
        adjacency: A scipy sparse matrix ``[n, n]``, or edges ``[2, E]`` as integers; made symmetric and
            binary.
        y: Integer labels ``[n]``, -1 if unknown.
        normalisation: ``"row"``: x_i / sum_j x_ij; rows that sum to 0 stay 0, and features with negative
            entries are left as they are (``"none"``). ``"standard"``: mean 0 and deviation 1 over the
            training nodes. ``"none"``.
        own_parts: The data's own split (three index arrays or masks), or None.
        own_split: That split in words.
        split: What the user asked for, see `hcdc.data`.
        seed: Seed of a seeded split.
    """
    count = int(x.shape[0])
    y = _labels(y, count, name)
    if split is not None:
        own_parts, own_split = chosen(split, count), "given by the caller"
    if own_parts is None:
        parts, words = seeded_nodes(y, seed)
    else:
        parts, words = _labelled(as_parts(own_parts, count), y), own_split
    _every_class(y, parts[0])
    features, normalisation = _features(x, normalisation, parts[0], name)
    log.info("%s: %s", name, words)
    num_classes = int(y.max()) + 1
    train, val, test = (torch.from_numpy(part) for part in parts)
    return GraphData(
        name=name,
        source=source,
        graph=Graph(features, _adjacency(adjacency, count)),
        y=torch.from_numpy(y),
        train=train,
        val=val,
        test=test,
        num_classes=num_classes,
        normalisation=normalisation,
        split=words,
        class_names=tuple(str(c) for c in range(num_classes)),
    )


def _labels(y: NDArray[Any], count: int, name: str) -> NDArray[np.int64]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(
            f"{name}: labels have shape {y.shape}; one class per node is needed (several labels per node are "
            "not supported: make one data set per column)"
        )
    if np.issubdtype(y.dtype, np.floating):
        raise InputError(
            f"{name}: labels are {y.dtype} numbers, but regression on nodes is not supported; turn them "
            "into class numbers (y.long()), or use a table with a target column"
        )
    if not np.issubdtype(y.dtype, np.integer) and y.dtype != bool:
        raise InputError(
            f"{name}: labels have type {y.dtype}; integers 0 .. classes - 1 are needed (-1: unknown)"
        )
    if len(y) != count:
        raise InputError(
            f"{name}: there are {len(y)} labels for {count} nodes; hcdc classifies the nodes of one graph, "
            "so one label per node is needed (-1 if unknown)"
        )
    y = y.astype(np.int64)
    if count and y.min() < -1:
        raise InputError(
            f"{name}: label {int(y.min())} is out of range; allowed are 0 .. classes - 1, and -1: unknown"
        )
    found = np.unique(y[y >= 0])
    if len(found) < 2:
        raise InputError(f"{name}: the labels name {len(found)} class; classification needs at least 2")
    if int(found[-1]) >= len(found):
        empty = int(np.flatnonzero(found != np.arange(len(found)))[0])
        raise InputError(
            f"{name}: class {empty} is empty: no node has that label (the largest label is "
            f"{int(found[-1])}); number the classes 0 .. classes - 1 without gaps"
        )
    return y


def _labelled(parts: Parts, y: NDArray[np.int64]) -> Parts:
    train, val, test = (part[y[part] >= 0] for part in parts)
    for part, name in zip((train, val, test), PART_NAMES):
        if not len(part):
            raise InputError(
                f"the {name} part of the split has no labelled node; split='seeded' makes a new one"
            )
    return train, val, test


def _every_class(y: NDArray[np.int64], train: NDArray[np.int64]) -> None:
    missing = np.setdiff1d(np.unique(y[y >= 0]), y[train])
    if len(missing):
        raise InputError(
            f"class {int(missing[0])} is empty in the training part of the split; every class needs at "
            "least one training node (split='seeded' makes a stratified split)"
        )


def _features(x: Any, normalisation: str, train: NDArray[np.int64], name: str) -> tuple[Matrix, str]:
    if x.ndim != 2 or x.shape[1] < 1:
        raise InputError(f"{name}: features have shape {x.shape}; [nodes, features] is needed")
    if not sparse.issparse(x) and x.dtype.kind not in "biuf":
        raise InputError(
            f"{name}: features have type {x.dtype}; numbers are needed (encode text as numbers first)"
        )
    if normalisation == "standard":
        dense = np.asarray(x.toarray() if sparse.issparse(x) else x, np.float32)
        _finite(dense, name)
        mean = dense[train].mean(0, dtype=np.float64)
        deviation = dense[train].std(0, dtype=np.float64)
        scale = np.where(deviation > 0, deviation, 1.0)
        return torch.from_numpy((dense - mean.astype(np.float32)) / scale.astype(np.float32)), "standard"
    stored = x.nnz if sparse.issparse(x) else np.count_nonzero(x)
    if stored < SPARSE_BELOW * x.shape[0] * x.shape[1]:
        matrix = sparse.csr_matrix(x).astype(np.float64)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _finite(matrix, name)
        if normalisation == "row" and (matrix.nnz == 0 or matrix.data.min() >= 0):
            matrix = sparse.diags(_inverse(np.asarray(matrix.sum(1)).ravel())) @ matrix
        else:
            normalisation = "none"
        return SparseMatrix.from_scipy(matrix), normalisation
    dense = x.toarray() if sparse.issparse(x) else x
    dense = dense if dense.dtype == np.float32 else dense.astype(np.float64)
    _finite(dense, name)
    if normalisation == "row" and dense.min() >= 0:
        dense = dense * _inverse(dense.sum(1, dtype=np.float64))[:, None]
    else:
        normalisation = "none"
    return torch.from_numpy(np.array(dense, np.float32)), normalisation


def _inverse(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)


def _finite(x: Any, name: str) -> None:
    with np.errstate(over="ignore"):
        finite = np.isfinite((x.data if sparse.issparse(x) else x).astype(np.float32, copy=False))
    if finite.all():
        return
    bad = np.flatnonzero(~finite.ravel())
    if sparse.issparse(x):
        node, column = (int(axis[bad[0]]) for axis in x.tocoo().coords)
    else:
        node, column = divmod(int(bad[0]), x.shape[1])
    raise InputError(
        f"{name}: features hold NaN or infinity in {len(bad)} place{'s' * (len(bad) > 1)}, the first at node "
        f"{node}, column {column}; fill or drop them first"
    )


def _adjacency(given: Any, count: int) -> SparseMatrix:
    """A + A^T with every entry 1 and no self-loops."""
    if not sparse.issparse(given):
        if given.ndim != 2 or given.shape[0] != 2:
            raise InputError(f"edges have shape {given.shape}; [2, number of edges] is needed")
        if given.size and (given.min() < 0 or given.max() >= count):
            wrong = int(given.max() if given.max() >= count else given.min())
            raise InputError(f"an edge names node {wrong}; there are nodes 0 .. {count - 1}")
        given = sparse.coo_matrix((np.ones(given.shape[1], np.float32), (given[0], given[1])), (count, count))
    if given.shape != (count, count):
        raise InputError(
            f"the adjacency has shape {given.shape} for {count} nodes; [{count}, {count}] is needed"
        )
    matrix = given.tocoo()
    keep = (matrix.row != matrix.col) & (matrix.data != 0)
    rows, columns = matrix.row[keep], matrix.col[keep]
    both = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    result = sparse.csr_matrix((np.ones(len(both[0]), np.float32), both), (count, count))
    result.sum_duplicates()
    result.data[:] = 1.0
    return SparseMatrix.from_scipy(result, symmetric=True)
