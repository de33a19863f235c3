"""``graphs-rank``: the paper's table of graph filters (tab:graphs), Corr. and Perf.

Corr. is Spearman's correlation of 80 new filters on the copy and on the whole graph. For Perf., hypergradient
descent on lambda [Lorraine et al.] searches the copy; of the filters on its way, the best by the copy's own
score is trained on the whole graph and tested. The whole-graph column descends on the whole graph itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset
from hcdc.evaluation import score
from hcdc.experiments import arxiv_generated
from hcdc.experiments.reproductions._frame import Record, Scale, Table, Unit, Work, mean_text, register
from hcdc.experiments.reproductions._graphs import (
    GRAPHS,
    LARGE,
    NOT_HERE,
    ORDER,
    PAPER,
    TITLES,
    WHOLE,
    by_graph,
    graph_sizes,
    graph_task,
    named,
)
from hcdc.experiments.reproductions.filters_80 import QUICK, Filters80, in_order
from hcdc.experiments.standing import standings
from hcdc.search.searchers import searcher
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask
from hcdc.truth import TrainedTruth

GENERATED = (
    f"{arxiv_generated.NAME} has the edges, labels and split of ogbn-arxiv, but generated features, few "
    "filters and short trainings: it shows that the code runs at that size, and says nothing about ogbn-arxiv"
)


@register
@dataclass(frozen=True)
class GraphsRank(Filters80):
    """Corr. and Perf. of four copies, and Perf. on the whole graph.

    Attributes:
        asks: Filters on the way of the descent.
        descent: Changes to the settings of hypergradient descent: training steps at each lambda.
    """

    graphs: tuple[str, ...] = (*GRAPHS, *LARGE)
    asks: int = setting(20, least=2)
    descent: int = setting(0, least=0, note="0 takes the task's recipe")

    name = "graphs-rank"
    label = "tab:graphs"
    title = "filters ranked and found on copies of graphs"
    scales: ClassVar = {
        "smoke": Scale({**QUICK, "methods": ("random", "hcdc"), "asks": 2, "descent": 2}),
        "small": Scale({"graphs": ("cora:35", "citeseer:30")}, takes="two hours on one core"),
        "paper": Scale(seeds=5, takes="a day on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        whole = dict.fromkeys(dataset for dataset, _ in graph_sizes(self.graphs))
        on_whole = [
            self.unit(seed, dataset=name, size=None, method="whole") for seed in seeds for name in whole
        ]
        return [*super().units(seeds), *on_whole]

    def check(self, unit: Unit, work: Work) -> None:
        if unit["method"] != "whole":
            super().check(unit, work)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        task = graph_task(unit, work)
        if unit["method"] == "whole":
            full, _ = task.recipes(len(task.train), 1, task.real_metric)
            truth = self._truth(task, full, work)
            tried = descended(task, self.space(), None, unit["seed"], work, self.asks, self.descent)
            values = truth.scores(tried, "val")
            best = tried[int(np.argmax(values))]
            found = {"label": "whole", "dataset": unit["dataset"], "seed": unit["seed"]}
        else:
            small = work.copy(self.planned(unit, work))
            found = self.judged(unit, small, work, rivals=False)
            truth = self._truth(task, Recipe.from_dict(small.meta["full_recipe"]), work)
            tried = descended(task, self.space(), small, unit["seed"], work, self.asks, self.descent)
            values = [score(small, config, task, work.device) for config in tried]
            best = tried[int(np.argmax(np.nan_to_num(values, nan=-np.inf)))]
        return [{**found, "found": best, "found_test": truth.score(best, "test"), "tried_scores": values}]

    def _truth(self, task: GraphTask, full: Recipe, work: Work) -> TrainedTruth:
        full = Recipe.from_dict({**full.as_dict(), **self.full_recipe})
        return TrainedTruth(task.to(work.device), self.space(), full, device=work.device)

    def table(self, found: Sequence[Record]) -> Table:
        head = ["graph", "method", "Corr.", "paper", "pairs in order", "Perf., %", "paper", "HCDC is"]
        rows = []
        graphs = by_graph(found)
        for graph in sorted(graphs, key=paper_order):
            records = graphs[graph]
            own: dict[str, list[Record]] = {}
            for record in records:
                own.setdefault(record["label"], []).append(record)
            figures = {
                name: [r["spearman"] for r in some if r["spearman"] is not None]
                for name, some in own.items()
                if name != "whole"
            }
            perfs = {name: [100 * r["found_test"] for r in some] for name, some in own.items()}
            whole = perfs.pop("whole", [])
            for name, some in own.items():
                if name == "whole":
                    dataset = some[0]["unit"]["dataset"]
                    perf = mean_text(whole, 1)
                    rows.append([dataset, "Whole graph", "", "", "", perf, WHOLE.get(dataset, ""), ""])
                    continue
                paper, perf = PAPER.get((graph, name), ("", "")), mean_text(perfs[name], 1)
                pairs = [share for r in some if (share := in_order(r, r)) is not None]
                place = standings(figures, perfs, "hcdc", TITLES) if name == "hcdc" else ""
                ranked = mean_text(figures[name]), paper[0], mean_text(pairs)
                rows.append([graph, TITLES.get(name, name), *ranked, perf, paper[1], place])
        known = {named(r) for r in found}
        rows += [not_here(graph) for graph in self.graphs if graph in LARGE and graph not in known]
        generated = any(r["dataset"] == arxiv_generated.NAME for r in found)
        return Table(head, rows, [GENERATED] if generated else [])


def paper_order(graph: str) -> tuple[int, float]:
    """The place of a graph in the paper's table: by data, then by size, the whole graph last."""
    dataset, _, size = graph.partition(":")
    names = [known.partition(":")[0] for known in (*GRAPHS, *LARGE)]
    return names.index(dataset) if dataset in names else len(names), float(
        size
    ) if size.isdigit() else math.inf


def not_here(graph: str) -> list[str]:
    """The paper's figures of a graph that was not run."""
    why = NOT_HERE[graph.partition(":")[0]]
    corrs, perfs = (", ".join(f"{TITLES[m]} {PAPER[graph, m][k]}" for m in ORDER) for k in range(2))
    return [graph, "all", why, corrs, "", why, perfs, ""]


def descended(
    task: GraphTask,
    space: PolynomialFilter,
    small: CondensedDataset | None,
    seed: int,
    work: Work,
    asks: int,
    steps: int,
    descents: int = 1,
) -> list[Config]:
    """The filters that hypergradient descent visits on a copy, or on the whole graph.

    Args:
        task, space: What is learned, and the filters.
        small: The copy; None descends on the whole graph.
        seed: Seed of the starts.
        work: Where to run.
        asks: Filters per descent, the start included.
        steps: Training steps at each filter; 0 takes the task's recipe.
        descents: Starts, one after the other.
    """
    sets = {}
    if small is not None:
        sets = {part: getattr(small, part).to(work.device) for part in ("train", "val")}
    there = task.to(work.device)
    asking = searcher("hypergradient", space, seed, task=there, steps=steps, restart=asks, **sets)
    return [asking.ask() for _ in range(asks * descents)]
