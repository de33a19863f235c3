"""A tiny graph task and hand-made copies of it that are judged in a moment."""

import dataclasses

import numpy as np
import torch
from scipy import sparse

from hcdc.core.recipe import Recipe
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import CondensedDataset, Graph, GraphData
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask

SPACE = PolynomialFilter(order=2, width=4)
FULL = Recipe(steps=6, lr=0.05, seeds=2)


def graph_data(permute_test=False):
    """72 nodes in three blocks: 18 train, 24 validate, 30 test; ``permute_test`` shuffles the test labels."""
    rng = np.random.default_rng(0)
    n, y = 72, np.arange(72) % 3
    link = np.triu(rng.random((n, n)) < np.where(y[:, None] == y[None], 0.2, 0.03), 1)
    adj = SparseMatrix.from_scipy(
        sparse.csr_matrix((link | link.T).astype(float)), torch.float32, symmetric=True
    )
    x = rng.normal(size=(n, 5)) + np.eye(3)[y] @ rng.normal(size=(3, 5))
    train, val, test = torch.arange(18), torch.arange(18, 42), torch.arange(42, 72)
    labels = torch.from_numpy(y)
    if permute_test:
        labels = labels.clone()
        labels[test] = labels[test[torch.from_numpy(rng.permutation(30))]]
    graph = Graph(torch.from_numpy(x).float(), adj)
    return GraphData("blocks", "memory", graph, labels, train, val, test, 3)


def copy_of(task=None, space=SPACE, metric="accuracy", record=None, val=True, full=FULL, **meta):
    """Random nodes of a task, described as `hcdc.condense` would."""
    task = task or GraphTask(graph_data())
    described = {
        "data": task.data.describe(),
        "task": task.spec(),
        "space": space.spec(),
        "method": "random",
        "train_method": "random",
        "val_method": "random" if val else "real",
        "preset": None,
        "full_recipe": full.as_dict(),
        "calibrated_recipe": dataclasses.replace(full, metric=metric).as_dict(),
        "metric": metric,
        "seed": 0,
        **meta,
    }
    s_val = task.sample("val", 9, 0) if val else None
    return CondensedDataset(task.sample("train", 6, 0), s_val, described, record or {})
