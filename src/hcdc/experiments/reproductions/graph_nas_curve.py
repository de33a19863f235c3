"""``graph-nas-curve``: does GraphNAS find good networks sooner on a copy (fig:graph-nas)?

GraphNAS's controller and random search go through the space of GraphNAS, with one training per candidate, on
the original graph or on a copy. The incumbent is the candidate with the best validation score so far: on the
original validation nodes, or on the copy's. It is judged by its test accuracy after a training on the
original graph. The making of the copy shifts its curves. GraphNAS's space has no relaxed network, so S_val is
learned from probes. On a CPU, seconds are those of the process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from hcdc.condensers import Plan, plan
from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.core.settings import setting
from hcdc.evaluation import proxy_scores
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
from hcdc.experiments.reproductions._graphs import by_graph, graph_sizes, graph_task
from hcdc.experiments.standing import standing
from hcdc.reporting import new_figure, plain
from hcdc.search.searchers import searcher
from hcdc.spaces import GraphNAS
from hcdc.tasks import GraphTask
from hcdc.training import Result, run_candidates

SEARCHERS = {"random": "random search", "graphnas": "GraphNAS"}
PLACES = {"copy": "copy", "whole": "original"}
COLOURS = {"random": "#7f7f7f", "graphnas": "#0072B2"}


@register
@dataclass(frozen=True)
class GraphNASCurve(Reproduction):
    """Test accuracy of the incumbent against seconds.

    Attributes:
        graphs: Data and training nodes of the copy, as ``cora:35``.
        places: Where candidates are scored: ``copy`` and ``whole``, the original graph.
        searchers: ``random`` and ``graphnas``.
        trials, whole_trials: Candidates on the copy and on the original graph.
        val_method: How S_val is made.
        options: Settings of that method.
        recipe: Changes to the training, on the copy and on the original graph.
    """

    graphs: tuple[str, ...] = ("cora:35", "citeseer:30", "pubmed:30", "coauthor_cs:75", "ogbn-arxiv:847")
    places: tuple[str, ...] = tuple(PLACES)
    searchers: tuple[str, ...] = tuple(SEARCHERS)
    trials: int = setting(300, least=2)
    whole_trials: int = setting(60, least=2)
    val_method: str = "probes"
    options: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=lambda: {"seeds": 1})

    name = "graph-nas-curve"
    label = "fig:graph-nas"
    title = "GraphNAS and random search on a copy and on the original graph, against time"
    axes = ("graphs", "places")
    scales: ClassVar = {
        "smoke": Scale(
            {
                "graphs": ("embedded:12",), "trials": 3, "whole_trials": 2, "val_method": "real",
                "recipe": {"seeds": 1, "steps": 2},
            }
        ),
        "small": Scale(
            {
                "graphs": ("cora:35",), "trials": 60, "whole_trials": 8, "options": {"probes": 8},
                "recipe": {"seeds": 1, "steps": 60},
            },
            takes="twenty minutes on one core",
        ),
        "paper": Scale(seeds=3, takes="a day on a GPU"),
    }  # fmt: skip

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set places", self.places, PLACES)
        check_names("--set searchers", self.searchers, SEARCHERS)
        return [
            self.unit(seed, dataset=dataset, size=size, place=place)
            for seed in seeds
            for dataset, size in graph_sizes(self.graphs)
            for place in self.places
        ]

    def planned(self, unit: Unit, work: Work) -> Plan:
        """The plan of the copy."""
        method = "hcdc" if self.val_method == "probes" else "reach"
        return plan(
            graph_task(unit, work), GraphNAS(), method, train_size=unit["size"], seed=unit["seed"],
            val_method=self.val_method, options=self.options or None, recipe=self.recipe,
            full_recipe=self.recipe,
        )  # fmt: skip

    def check(self, unit: Unit, work: Work) -> None:
        self.planned(unit, work)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        """One record per searcher."""
        task, planned, clock = graph_task(unit, work), self.planned(unit, work), clock_of(work.device)
        begun = clock()
        train: Any = task.train
        val: Any = task.val
        metric = "accuracy"
        recipe = planned.full
        if unit["place"] == "copy":
            small = planned.run(device=work.device, checkpoint=None, progress=work.progress).to(work.device)
            train, val = small.train, task.val if small.val is None else small.val
            recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
            metric = recipe.metric
        making = clock() - begun if unit["place"] == "copy" else 0.0

        def trained(config: Config) -> Result:
            found = run_candidates(
                task.to(work.device), GraphNAS(), [config], train, {"val": val}, recipe, unit["seed"],
                "judge", work.device,
            )  # fmt: skip
            return found[0]

        count = self.trials if unit["place"] == "copy" else self.whole_trials
        records = []
        for name in self.searchers:
            asking = searcher(name, GraphNAS(), unit["seed"])
            spent: list[float] = []
            scores: list[float] = []
            for number in range(count):
                work.progress.report(f"{name} on the {PLACES[unit['place']]}, trial {number + 1} of {count}")
                begun = clock()
                config = asking.ask()
                score = finite_score(trained(config), metric)
                asking.tell(config, score)
                scores.append(score)
                spent.append(clock() - begun)
            configs = [config for config, _ in asking.history]
            told = {"label": name, "place": unit["place"], "dataset": unit["dataset"], "seed": unit["seed"]}
            told |= {"condense_seconds": making, "trial_seconds": spent, "scores": scores}
            told |= {"incumbents": self.judged(task, configs, scores, planned.full, unit, work)}
            records.append(rounded(told))
        return records

    def judged(
        self, task: GraphTask, configs: Sequence[Config], scores: Sequence[float], full: Recipe, unit: Unit,
        work: Work,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Every incumbent: its trial, and its scores after a training on the original graph."""
        found, there = [], task.to(work.device)
        for trial in incumbents(scores):
            result = run_candidates(
                there, GraphNAS(), [configs[trial]], there.train, {"val": there.val, "test": there.test},
                full, unit["seed"], "truth", work.device,
            )[0]  # fmt: skip
            values = {part: result.values[f"{part}.score"] for part in ("val", "test")}
            found.append({"trial": trial, "config": configs[trial], **values})
        return found

    def table(self, found: Sequence[Record]) -> Table:
        head = [
            "graph", "searched by", "scored on the", "trials", "steps of a training", "seconds to condense",
            "seconds per trial", "final incumbent, test accuracy %",
            "at the seconds of the original's search, %", "by the final one, the copy is", "paper",
        ]  # fmt: skip
        rows = []
        for graph, records in by_graph(found).items():
            for name in self.searchers:
                limit = [
                    sum(r["trial_seconds"]) for r in records if (r["label"], r["place"]) == (name, "whole")
                ]
                final = {
                    place: [
                        float(curve(r)[1][-1]) for r in records if (r["label"], r["place"]) == (name, place)
                    ]
                    for place in self.places
                }
                for place in self.places:
                    own = [r for r in records if (r["label"], r["place"]) == (name, place)]
                    if not own:
                        continue
                    curves = [curve(r) for r in own]
                    last = [100 * float(test[-1]) for _, test in curves]
                    equal = [100 * at(one, second) for one, second in zip(curves, limit)]
                    rows.append([
                        graph, SEARCHERS[name], PLACES[place], str(len(own[0]["scores"])), steps(own[0]),
                        mean_text([r["condense_seconds"] for r in own], 0),
                        mean_text([float(np.mean(r["trial_seconds"])) for r in own], 2),
                        mean_text(last, 1), "none yet" if np.isnan(equal).all() else mean_text(equal, 1),
                        standing(final, "copy", PLACES) if place == "copy" else "", "a figure",
                    ])  # fmt: skip
        notes = [
            "the paper has ogbn-arxiv alone, whose features cannot be had here; other graphs stand in for it",
            "the training that judges an incumbent of the copy on the original graph is not counted",
        ]
        return Table(head, rows, notes)

    def draw(self, found: Sequence[Record]) -> Any:
        """One panel per graph: means over seeds. Curves of a copy begin after the seconds of making it."""
        shown = by_graph(found)
        columns = min(2, len(shown))
        rows = math.ceil(len(shown) / columns)
        figure = new_figure(0.8 + 4.2 * columns, 4.2 * rows)
        for k, (graph, records) in enumerate(shown.items(), 1):
            axes = figure.add_subplot(rows, columns, k)
            for place, words in PLACES.items():
                for name in self.searchers:
                    own = [curve(r) for r in records if (r["label"], r["place"]) == (name, place)]
                    if own:
                        seconds, test = mean_curve(own)
                        axes.step(
                            seconds, 100 * test, where="post", color=COLOURS[name],
                            label=f"{SEARCHERS[name]}, {words}", linestyle="-" if place == "copy" else "--",
                            marker="o", markersize=4, markevery=[-1],
                        )  # fmt: skip
            made = [r["condense_seconds"] for r in records if r["place"] == "copy"]
            if made:
                spent = float(np.mean(made))
                axes.axvline(
                    spent, color="#D55E00", linewidth=1, linestyle=":", zorder=0,
                    label=f"copy made after {spent:.0f} s",
                )  # fmt: skip
            seeds = len({r["seed"] for r in records})
            over = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
            axes.set_title("{}, {} nodes, {}".format(*graph.split(":"), over), fontsize=10)
            axes.set_xlabel("seconds, with making the copy")
            axes.set_ylabel("test accuracy of the incumbent, %")
            axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
            plain(axes)
        return figure


