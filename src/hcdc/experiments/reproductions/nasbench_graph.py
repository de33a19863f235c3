"""``nasbench-graph``: rank architectures of NAS-Bench-Graph on condensed copies, with its table as the truth.

Nothing is trained on a whole graph. The table has one run per architecture, so its validation and test
results agree only in part, which bounds every ranking. Networks on the copy share wiring and operations with
the benchmark's, not their width and training.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hcdc.core.settings import setting
from hcdc.experiments.reproductions._frame import Scale, Unit, register
from hcdc.experiments.reproductions.gnn_zoo import Zoo
from hcdc.spaces import NASBenchGraph, Space
from hcdc.truth import NASBenchGraphTable, NASBenchGraphTruth, Truth

TABLE = "nasbench_graph.npz"
EMBEDDED = {"embedded": "citeseer"}
"""The table's name of the graph that comes with the package."""
_read = functools.cache(NASBenchGraphTable)


@register
@dataclass(frozen=True)
class NASBenchGraphs(Zoo):
    """Spearman's correlation of architectures on copies and in the table.

    Attributes:
        table_file: The table; by default the file `TABLE` in ``$HCDC_DATA``.
    """

    graphs: tuple[str, ...] = ("cora:35", "citeseer:30", "pubmed:30")
    methods: tuple[str, ...] = ("hcdc-weighted",)
    candidates: int = setting(50, least=3)
    weighted: dict[str, Any] = field(default_factory=lambda: {"probes": 20, "companions": 30, "ridge": 1.0})
    weighted_train: str = "neighbours"
    table_file: str = ""

    name = "nasbench-graph"
    protocol = "gnn-zoo"
    label = "tab:gnns"
    title = "50 architectures of NAS-Bench-Graph ranked on copies"
    axes = ("graphs", "methods")
    scales: ClassVar = {
        "smoke": Scale({"graphs": ("embedded:12",), "candidates": 4, "trial": {"steps": 2, "seeds": 1}}),
        "small": Scale(takes="half an hour on one core"),
        "paper": Scale({}, 5, "an hour on one core"),
    }

    def space(self) -> Space:
        return NASBenchGraph()

    def truth(self, unit: Unit) -> Truth:
        path = self.table_file or Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc") / TABLE
        graph = str(unit["dataset"])
        return NASBenchGraphTruth(_read(str(path)), EMBEDDED.get(graph, graph))
