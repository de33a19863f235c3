"""``filters-80``: rank 80 new graph filters on condensed copies of a graph (tab:graphs, Corr.).

Powers of P, k = 0..3, lambda uniform in [-1, 1]^4, 2 layers, width 64, 200 Adam steps, lr .01, wd 5e-4; truth
is the mean last-step validation accuracy of 3 seeds. Settings were tuned on seeds 0-2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hcdc.condensers import Plan, plan
from hcdc.core.ranks import calibration
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset
from hcdc.evaluation import evaluate
from hcdc.experiments._command import check_names, rounded
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
from hcdc.experiments.reproductions._graphs import (
    GRAPHS,
    METHODS,
    ORDER,
    PAPER,
    TITLES,
    by_graph,
    graph_sizes,
    graph_task,
)
from hcdc.experiments.standing import standings
from hcdc.spaces import PolynomialFilter

QUICK: dict[str, Any] = {
    "graphs": ("embedded:12",), "candidates": 6, "width": 8,
    "options": {"trajectories": 3, "points": 1, "holdout": 2, "steps": 2, "iterations": 1},
    "recipe": {"steps": 5}, "full_recipe": {"steps": 5, "seeds": 1},
}  # fmt: skip
"""Settings of ``smoke``: they run the code and show nothing."""


@register
@dataclass(frozen=True)
class Filters80(Reproduction):
    """Spearman's correlation of 80 filters on copies and on the whole graph.

    Attributes:
        graphs: Data and training nodes, as ``cora:35``.
        methods: Copies to judge.
        candidates: How many filters judge.
        width: Hidden units of the networks.
        options: Changes to HCDC's settings.
        recipe, full_recipe: Changes to the training on copies and on the whole graph.
    """

    graphs: tuple[str, ...] = GRAPHS
    methods: tuple[str, ...] = ORDER
    candidates: int = setting(80, least=3)
    width: int = setting(64, least=1)
    options: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    full_recipe: dict[str, Any] = field(default_factory=dict)

    name = "filters-80"
    label = "tab:graphs, Corr."
    title = "80 graph filters ranked on copies, beside every rival"
    axes = ("graphs", "methods")
    scales: ClassVar = {
        "smoke": Scale({**QUICK, "methods": ("random", "hcdc")}),
        "small": Scale(
            {"graphs": ("cora:35", "citeseer:30"), "methods": ("random", "reach", "hcdc")},
            takes="about an hour on one core",
        ),
        "paper": Scale({"methods": (*ORDER, "reach", "kcenter", "herding")}, 5, "hours on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set methods", self.methods, METHODS)
        return [
            self.unit(seed, dataset=dataset, size=size, method=method)
            for seed in seeds
            for dataset, size in graph_sizes(self.graphs)
            for method in self.methods
        ]

    def space(self) -> PolynomialFilter:
        """The filters that are ranked."""
        return PolynomialFilter(width=self.width)

    def planned(self, unit: Unit, work: Work) -> Plan:
        """The plan of the unit's copy."""
        method = unit["method"]
        return plan(
            graph_task(unit, work), self.space(), train_size=unit["size"], seed=unit["seed"],
            options=self.options if method.startswith("hcdc") else None, recipe=self.recipe,
            full_recipe=self.full_recipe, **METHODS[method],
        )  # fmt: skip

    def check(self, unit: Unit, work: Work) -> None:
        self.planned(unit, work)

    def judged(self, unit: Unit, small: CondensedDataset, work: Work, rivals: bool) -> Record:
        """How a copy ranks new filters."""
        found = evaluate(
            small, candidates=self.candidates, seed=unit["seed"], task=graph_task(unit, work),
            device=work.device, rivals=rivals, progress=work.progress,
        ).to_json()  # fmt: skip
        return {"label": unit["method"], **short(found), "making": small.record}

    def run(self, unit: Unit, work: Work) -> list[Record]:
        return [self.judged(unit, work.copy(self.planned(unit, work)), work, rivals=unit["method"] == "hcdc")]

    def table(self, found: Sequence[Record]) -> Table:
        head = [
            "graph", "ranked by", "Corr.", "paper", "pairs in order", "Perf. of the pick, %", "HCDC is",
        ]  # fmt: skip
        rows = []
        for graph, records in by_graph(found).items():
            figures, picks = scores_of(records, "spearman"), scores_of(records, "selected_test_accuracy")
            pairs = scores_of(records, in_order)
            for name, values in figures.items():
                paper, _ = PAPER.get((graph, name), ("", ""))
                pick = run_text([100 * value for value in picks[name]], 1)
                place = standings(figures, picks, "hcdc", TITLES) if name == "hcdc" else ""
                ranked = run_text(values), paper, run_text(pairs[name])
                rows.append([graph, TITLES.get(name, name), *ranked, pick, place])
        return Table(head, rows)


def run_text(values: Sequence[float], digits: int = 2) -> str:
    """`mean_text` of a ranking that was run, so a figure that is missing is undefined."""
    return mean_text(values or [math.nan], digits)


def scores_of(
    found: Sequence[Record], figure: str | Callable[[Record, Record], float | None]
) -> dict[str, list[float]]:
    """A figure of each method and rival, one per seed; undefined ones are left out."""
    scores: dict[str, list[float]] = {}
    for record in found:
        every = {record["label"]: record} | {rival["name"]: rival for rival in record["rivals"]}
        for name, one in every.items():
            value = one[figure] if isinstance(figure, str) else figure(record, one)
            scores.setdefault(name, []).extend([] if value is None else [value])
    return scores


def in_order(record: Record, ranked: Record) -> float | None:
    """Share of pairs that a record, or one of its rivals, orders as the truth does, eq. (HC).

    Older records do not hold it, but the scores; a diverged candidate leaves it undefined.
    """
    if (known := ranked.get("calibration")) is not None:
        return float(known)
    truth, proxy = record.get("truth"), ranked.get("proxy")
    if truth is None or proxy is None or None in truth or None in proxy:
        return None
    share = calibration(truth, proxy)
    return None if math.isnan(share) else share


def short(found: Record) -> Record:
    """A record, rounded, without what follows from the seed."""
    return {key: rounded(value) for key, value in found.items() if key not in ("configs", "note")}