def steps(record: Record) -> str:
    """Steps of a training, if the unit sets them."""
    return str(record["unit"]["settings"]["recipe"].get("steps", "the task's"))


def clock_of(device: str) -> Callable[[], float]:
    """Seconds of the process on a CPU, of the wall on a GPU, where it waits for the device."""
    if torch.device(device).type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now


def finite_score(result: Result, metric: str) -> float:
    """The score of one candidate; -1e9 if it diverged."""
    return proxy_scores([result], metric, "val")[0] if result.finite else -1e9


def incumbents(scores: Sequence[float]) -> list[int]:
    """Trials whose score is higher than every score before."""
    best, found = -math.inf, []
    for trial, score in enumerate(scores):
        if score > best:
            best = score
            found.append(trial)
    return found


def curve(record: Record) -> tuple[Any, Any]:
    """Seconds at which the incumbent changes, and its test accuracy; the last point is the search's end.

    Seconds begin with the making of the copy, if there is one.
    """
    ends = record["condense_seconds"] + np.cumsum(record["trial_seconds"])
    seconds = [float(ends[each["trial"]]) for each in record["incumbents"]]
    test = [each["test"] for each in record["incumbents"]]
    return np.array([*seconds, float(ends[-1])]), np.array([*test, test[-1]])


def at(found: tuple[Any, Any], second: float) -> float:
    """Test accuracy of the incumbent at a second; NaN before the first."""
    seconds, test = found
    place = int(np.searchsorted(seconds, second + 1e-9, side="right")) - 1
    return float(test[place]) if place >= 0 else math.nan


def mean_curve(curves: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """The mean of curves, from where all have an incumbent to where the first of them ends."""
    begin, end = max(seconds[0] for seconds, _ in curves), min(seconds[-1] for seconds, _ in curves)
    every = np.unique(np.concatenate([seconds for seconds, _ in curves]))
    within = every[(every >= begin) & (every <= end)]
    return within, np.mean([[at(one, second) for second in within] for one in curves], axis=0)
