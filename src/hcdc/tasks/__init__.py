"""What is learned: losses as pure functions of (params, lambda, data)."""

from hcdc.tasks._base import Task
from hcdc.tasks._graph import GraphTask
from hcdc.tasks._image import ImageTask, check_truth
from hcdc.tasks._linear_conv import LinearConvTask
from hcdc.tasks._pixels import pixels_as_graph
from hcdc.tasks._table import TableTask

__all__ = [
    "GraphTask",
    "ImageTask",
    "LinearConvTask",
    "TableTask",
    "Task",
    "check_truth",
    "pixels_as_graph",
]
