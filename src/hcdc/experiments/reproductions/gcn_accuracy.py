"""``gcn-accuracy``: test accuracy of a GCN trained on a condensed graph, as published for GCond.

Two layers, 256 hidden units, dropout .5, 600 Adam steps, lr .01 divided by ten halfway. Tests the step with
the best accuracy on the original validation nodes, and the last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hcdc.condensers import Plan, plan
from hcdc.core.settings import setting
from hcdc.experiments.published_tables import PUBLISHED, PUBLISHED_X
from hcdc.experiments.reproductions._frame import (
    Record,
    Reproduction,
    Scale,
    Table,
    Unit,
    Work,
    mean_text,
    register,
)
from hcdc.experiments.reproductions._graphs import GRAPHS, TITLES, by_graph, graph_sizes, graph_task
from hcdc.spaces import PolynomialFilter
from hcdc.training import GCNRecipe, gcn_accuracy

PAPERS = {"gcond": PUBLISHED, "gcondx": PUBLISHED_X}


@register
@dataclass(frozen=True)
class GCNAccuracy(Reproduction):
    """Test accuracy of GCNs trained on condensed graphs.

    Attributes:
        graphs: Data and training nodes, as ``cora:35``.
        methods: Ways to condense.
        networks: GCNs per condensed graph.
        preset: Named settings of the methods.
        options: Settings by method, e.g. ``{"gcond": {"epochs": 100}}``.
        gcn: Changes to the GCN's recipe.
    """

    graphs: tuple[str, ...] = GRAPHS
    methods: tuple[str, ...] = ("gcond", "gcondx")
    networks: int = setting(5, least=1)
    preset: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    gcn: dict[str, Any] = field(default_factory=dict)

    name = "gcn-accuracy"
    label = "GCond's table"
    title = "test accuracy of a GCN trained on a condensed graph"
    axes = ("graphs", "methods")
    scales: ClassVar = {
        "smoke": Scale(
            {
                "graphs": ("embedded:12",),
                "networks": 1,
                "gcn": {"steps": 5, "hidden": 8},
                "options": {m: {"epochs": 2, "outer": 2, "inner": 1} for m in ("gcond", "gcondx")},
            }
        ),
        "small": Scale({"graphs": ("cora:35", "citeseer:30")}, takes="five minutes on one core"),
        "paper": Scale(seeds=5, takes="half a day on one core"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [
            self.unit(seed, dataset=dataset, size=size, method=method)
            for method in self.methods
            for dataset, size in graph_sizes(self.graphs)
            for seed in seeds
        ]

    def planned(self, unit: Unit, work: Work) -> Plan:
        """The plan of the unit's copy."""
        return plan(
            graph_task(unit, work), PolynomialFilter(), unit["method"], train_size=unit["size"],
            seed=unit["seed"], val_method="real", preset=self.preset,
            options=self.options.get(unit["method"]),
        )  # fmt: skip

    def check(self, unit: Unit, work: Work) -> None:
        self.planned(unit, work)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        task, method, seed = graph_task(unit, work), unit["method"], unit["seed"]
        small = work.copy(self.planned(unit, work))
        recipe = GCNRecipe.from_preset(overrides=self.gcn)
        found = gcn_accuracy(small.train, task.data, self.networks, recipe=recipe)  # type: ignore[arg-type]
        percent = {key: 100 * found[key] for key in found if "accuracy" in key or key == "test_std"}
        told = {"dataset": unit["dataset"], "method": method, "train_size": unit["size"], "seed": seed}
        told |= {"networks": self.networks, "preset": self.preset, **found, **percent}
        return [told | {"condense_seconds": small.record["condense_seconds"]}]

    def paper(self, unit: Unit) -> str:
        """The published accuracy of a unit."""
        published: Mapping[Any, float] = PAPERS.get(unit["method"], {})
        value = published.get((unit["dataset"], unit["size"]))
        return "" if value is None else f"{value:.1f}"

    def table(self, found: Sequence[Record]) -> Table:
        head = ["graph", "condensed by", "test accuracy, %", "published", "at the last step"]
        rows = []
        for graph, records in by_graph(found).items():
            for method in self.methods:
                own = [r for r in records if r["method"] == method]
                figures = [
                    mean_text([r[figure] for r in own], 1)
                    for figure in ("test_accuracy", "last_step_test_accuracy")
                ]
                paper = self.paper(own[0]["unit"]) if own else ""
                rows.append([graph, TITLES.get(method, method), figures[0], paper, figures[1]])
        return Table(head, rows)
