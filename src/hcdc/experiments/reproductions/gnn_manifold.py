"""``gnn-manifold``: filters by accuracy on a condensed and on the original graph (fig:gnn-model-space).

C = I + l1 L + l2 (2/lmax L - I), with lambda uniform in [-1, 1]^2, on graphs condensed by GCond at c/n = 0.2
and 0.8 of the training nodes. The biased point l = (-1, 1), where C = (2/lmax - 1) L, is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.seeds import numpy_stream
from hcdc.core.settings import setting
from hcdc.evaluation import evaluate
from hcdc.experiments.reproductions._frame import Record, Scale, Table, Unit, Work, mean_text, register
from hcdc.experiments.reproductions._graphs import TITLES, by_graph, graph_task
from hcdc.experiments.reproductions.filters_80 import QUICK, Filters80, short
from hcdc.reporting import new_figure, plain
from hcdc.spaces import PolynomialFilter

BIASED: Config = {"lambda_0": -1.0, "lambda_1": 1.0}
"""The filter proportional to L; 0 where lmax = 2, as on Cora."""
ROWS = 3
"""Most seeds that the figure shows."""


@register
@dataclass(frozen=True)
class GNNManifold(Filters80):
    """Validation accuracy of filters on both graphs; the first candidate is the biased point."""

    graphs: tuple[str, ...] = ("cora:28", "cora:112")
    methods: tuple[str, ...] = ("gcond",)
    candidates: int = setting(200, least=3)

    name = "gnn-manifold"
    label = "fig:gnn-model-space"
    title = "filters by accuracy on a condensed and on the original graph"
    scales: ClassVar = {
        "smoke": Scale({**QUICK, "methods": ("random",)}),
        "small": Scale({"candidates": 60}, takes="ten minutes on one core"),
        "paper": Scale(takes="an hour on a GPU"),
    }

    def space(self) -> PolynomialFilter:
        return PolynomialFilter(basis="figure", width=self.width)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        small = work.copy(self.planned(unit, work))
        drawn = self.space().sample(self.candidates - 1, numpy_stream(unit["seed"], self.name))
        found = evaluate(
            small, candidates=[BIASED, *drawn], seed=unit["seed"], task=graph_task(unit, work),
            device=work.device, rivals=False, progress=work.progress,
        ).to_json()  # fmt: skip
        return [{"label": unit["method"], **short(found), "configs": found["configs"]}]

    def table(self, found: Sequence[Record]) -> Table:
        head = ["graph", "condensed by", "Corr.", "biased point: condensed, %", "original, %", "paper"]
        rows = []
        for graph, records in by_graph(found).items():
            for method in dict.fromkeys(r["label"] for r in records):
                own = [r for r in records if r["label"] == method]
                corr = [r["spearman"] for r in own if r["spearman"] is not None]
                points = [accuracies(r) for r in own]
                biased = [mean_text([float(p[axis][0]) for p in points], 1) for axis in (0, 1)]
                rows.append([graph, TITLES.get(method, method), mean_text(corr), *biased, "a figure"])
        return Table(head, rows)

    def draw(self, found: Sequence[Record]) -> Any:
        """A row per seed, a column per graph and method, of the first `ROWS` seeds."""
        seeds = sorted({r["unit"]["seed"] for r in found})[:ROWS]
        columns = list(dict.fromkeys(_column(r) for r in found))
        figure = new_figure(0.8 + 3.6 * len(columns), 4.0 * len(seeds))
        for record in found:
            if (seed := record["unit"]["seed"]) not in seeds:
                continue
            at = seeds.index(seed) * len(columns) + columns.index(_column(record))
            axes = figure.add_subplot(len(seeds), len(columns), at + 1)
            across, up = accuracies(record)
            axes.scatter(across[1:], up[1:], s=16, color="#0072B2", alpha=0.65, linewidths=0)
            biased = "biased point, C = (2/λmax - 1) L"
            axes.scatter(across[:1], up[:1], s=50, color="#D00000", label=biased)
            dataset, size, method = _column(record)
            words = f"{dataset}, {size} nodes by {TITLES.get(method, method)}, seed {seed}"
            axes.set_title(words, fontsize=10)
            axes.set_xlabel("accuracy on the condensed graph, %")
            axes.set_ylabel("accuracy on the original graph, %")
            axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
            plain(axes)
        return figure


def _column(record: Record) -> tuple[Any, ...]:
    unit = record["unit"]
    return unit["dataset"], unit["size"], record["label"]


def accuracies(record: Record) -> tuple[Any, Any]:
    """Validation accuracy in percent on the condensed and on the original graph, ``[candidates]`` each."""
    condensed = np.asarray(record["repeats"]["score"], float).mean(1)
    return 100 * condensed, 100 * np.asarray(record["truth"], float)
