"""``trajectories``: paths of hyperparameter optimisation on a copy (fig:trajectory-matching).

Hypergradient descent on lambda starts at random filters C = I + l1 L + l2 (2/lmax L - I) of a copy. The paper
assumes that all paths reach one optimum; the table says how far apart they begin and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hcdc.core.settings import setting
from hcdc.experiments.reproductions._frame import Record, Scale, Table, Unit, Work, mean_text, register
from hcdc.experiments.reproductions._graphs import TITLES, by_graph, graph_task
from hcdc.experiments.reproductions.filters_80 import QUICK, Filters80
from hcdc.experiments.reproductions.graphs_rank import descended
from hcdc.reporting import new_figure, plain
from hcdc.spaces import PolynomialFilter

PANELS = 3
"""Seeds in the figure; more do not fit a page."""


@register
@dataclass(frozen=True)
class Paths(Filters80):
    """Paths in the plane of two hyperparameters.

    Attributes:
        starts: Number of paths.
        asks: Points of a path, the start included.
        descent: Training steps at each point; 0 takes the task's recipe.
    """

    graphs: tuple[str, ...] = ("cora:35",)
    methods: tuple[str, ...] = ("random", "hcdc")
    starts: int = setting(12, least=2)
    asks: int = setting(40, least=2)
    descent: int = setting(0, least=0, note="0 takes the task's recipe")

    name = "trajectories"
    label = "fig:trajectory-matching"
    title = "paths of hypergradient descent on a copy"
    scales: ClassVar = {
        "smoke": Scale({**QUICK, "methods": ("random",), "starts": 3, "asks": 3, "descent": 2}),
        "small": Scale({"methods": ("random",)}, takes="half an hour on one core"),
        "paper": Scale(takes="an hour on one core"),
    }

    def space(self) -> PolynomialFilter:
        return PolynomialFilter(basis="figure", width=self.width)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        small, space = work.copy(self.planned(unit, work)), self.space()
        visited = descended(
            graph_task(unit, work), space, small, unit["seed"], work, self.asks, self.descent, self.starts
        )
        points = np.stack([space.encode(config).numpy() for config in visited])
        return [{"label": unit["method"], "paths": points.reshape(self.starts, self.asks, -1)}]

    def table(self, found: Sequence[Record]) -> Table:
        head = ["graph", "copy", "mean distance of starts", "of ends", "paper"]
        rows = []
        for graph, records in by_graph(found).items():
            for method in dict.fromkeys(r["label"] for r in records):
                own = [np.asarray(r["paths"]) for r in records if r["label"] == method]
                apart = [mean_text([apart_by(paths[:, at]) for paths in own]) for at in (0, -1)]
                rows.append([graph, TITLES.get(method, method), *apart, "one optimum"])
        return Table(head, rows, ["distances are between pairs of paths, in the square [-1, 1]^2"])

    def draw(self, found: Sequence[Record]) -> Any:
        """A row per graph and copy, a column per seed, of the first `PANELS` seeds."""
        seeds = sorted({r["unit"]["seed"] for r in found})[:PANELS]
        shown = [r for r in found if r["unit"]["seed"] in seeds]
        lines = list(dict.fromkeys(_line(r) for r in shown))
        figure = new_figure(0.8 + 3.6 * len(seeds), 0.2 + 3.6 * len(lines))
        for record in shown:
            unit = record["unit"]
            at = lines.index(_line(record)) * len(seeds) + seeds.index(unit["seed"])
            axes = figure.add_subplot(len(lines), len(seeds), at + 1)
            paths = np.asarray(record["paths"])
            for path in paths:
                axes.plot(path[:, 0], path[:, 1], color="#D55E00", linewidth=1, linestyle="--")
            axes.scatter(*paths[:, 0, :2].T, s=18, facecolors="none", edgecolors="#1a1a1a", label="start")
            axes.scatter(*paths[:, -1, :2].T, s=22, color="#1a1a1a", label="end")
            axes.legend(frameon=False, fontsize=8)
            copy = TITLES[record["label"]]
            title = f"{unit['dataset']}, {unit['size']} nodes, {copy} copy, seed {unit['seed']}"
            axes.set_title(title, fontsize=10)
            axes.set_xlim(-1.1, 1.1)
            axes.set_ylim(-1.1, 1.1)
            axes.set_xlabel("lambda 1, weight of L")
            axes.set_ylabel("lambda 2, weight of 2 L / λmax - I")
            plain(axes)
        return figure


def _line(record: Record) -> tuple[Any, ...]:
    unit = record["unit"]
    return unit["dataset"], unit["size"], record["label"]


def apart_by(points: Any) -> float:
    """Mean distance between pairs of points ``[p, H]``."""
    between = np.linalg.norm(points[:, None] - points[None], axis=-1)
    return float(between.sum() / (len(points) * (len(points) - 1)))
