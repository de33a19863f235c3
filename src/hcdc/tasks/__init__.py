"""What is learned: losses as pure functions of (params, lambda, data)."""

from hcdc.tasks._augment import draw_flip_crop, flip_crop, flip_crop_settings
from hcdc.tasks._base import Task
from hcdc.tasks._fitted import FittedTask
from hcdc.tasks._graph import GraphTask
from hcdc.tasks._image import VALIDATED, ImageTask
from hcdc.tasks._linear_conv import LinearConvTask
from hcdc.tasks._pixels import pixels_as_graph
from hcdc.tasks._registry import register_task, task_class, task_for, task_from_spec
from hcdc.tasks._table import TableTask

__all__ = [
    "VALIDATED",
    "FittedTask",
    "GraphTask",
    "ImageTask",
    "LinearConvTask",
    "TableTask",
    "Task",
    "draw_flip_crop",
    "flip_crop",
    "flip_crop_settings",
    "pixels_as_graph",
    "register_task",
    "task_class",
    "task_for",
    "task_from_spec",
]
