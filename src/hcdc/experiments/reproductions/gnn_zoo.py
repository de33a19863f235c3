"""``gnn-zoo``: rank the held-out half of the paper's 40 graph networks on condensed copies.

The space is finite: by seed, one half is used for condensing and the other half judges. HCDC relaxes the
choice of the filter at a fixed width and depth. The truth uses the seeds and steps of the full recipe.

``hcdc-weighted`` needs no relaxation: S_val is the real validation set with a weight for each node, fitted to
the full results of the condensing half; weighted accuracy ranks. Its settings were chosen with seeds 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hcdc.condensers import Plan, plan
from hcdc.core.settings import setting
from hcdc.evaluation import evaluate
from hcdc.experiments._command import check_names
from hcdc.experiments.reproductions._frame import (
    Record,
    Reproduction,
    Scale,
    Table,
    Unit,
    Work,
    register,
)
from hcdc.experiments.reproductions._graphs import METHODS, TITLES, by_graph, graph_sizes, graph_task
from hcdc.experiments.reproductions.filters_80 import QUICK, run_text, scores_of, short
from hcdc.experiments.standing import standing
from hcdc.spaces import GNNZoo, Space
from hcdc.truth import Truth

OPTIONS = {"trajectories": 20, "points": 1, "holdout": 6, "steps": 100, "batch": 10, "check": 10}
"""Shorter than the default, because the relaxed network holds all ten filters at once."""

WEIGHTED = {"probes": 20, "ridge": 1.0}
"""All of the condensing half are probes: 10 probes and 10 companions ranked worse in development."""

TRIAL = {"steps": 60, "seeds": 1}
"""Training on the copy with weighted nodes: short, to be cheap."""

RIVALS = (
    "real-val", "real-val-loss", "early-stopping", "parameter-count", "ridge-probes", "ridge-and-real-val",
    "ridge-and-real-accuracy",
)  # fmt: skip
"""Beside weighted nodes."""


@register
@dataclass(frozen=True)
class Zoo(Reproduction):
    """Spearman's correlation of graph networks on copies and on the whole graph.

    Attributes:
        graphs: Data and training nodes, as ``cora:35``.
        methods: Copies to judge.
        candidates: How many networks judge, at most the half that condensing never uses.
        relax_width: Width of the relaxed network.
        options: HCDC's settings.
        weighted, trial, weighted_train: For ``hcdc-weighted``: settings, training on the copy, and the method
            that makes S_train.
        recipe, full_recipe: Changes to the training on copies and on the whole graph.
    """

    graphs: tuple[str, ...] = ("cora:35",)
    methods: tuple[str, ...] = ("random", "reach", "hcdc")
    candidates: int = setting(40, least=3)
    relax_width: int = setting(128, least=1)
    options: dict[str, Any] = field(default_factory=lambda: dict(OPTIONS))
    weighted: dict[str, Any] = field(default_factory=lambda: dict(WEIGHTED))
    trial: dict[str, Any] = field(default_factory=lambda: dict(TRIAL))
    weighted_train: str = "reach"
    recipe: dict[str, Any] = field(default_factory=dict)
    full_recipe: dict[str, Any] = field(default_factory=dict)

    name = "gnn-zoo"
    label = "tab:gnns"
    title = "20 of the 40 graph networks ranked on copies"
    axes = ("graphs", "methods")
    scales: ClassVar = {
        "smoke": Scale(
            {
                "graphs": ("embedded:12",),
                "methods": ("random",),
                "candidates": 4,
                "recipe": {"steps": 2, "seeds": 1},
                "full_recipe": QUICK["full_recipe"],
            }
        ),
        "small": Scale(takes="hours on one core"),
        "paper": Scale({"graphs": ("cora:35", "citeseer:30")}, 5, "hours on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set methods", self.methods, METHODS)
        return [
            self.unit(seed, dataset=dataset, size=size, method=method)
            for seed in seeds
            for dataset, size in graph_sizes(self.graphs)
            for method in self.methods
        ]

    @classmethod
    def owns(cls, record: Record) -> bool:
        return super().owns(record) and record["space"]["name"] == cls.name

    def planned(self, unit: Unit, work: Work) -> Plan:
        """The plan of the unit's copy."""
        task, seed, name = graph_task(unit, work), unit["seed"], unit["method"]
        own: dict[str, Any] = {"recipe": self.recipe, "options": self.options}
        if name == "hcdc-weighted":
            own = {
                "recipe": {**self.trial, **self.recipe},
                "options": self.weighted,
                "train_method": self.weighted_train,
                "val_size": len(task.val),
            }
        elif not name.startswith("hcdc"):
            own["options"] = None
        return plan(
            task, self.space(), train_size=unit["size"], seed=seed, truth=self.truth(unit),
            full_recipe=self.full_recipe, **own, **METHODS[name],
        )  # fmt: skip

    def space(self) -> Space:
        """What is searched."""
        return GNNZoo(relax_width=self.relax_width)

    def truth(self, unit: Unit) -> Truth | None:
        """Full-data results that are known; None trains them."""
        return None

    def check(self, unit: Unit, work: Work) -> None:
        self.planned(unit, work)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        small, name = work.copy(self.planned(unit, work)), unit["method"]
        found = evaluate(
            small, candidates=self.candidates, seed=unit["seed"], task=graph_task(unit, work),
            device=work.device, rivals=RIVALS if name == "hcdc-weighted" else name == "hcdc",
            progress=work.progress, truth=self.truth(unit),
        ).to_json()  # fmt: skip
        return [{"label": name, **short(found), "making": small.record, "configs": found["configs"]}]

    def table(self, found: Sequence[Record]) -> Table:
        head = ["graph", "ranked by", "Corr.", "paper", "Perf. of the pick, %", "HCDC is"]
        rows = []
        for graph, records in by_graph(found).items():
            figures, picks = scores_of(records, "spearman"), scores_of(records, "selected_test_accuracy")
            for name, values in figures.items():
                pick = run_text([100 * value for value in picks[name]], 1)
                place = standing(figures, "hcdc", TITLES) if name == "hcdc" else ""
                rows.append([graph, TITLES.get(name, name), run_text(values), "none", pick, place])
        return Table(head, rows, ["the paper describes these networks, but prints no correlation for them"])
