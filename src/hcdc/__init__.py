"""hcdc condenses a data set so that searching on the small copy ranks models as the full data does.

Names are imported on first use, so the command can answer Ctrl-C while torch loads.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hcdc import spaces
    from hcdc.condensers import condense
    from hcdc.core.errors import HcdcError, InputError, NumericalError
    from hcdc.core.recipe import Recipe
    from hcdc.datasets import CondensedDataset, FullData, data
    from hcdc.evaluation import Evaluation, evaluate, score
    from hcdc.reporting import report
    from hcdc.search import SearchPlan, plan, search, trust
    from hcdc.tasks import GraphTask, ImageTask, LinearConvTask, TableTask, Task

    __version__: str
else:
    _ROOMS = {
        "condensers": ("condense",),
        "core.errors": ("HcdcError", "InputError", "NumericalError"),
        "core.recipe": ("Recipe",),
        "datasets": ("CondensedDataset", "FullData", "data"),
        "evaluation": ("Evaluation", "evaluate", "score"),
        "reporting": ("report",),
        "search": ("SearchPlan", "plan", "trust"),
        "tasks": ("GraphTask", "ImageTask", "LinearConvTask", "TableTask", "Task"),
    }

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return importlib.import_module("hcdc.core.records").version()
        for room, names in _ROOMS.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(f"hcdc.{room}"), name)
                return value
        try:
            return importlib.import_module(f"hcdc.{name}")  # a room, as in hcdc.spaces
        except ModuleNotFoundError as error:
            if error.name != f"hcdc.{name}":
                raise
            raise AttributeError(f"module 'hcdc' has no attribute '{name}'") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "CondensedDataset",
    "Evaluation",
    "FullData",
    "GraphTask",
    "HcdcError",
    "ImageTask",
    "InputError",
    "LinearConvTask",
    "NumericalError",
    "Recipe",
    "SearchPlan",
    "TableTask",
    "Task",
    "condense",
    "data",
    "evaluate",
    "plan",
    "report",
    "score",
    "search",
    "spaces",
    "trust",
]
