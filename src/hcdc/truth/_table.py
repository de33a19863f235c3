"""Full-data results from a benchmark table, instead of full trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.tasks import Task
from hcdc.truth._base import Truth
from hcdc.truth._nasbench201 import SECONDS, NASBench201Table, NATSBench

PREFIXES = {"cifar10": "c10", "cifar100": "c100"}
"""The benchmark's column prefix for each data set."""
BENCHMARKS = {"cifar10": 10, "cifar100": 100}
"""Data sets with results in the tables, and their number of classes."""


class TableTruth(Truth):
    """Full-data results of cells, looked up in a table instead of trained.

    Args:
        table: A `NASBench201Table` or `NATSBench`.
        dataset: ``"cifar10"`` or ``"cifar100"``.
        name: How condensed files refer to it.
    """

    fidelities: ClassVar[Mapping[int, float]] = {12: 12 / 200}

    def __init__(self, table: NASBench201Table | NATSBench, dataset: str, name: str = "nasbench201"):
        if dataset not in PREFIXES:
            raise unknown_name("data set of the NAS-Bench-201 table", dataset, PREFIXES)
        self.table, self.dataset, self.name = table, dataset, name

    def score(self, config: Config, part: str = "val", fidelity: int | None = None) -> float:
        """Accuracy (0 .. 1) on ``part`` (``"val"`` or ``"test"``) after 200 or 12 epochs."""
        column = f"{PREFIXES[self.dataset]}_{'valid' if part == 'val' else part}_{fidelity or 200}"
        return self.table.lookup(self._cell(config), column) / 100

    def seconds(self, config: Config) -> float:
        """Seconds of training for 200 epochs by the benchmark's own clock (on half of CIFAR-10)."""
        return self.table.lookup(self._cell(config), SECONDS)

    def known(self, config: Config) -> bool:
        return "cell" in config and self.table.has(str(config["cell"]))

    @staticmethod
    def _cell(config: Config) -> str:
        if "cell" not in config:
            raise InputError(
                f"configuration {config} is not a NAS-Bench-201 cell, so the table has no results for it"
            )
        return str(config["cell"])

    def check(self, task: Task) -> None:
        """Refuse data other than the table's and networks other than cells."""
        shape = task.image_shape
        if shape is None:
            raise InputError(
                f"truth: the table has results on images, but the task is a {task.kind}; leave it out"
            )
        if task.spec().get("model", "space") != "space":
            raise InputError(
                "truth: a NAS-Bench-201 table has results of its cells, but the task has another model; "
                "leave it out"
            )
        classes = BENCHMARKS[self.dataset]
        if (shape, task.num_classes) != ((3, 32, 32), classes):
            raise InputError(
                f"truth: {self.dataset} has {classes} classes of 3 x 32 x 32 pixels, but '{task.name}' has "
                f"{task.num_classes} of {' x '.join(map(str, shape))}, so the table does not describe it; "
                "leave it out"
            )

    def words(self) -> str:
        return f"NAS-Bench-201 table ({self.dataset}, 200 epochs)"

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "dataset": self.dataset, "epochs": 200}
