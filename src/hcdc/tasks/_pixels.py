"""Per-pixel classification of small images as node classification on a grid graph (paper's appendix)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData


def _grid(height: int, width: int) -> sparse.csr_matrix:
    """Adjacency of one image: every pixel with its neighbours above, below, left and right."""

    def path(n: int) -> sparse.spmatrix:
        ones = np.ones(n - 1)
        return sparse.diags([ones, ones], [-1, 1], shape=(n, n))

    return sparse.csr_matrix(sparse.kronsum(path(width), path(height)))


def pixels_as_graph(
    images: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    split: Sequence[Sequence[int]],
    name: str = "pixels",
) -> GraphData:
    """Images whose pixels are the nodes of one block-diagonal grid graph; `GraphTask` then classifies pixels.

    Node ``(j h + r) w + c`` is the pixel in row r and column c of image j; A = diag(A_1, ..., A_N) has no
    edge between two images, so a pixel of a validation image never sees a training image.

    Args:
        images: ``[N, h, w, c]``, c channels.
        labels: ``[N, h, w]`` class numbers 0, 1, ...; -1 marks pixels without a label, which are in no split.
        split: Image numbers for training, validation and test, disjoint.
        name: What the data set is called.
    """
    x, y = torch.as_tensor(images), torch.as_tensor(labels)
    if x.dim() != 4:
        raise InputError(
            f"images have shape {tuple(x.shape)}; needed is [N, h, w, c] (grey images: images[..., None])"
        )
    if y.shape != x.shape[:3] or y.is_floating_point():
        raise InputError(
            f"labels are {tuple(y.shape)} {y.dtype}; needed are whole numbers of shape {tuple(x.shape[:3])}"
        )
    if not bool(torch.isfinite(x).all()):
        raise InputError("images have NaN or infinite values; fill or drop them")
    count, height, width, channels = x.shape
    chosen = [int(j) for part in split for j in part]
    if len(split) != 3 or len(set(chosen)) < len(chosen) or any(not 0 <= j < count for j in chosen):
        raise InputError(
            f"split must be three disjoint lists (train, val, test) of image numbers below {count}"
        )
    y = y.reshape(-1).long()
    size = height * width
    train, val, test = (
        (torch.as_tensor(sorted(part), dtype=torch.long)[:, None] * size + torch.arange(size)).reshape(-1)
        for part in split
    )
    adjacency = sparse.block_diag([_grid(height, width)] * count, format="csr")
    features = (x if x.is_floating_point() else x.float()).reshape(-1, channels)
    return GraphData(
        name=name,
        source="memory",
        graph=Graph(
            features,
            SparseMatrix.from_scipy(adjacency, features.dtype, symmetric=True),
        ),
        y=y,
        train=train[y[train] >= 0],
        val=val[y[val] >= 0],
        test=test[y[test] >= 0],
        num_classes=int(y.max()) + 1,
        split=f"by image: {' / '.join(str(len(part)) for part in split)}",
    )
