"""Results for the graph networks of NAS-Bench-Graph."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.spaces import NASBenchGraph
from hcdc.tasks import Task
from hcdc.truth._base import Truth

GRAPHS = {
    "cora": (1433, 7), "citeseer": (3703, 6), "pubmed": (500, 3), "cs": (6805, 15), "physics": (8415, 5),
    "photo": (745, 8), "computers": (767, 10), "arxiv": (128, 40),
}  # fmt: skip
"""The graphs of the table with their numbers of features and classes."""

GRAPH_COLUMNS = ("valid_perf", "perf", "latency", "para")
"""Accuracy on validation and test nodes (0 to 1), seconds of a forward pass, parameters in millions."""


class NASBenchGraphTable:
    """Results for the benchmark's architectures from one ``.npz`` file.

    It holds ``arch`` ``[n]``, five decimal digits each (wiring and four operations), and a float array
    ``[n]`` named ``{graph}_{column}`` for each of `GRAPHS` and `GRAPH_COLUMNS`.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        if not path.is_file():
            raise InputError(
                f"there is no NAS-Bench-Graph table at '{path}'; it is a .npz file with the arrays arch, "
                "cora_valid_perf, cora_perf, ...; give its path, or set HCDC_DATA to its folder"
            )
        needed = [f"{graph}_{column}" for graph in GRAPHS for column in GRAPH_COLUMNS]
        try:
            with np.load(path) as file:
                arrays = {name: file[name] for name in ("arch", *needed)}
        except KeyError as error:
            raise InputError(f"the NAS-Bench-Graph table '{path}' has no array {error.args[0]}") from error
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(
                f"the NAS-Bench-Graph table '{path}' cannot be read as a .npz file: {error}"
            ) from error
        self._row = {int(code): row for row, code in enumerate(arrays.pop("arch"))}
        self._columns = arrays

    def __len__(self) -> int:
        return len(self._row)

    def has(self, config: Config) -> bool:
        """Whether the table has this architecture, under its own or an equivalent code."""
        return self._code(config) in self._row

    def lookup(self, config: Config, graph: str, column: str) -> float:
        """An architecture's entry for one of `GRAPHS` and one of `GRAPH_COLUMNS`."""
        if graph not in GRAPHS:
            raise unknown_name("graph", graph, GRAPHS)
        if column not in GRAPH_COLUMNS:
            raise unknown_name("column", column, GRAPH_COLUMNS)
        if not self.has(config):
            raise InputError(f"architecture {config} is not in this NAS-Bench-Graph table of {len(self)}")
        return float(self._columns[f"{graph}_{column}"][self._row[self._code(config)]])

    @staticmethod
    def _code(config: Config) -> int:
        space = NASBenchGraph()
        return int("".join(map(str, space.to_numbers(space.counterpart(config)))))


class NASBenchGraphTruth(Truth):
    """Full-data results of architectures, looked up in the table instead of trained.

    Args:
        table: The table.
        graph: One of `GRAPHS`.
    """

    def __init__(self, table: NASBenchGraphTable, graph: str):
        if graph not in GRAPHS:
            raise unknown_name("graph of the NAS-Bench-Graph table", graph, GRAPHS)
        self.table, self.graph = table, graph

    def score(self, config: Config, part: str = "val", fidelity: int | None = None) -> float:
        """Accuracy (0 .. 1) on ``part`` (``"val"`` or ``"test"``)."""
        if fidelity is not None:
            raise InputError(f"the NAS-Bench-Graph table has whole trainings only, none of length {fidelity}")
        if part not in self.parts:
            raise unknown_name("part", part, self.parts)
        return self.table.lookup(config, self.graph, "valid_perf" if part == "val" else "perf")

    def seconds(self, config: Config) -> float:
        """NaN: the table has no training times."""
        return math.nan

    def known(self, config: Config) -> bool:
        return self.table.has(config)

    def check(self, task: Task) -> None:
        """Refuse data other than the table's."""
        if (task.features, task.num_classes) != GRAPHS[self.graph]:
            features, classes = GRAPHS[self.graph]
            raise InputError(
                f"truth: {self.graph} has {features} features and {classes} classes, but '{task.name}' has "
                f"{task.features} and {task.num_classes}, so the table does not describe it; leave it out"
            )

    def words(self) -> str:
        return f"NAS-Bench-Graph table ({self.graph})"

    def spec(self) -> dict[str, Any]:
        return {"name": "nasbench-graph", "graph": self.graph}
