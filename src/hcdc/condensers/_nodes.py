"""The labelled nodes a graph reducer starts from, and the small set it returns when it chooses among them."""

from __future__ import annotations

import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, Nodes
from hcdc.tasks import GraphTask, Task


def graph_task(task: Task, method: str) -> GraphTask:
    """The task, if it is one on graphs; a sentence otherwise."""
    if not isinstance(task, GraphTask):
        raise InputError(
            f"method '{method}' condenses graphs, and this task is '{task.kind}'; use method 'random'"
        )
    return task


def members(y: Tensor, num_classes: int) -> list[Tensor]:
    """For each class the positions in ``y`` that carry it, on the CPU."""
    labels = y.cpu()
    return [torch.nonzero(labels == c).flatten() for c in range(num_classes)]


def random_members(y: Tensor, wanted: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
    """Positions in ``y``, without repeats, whose labels are ``wanted`` (sorted by class)."""
    counts = wanted.bincount(minlength=num_classes).tolist()
    drawn = [
        of_class[torch.randperm(len(of_class), generator=generator)[:count]]
        for of_class, count in zip(members(y, num_classes), counts)
    ]
    return torch.cat(drawn)


def rows(graph: Graph, index: Tensor) -> Tensor:
    """The features of the nodes ``index`` as a dense tensor ``[m, d]``."""
    if isinstance(graph.x, SparseMatrix):
        return graph.x.rows(index).to_dense()
    return graph.x[index]


def chosen(nodes: Nodes, picked: Tensor) -> Nodes:
    """The labelled nodes at positions ``picked`` with their induced subgraph, dense."""
    picked = picked.to(nodes.y.device)
    return Nodes(nodes.graph.subgraph(nodes.positions()[picked]), nodes.y[picked])
