"""``gnn-transfer``: graphs condensed with one network and judged with others (tab:adjacency-overfit, b).

A graph is condensed by matching the gradients of GCN, of SGC (K = 2) or of GIN. Each network is then trained
on it and tested on the original nodes, and so is each on the original graph. The paper has three networks;
ChebNet, GAT, GCN on two graph diffusions (GDC) and the graph transformer are judged too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from hcdc.core.progress import timed
from hcdc.core.recipe import Recipe
from hcdc.core.settings import setting
from hcdc.datasets import Nodes
from hcdc.experiments._command import check_names
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
from hcdc.experiments.reproductions._graphs import by_graph, graph_sizes, graph_task
from hcdc.experiments.reproductions._matching import NetworkMatching
from hcdc.experiments.standing import standing
from hcdc.networks import ZooNetwork
from hcdc.tasks import GraphTask
from hcdc.training import init_many, score_many, train_many

TITLES = {
    "gcn": "GCN", "sgc-2": "SGC (K = 2)", "gin-0": "GIN", "cheb-2": "ChebNet", "gat": "GAT",
    "gdc-ppr": "GDC, PageRank", "gdc-heat": "GDC, heat", "transformer": "Transformer", "whole": "whole graph",
    "gin-fresh": "GIN, always untrained",
}  # fmt: skip
CONDENSED = ("gcn", "sgc-2", "gin-0")
FRESH = {"gin-fresh": "gin-0"}
"""Ways to condense that draw a new network for each step, which is never trained; and the network."""
PAPER = {
    "gcn": ("60.3 ± 0.3", "59.2 ± 0.7", "42.2 ± 4.3"),
    "sgc-2": ("59.2 ± 1.1", "60.5 ± 0.6", "39.0 ± 7.1"),
    "gin-0": ("47.5 ± 3.6", "43.6 ± 5.8", "59.1 ± 1.1"),
    "gin-fresh": ("47.5 ± 3.6", "43.6 ± 5.8", "59.1 ± 1.1"),
}
"""Columns are the networks of `CONDENSED`; ogbn-arxiv at c/n = 0.25 %."""


@register
@dataclass(frozen=True)
class GNNTransfer(Reproduction):
    """Test accuracy of every network on a graph condensed with one of them.

    Attributes:
        graphs: Data and training nodes, as ``cora:35``.
        methods: Networks to condense with; ``whole`` trains on the original graph, ``gin-fresh`` matches at
            networks that are never trained, as many steps in all.
        networks: Networks to judge with.
        width: Hidden units; SGC has none.
        matching: Changes to the settings of gradient matching.
        recipe: Changes to the training of the judged networks.
    """

    graphs: tuple[str, ...] = ("ogbn-arxiv:423", "cora:35", "citeseer:30")
    methods: tuple[str, ...] = (*CONDENSED, *FRESH, "whole")
    networks: tuple[str, ...] = tuple(name for name in TITLES if name != "whole" and name not in FRESH)
    width: int = setting(128, least=1)
    matching: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)

    name = "gnn-transfer"
    label = "tab:adjacency-overfit (b)"
    title = "graphs condensed with one network and judged with others"
    axes = ("graphs", "methods")
    scales: ClassVar = {
        "smoke": Scale(
            {
                "graphs": ("embedded:12",),
                "width": 4,
                "matching": {"epochs": 2, "outer": 2, "inner": 1},
                "recipe": {"steps": 3, "seeds": 1},
            }
        ),
        "small": Scale({"graphs": ("cora:35",)}, 3, takes="twenty minutes on one core"),
        "paper": Scale({"matching": {"epochs": 200}}, 5, "hours on one core"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set methods", self.methods, TITLES)
        known = [name for name in TITLES if name != "whole" and name not in FRESH]
        check_names("--set networks", self.networks, known)
        return [
            self.unit(seed, dataset=dataset, size=size, method=method)
            for seed in seeds
            for dataset, size in graph_sizes(self.graphs)
            for method in self.methods
        ]

    def run(self, unit: Unit, work: Work) -> list[Record]:
        task, seed = graph_task(unit, work).to(work.device), unit["seed"]
        with timed() as spent:
            small = task.train
            if unit["method"] != "whole":
                loops = NetworkMatching.from_preset(overrides=self.matching)
                name: str = unit["method"]
                if name in FRESH:
                    loops = dataclasses.replace(loops, epochs=loops.epochs * loops.outer, outer=1, inner=0)
                network = self.bound(task, FRESH.get(name, name))
                small = loops.reduce(network, unit["size"], seed, work.progress)
        judged = {name: self.judged(task, name, small, seed) for name in self.networks}
        return [{"label": unit["method"], "condense_seconds": spent[0], **unit_told(unit), "judged": judged}]

    def bound(self, task: GraphTask, name: str) -> GraphTask:
        """The task with a network of two layers; SGC has one."""
        hidden = () if name.startswith("sgc") else (self.width,)
        return dataclasses.replace(task, net=ZooNetwork((name,), (task.features, *hidden, task.num_classes)))

    def judged(self, task: GraphTask, name: str, small: Nodes, seed: int) -> dict[str, float]:
        """Mean accuracy of a network trained on ``small``, on the original validation and test nodes."""
        full, _ = task.recipes(len(task.train), 1, task.real_metric)
        recipe = Recipe.from_dict({**full.as_dict(), **self.recipe})
        bound = self.bound(task, name)
        keys = [(name, k) for k in range(recipe.seeds)]
        device = small.y.device
        start, lam = (
            init_many(bound, keys, seed, "judge", device),
            torch.zeros(recipe.seeds, 0, device=device),
        )
        theta = train_many(bound, start, lam, small, recipe)
        parts = {"val": task.val, "test": task.test}
        return {part: float(score_many(bound, theta, lam, data).score.mean()) for part, data in parts.items()}

    def table(self, found: Sequence[Record]) -> Table:
        head = ["graph", "condensed with"]
        for name in self.networks:
            head += [f"tested with {TITLES[name]}, %", *(["paper"] if name in CONDENSED else [])]
        head.append("for its own network it is")
        rows = []
        for graph, records in by_graph(found).items():
            for method in self.methods:
                own = [r["judged"] for r in records if r["label"] == method]
                row = [graph, TITLES[method]]
                for name in self.networks:
                    row.append(mean_text([100 * judged[name]["test"] for judged in own], 1))
                    if name in CONDENSED:
                        printed = PAPER.get(method)
                        row.append(printed[CONDENSED.index(name)] if printed else "")
                rows.append([*row, on_its_own(method, records)])
        notes = [
            "the paper has ogbn-arxiv at c/n = 0.25 % alone; other graphs stand in for it",
            "means over seeds, each of three networks after the last step; no step is chosen on validation",
        ]
        return Table(head, rows, notes)


def on_its_own(method: str, records: Sequence[Record]) -> str:
    """Where a condensed graph stands among them all, judged with the network that it was condensed with."""
    network = FRESH.get(method, method)
    judged: dict[str, list[float]] = {}
    for r in records:
        if r["label"] != "whole" and network in r["judged"]:
            judged.setdefault(r["label"], []).append(r["judged"][network]["test"])
    return standing(judged, method, {name: f"{words}'s" for name, words in TITLES.items()})


def unit_told(unit: Unit) -> dict[str, Any]:
    """What tells a record's unit from others."""
    return {"dataset": unit["dataset"], "train_size": unit["size"], "seed": unit["seed"]}
