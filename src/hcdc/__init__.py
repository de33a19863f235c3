"""hcdc makes a data set small enough to search on: condensed sets that rank models as the full data does."""

from hcdc import spaces
from hcdc.condensers import condense
from hcdc.core.errors import HcdcError, InputError, NumericalError
from hcdc.core.recipe import Recipe
from hcdc.core.records import version
from hcdc.datasets import CondensedDataset, data
from hcdc.evaluation import Evaluation, evaluate
from hcdc.tasks import GraphTask, ImageTask, LinearConvTask, TableTask, Task

__version__ = version()

__all__ = [
    "CondensedDataset",
    "Evaluation",
    "GraphTask",
    "HcdcError",
    "ImageTask",
    "InputError",
    "LinearConvTask",
    "NumericalError",
    "Recipe",
    "TableTask",
    "Task",
    "condense",
    "data",
    "evaluate",
    "spaces",
]
