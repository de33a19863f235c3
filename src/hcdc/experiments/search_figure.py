"""The figure of ``search-replay``: regret against time, the ladder beside its rivals.

Each panel is a pool. A line is the mean over runs (and over tables) at the pool's longest budget of the
tables: the normalised regret of the pick so far, where 1 is the median candidate, against seconds in units of
one full training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.experiments.search_tables import Array, Record, Runs, normalised, steps
from hcdc.reporting import new_figure, plain, write_figure

PANELS: Mapping[str, tuple[str, float]] = {
    "nas201-cifar10": ("CIFAR-10 cells", 1800),
    "nas201-cifar100": ("CIFAR-100 cells", 1800),
    "nas201-imagenet16": ("ImageNet16-120 cells", 1800),
    "nasbench-graph": ("NAS-Bench-Graph", 5400),
    "lcbench": ("LCBench", 5400),
    "rbv2_xgboost": ("xgboost", 5400),
    "flights": ("flights", 244),
    "resnet": ("small ResNet", 38),
    "physics": ("graph networks, Physics", 1391),
    "physics-filters": ("graph filters, Physics", 122),
}
"""Titles and budgets in seconds by pool."""
LINES: Mapping[str, tuple[str, str, str]] = {
    "random": ("random search", "#9a9a9a", "-"),
    "tpe": ("TPE", "#E69F00", "-"),
    "gp": ("Gaussian process, full trainings only", "#CC79A7", "-"),
    "hyperband": ("Hyperband", "#009E73", "-"),
    "bohb": ("BOHB", "#56B4E9", "-"),
    "parameters-short-full": ("by size, then 12 epochs, then full", "#1a1a1a", "--"),
    "ladder": ("hcdc", "#D55E00", "-"),
}
"""Words, colour and style of the methods that are drawn; the ladder lies on top."""
LEAST, MOST = 0.004, 1.5
"""Limits of the regret: a mean below the least is drawn there."""
COLUMNS = 4


def mean_curve(runs: Iterable[Record], times: Array) -> Array:
    """Mean normalised regret ``[t]`` at sorted times in seconds; tables count alike."""
    by_table: dict[str, list[Array]] = {}
    for r in runs:
        by_table.setdefault(r["table"], []).append(steps(r, times) / max(r["best"] - r["median"], 1e-9))
    found: Array = np.mean([np.mean(some, 0) for some in by_table.values()], 0)
    return found


def draw_search(found: Sequence[Record]) -> Any | None:
    """The figure; None without records of the ladder."""
    pools = {pool: Runs(normalised(r for r in found if r["pool"] == pool), pool) for pool in PANELS}
    pools = {pool: runs for pool, runs in pools.items() if runs.of("ladder", PANELS[pool][1])}
    if not pools:
        return None
    rows = -(-len(pools) // COLUMNS)
    figure = new_figure(2.2 * COLUMNS, 2.0 * rows + 0.6)
    named: dict[str, Any] = {}
    for number, (pool, runs) in enumerate(pools.items(), 1):
        axes = figure.add_subplot(rows, COLUMNS, number)
        title, budget = PANELS[pool]
        price = runs.of("ladder", budget)[0]["prices"]["full"]
        times = np.linspace(0, budget, 400)
        for method, (words, colour, style) in LINES.items():
            if not (some := runs.of(method, budget)):
                continue
            level = np.clip(mean_curve(some, times), LEAST, MOST)
            width = 2.4 if method == "ladder" else 1.3
            (named[words],) = axes.plot(times / price, level, style, color=colour, linewidth=width)
        axes.set_yscale("log")
        axes.set_ylim(LEAST * 0.8, MOST)
        axes.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
        axes.set_xlim(0, budget / price)
        axes.set_title(title, fontsize=9)
        plain(axes)
    figure.supxlabel("time, in full trainings", fontsize=10)
    figure.supylabel("regret of the pick so far (1: the median candidate)", fontsize=10)
    order = [words for words, _, _ in [*LINES.values()][::-1] if words in named]
    place, columns = ("lower right", 1) if len(pools) % COLUMNS else ("outside upper center", 3)
    lines = [named[words] for words in order]
    figure.legend(lines, order, loc=place, ncols=columns, frameon=False)
    return figure


def write_search_figure(found: Sequence[Record], folder: Path) -> None:
    """Write ``search.png`` if there are records for it."""
    figure = draw_search([r for r in found if r.get("protocol") == "search-replay"])
    if figure is not None:
        write_figure(figure, folder / "search.png")
