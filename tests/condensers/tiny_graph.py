"""A small graph with three blocks, for tests of reducers."""

import numpy as np
import torch
from scipy import sparse

from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData
from hcdc.tasks import GraphTask


def tiny_data(dtype=torch.float32, dense=False, empty_class=False, features=12, seed=0):
    """90 nodes in classes of 45, 27 and 18; 10, 6 and 4 train, 20, 12 and 8 validate, the rest tests."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], [45, 27, 18])
    n = len(y)
    link = rng.random((n, n)) < np.where(y[:, None] == y[None], 0.2, 0.02)
    adj = np.triu(link, 1)
    adj = (adj | adj.T).astype(float)
    words = rng.random((n, features)) < np.where(np.arange(features)[None] % 3 == y[:, None], 0.6, 0.15)
    x = words / np.maximum(words.sum(1, keepdims=True), 1)
    split = {"train": [], "val": [], "test": []}
    for c, (train, val) in enumerate([(10, 20), (6, 12), (4, 8)]):
        nodes = rng.permutation(np.flatnonzero(y == c))
        split["train"] += list(nodes[:train])
        split["val"] += list(nodes[train : train + val])
        split["test"] += list(nodes[train + val :])
    part = {name: torch.from_numpy(rng.permutation(nodes)) for name, nodes in split.items()}
    matrix = torch.from_numpy(x).to(dtype) if dense else SparseMatrix.from_scipy(sparse.csr_matrix(x), dtype)
    graph = Graph(matrix, SparseMatrix.from_scipy(sparse.csr_matrix(adj), dtype, symmetric=True))
    classes = 4 if empty_class else 3
    return GraphData("tiny", "memory", graph, torch.from_numpy(y), **part, num_classes=classes)


def tiny_task(setting="transductive", **options):
    return GraphTask(tiny_data(**options), setting=setting)
