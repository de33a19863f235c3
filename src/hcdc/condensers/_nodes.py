"""The labelled nodes a graph reducer starts from, and the small set it returns when it chooses among them."""

from __future__ import annotations

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


def rows(graph: Graph, index: Tensor) -> Tensor:
    """The features of the nodes ``index`` as a dense tensor ``[m, d]``."""
    if isinstance(graph.x, SparseMatrix):
        return graph.x.rows(index).to_dense()
    return graph.x[index]


def chosen(nodes: Nodes, picked: Tensor) -> Nodes:
    """The labelled nodes at positions ``picked`` with their induced subgraph, dense."""
    picked = picked.to(nodes.y.device)
    return Nodes(nodes.graph.subgraph(nodes.positions()[picked]), nodes.y[picked])
