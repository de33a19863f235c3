"""Tables of protocol ``nas201``: all rows of a table use the same cells and the same draws.

A table's name is ``nas201-cifar10`` or ``nas201-cifar100``, then the kind of records (see `KINDS`: nothing
for the usual recipe, ``-eight`` for 8 initialisations, ``-total`` for the paper's split, ``-steps`` for other
steps), then nothing, ``-some`` (all rows, on the cells that judged all of them) or ``-copies`` (copies of
other methods by recipe and metric). `hcdc.experiments.tables` writes them into documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcdc.core.ranks import calibration, spearman
from hcdc.experiments.markdown import table_text
from hcdc.experiments.nas201_draws import (
    DRAWS,
    PROBES,
    PROMOTED,
    REGRET_DRAWS,
    TOP,
    Regrets,
    Resampled,
    Samples,
    draws,
    mean_text,
    pooled,
)
from hcdc.experiments.nas201_rankings import (
    CELLS,
    EARLY,
    KINDS,
    LEARNED,
    METRICS,
    NAMES,
    PARAMETERS,
    RIDGE,
    SHARED,
    WORDS,
    Array,
    Ranking,
    Record,
    kind_of,
    on_same_cells,
    rankings,
    scores_of,
    sized,
)

PAPER = {
    "random": -0.12, "kcenter": 0.19, "herding": -0.05, "dc": -0.21, "dsa": -0.33, "dm": -0.10, "kip": -0.27,
    "tm": -0.07,
}  # fmt: skip
"""Spearman's correlations of HCDC's paper, 100 cells of CIFAR-10."""


@dataclass(frozen=True)
class Clock:
    """Seconds for training the benchmark's network on its 25,000 CIFAR-10 images: 12 and 200 epochs.

    Measured on the device and engine that trained the copies, so that all costs share one clock
    (`benchmarks/epochs.py`). CIFAR-100, with twice as many images, was not timed.
    """

    short: float
    long: float

    @classmethod
    def read(cls, found: Sequence[Record]) -> Clock | None:
        """Read the clock from the benchmark's record, if there is one."""
        timed = [r for r in found if r.get("benchmark") == "epochs"]
        return cls(timed[-1]["seconds_12"], timed[-1]["seconds_200"]) if timed else None


class Judged:
    """The rows of one table with their figures.

    Args:
        found: The records of one benchmark.
        some: Use all rows, on the cells that judged them all, instead of the rows that all cells judged.
    """

    def __init__(self, found: Sequence[Record], some: bool = False):
        self.base, self.rows = on_same_cells(*rankings(found), some)
        self.truth, self.test = np.asarray(self.base["val"]), np.asarray(self.base["test"])
        each = draws(len(self.truth))
        best = np.argsort(-self.truth[each], axis=1, kind="stable")[:, :TOP]
        self.samples = Samples(self.truth, each)
        self.top = Samples(self.truth, np.take_along_axis(each, best, 1))
        self.regrets = Regrets(self.truth, self.test)
        self.mine = sized(LEARNED["hcdc-probes"], self.base)

    def agreement(self, name: str, samples: Samples | None = None) -> Array:
        """Spearman's correlations ``[runs, draws]``."""
        samples = samples or self.samples
        return pooled(self.rows[name], [samples.correlations(one.scores) for one in self.rows[name]])

    def whole(self, name: str, truth: Array) -> float:
        """Mean over runs of Spearman's correlation with a truth on all cells."""
        ranked = self.rows[name]
        return float(pooled(ranked, [spearman(truth, one.scores) for one in ranked]).mean())

    def in_order(self, name: str) -> list[float]:
        """Share of pairs of cells that each run orders as the table does, eq. (HC)."""
        return [calibration(self.truth, one.scores) for one in self.rows[name]]

    def regret(self, name: str, probes: bool = False) -> dict[str, Array]:
        """`Regrets.figures` or, for the probes alone, `Regrets.of_probes`, ``[runs, draws]`` each."""
        if probes:
            each = [self.regrets.of_probes(one.known) for one in self.rows[name] if one.known]
        else:
            each = [self.regrets.figures(one) for one in self.rows[name]]
        return {key: pooled(self.rows[name], [figures[key] for figures in each]) for key in each[0]}

    def full_seconds(self, name: str, clock: Clock | None) -> float | None:
        """Mean seconds for full-data training; None if not timed."""
        ranked = self.rows[name]
        if not any(one.short or one.long for one in ranked):
            return 0.0
        if clock is None or self.base["dataset"] != "cifar10":
            return None
        spent = [one.short * clock.short + one.long * clock.long for one in ranked]
        return float(pooled(ranked, spent).mean())

    def copy_seconds(self, name: str) -> float:
        """Mean seconds for 100 trials on the copy, including making it."""
        return float(pooled(self.rows[name], [one.search for one in self.rows[name]]).mean())

    def full_text(self, name: str, clock: Clock | None) -> str:
        seconds = self.full_seconds(name, clock)
        return "not timed" if seconds is None else f"{seconds:,.0f}"


def agreement(found: Sequence[Record], clock: Clock | None = None, some: bool = False) -> str:
    """One row per method: rank agreement, top 30, regret of the pick and after promotion, cost.

    Args:
        found: The records of one benchmark.
        clock: Seconds for full-data training.
        some: See `Judged`.
    """
    judged = Judged(found, some)
    ours = judged.rows.get(judged.mine, [])
    resampled = Resampled(judged.truth, ours)
    lines = []
    for name, ranked in judged.rows.items():
        reached, lost = judged.agreement(name), judged.regret(name)
        low, high = np.quantile(reached, [0.05, 0.95])
        line = [
            name,
            _runs(ranked),
            f"{float(reached.mean()):.3f} [{low:.2f}, {high:.2f}]",
            f"{judged.whole(name, judged.truth):.3f}",
            f"{judged.whole(name, judged.test):.3f}",
            "" if name == judged.mine else resampled.gain(ranked),
            f"{float(judged.agreement(name, judged.top).mean()):.2f}",
            mean_text(lost["regret"], spread=True),
            mean_text(lost["promoted"]),
            mean_text(lost["equal"]),
            judged.full_text(name, clock),
            f"{judged.copy_seconds(name):,.0f}",
        ]
        lines.append((float(reached.mean()), line))
    text = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    if ours:
        lost, paid = judged.regret(judged.mine, probes=True), judged.full_text(judged.mine, clock)
        bare = [f"none: the best of {PROBES} probes", _runs(ours), *[""] * 5]
        text.append([*bare, mean_text(lost["probes"], spread=True), "", "", paid, "0"])
        bare[0] += f" and {PROMOTED} random cells"
        text.append([*bare, "", "", mean_text(lost["random"]), paid, "0"])
    count = len(judged.truth)
    head = [
        "ranked by",
        "runs",
        f"Spearman, {DRAWS:,} draws of {CELLS}: mean [5 %, 95 %]",
        f"all {count}",
        f"all {count}, test accuracy as truth",
        f"HCDC (b) minus it, all {count}: mean, 90 % interval of the mean",
        f"top {TOP}",
        f"regret of the pick, points, {REGRET_DRAWS:,} draws: mean [5 %, 95 %]",
        f"after {PROMOTED} promotions",
        f"of {PROBES + PROMOTED} full trainings, probes among them",
        "seconds on the full data, promotions apart",
        f"seconds of {CELLS} trials on the copy, including making it",
    ]
    return table_text(head, text)


def copies(found: Sequence[Record]) -> str:
    """Copies of CIFAR-10 by other methods: Spearman's correlation per recipe and metric, on the copy's own
    validation images / on real ones, beside the paper's; then other rankings of the same cells."""
    base, rows = on_same_cells(*rankings(found), all_rows=True)
    truth = np.asarray(base["val"])
    mine = [r for r in found if r["label"] in PAPER]
    mine += _random_copies(found, {r["seed"] for r in mine if r["label"] == "random"})

    def own(method: str, recipe: str) -> list[Record]:
        return [r for r in mine if r["label"] == method and r["recipe_name"] == recipe]

    def cell(some: list[Record], metric: str) -> str:
        reached = [
            _mean_and_spread([spearman(truth, scores_of(r, metric, part)[: len(truth)]) for r in some])
            for part in ("val", "real")
            if some
        ]
        return " / ".join(reached) or "not run"

    kinds = [(recipe, metric) for recipe in METRICS for metric in WORDS]
    lines = []
    for method, published in PAPER.items():
        seeds = [str(len({r["seed"] for r in own(method, recipe)})) for recipe in METRICS]
        shown = [cell(own(method, recipe), metric) for recipe, metric in kinds]
        lines.append([NAMES.get(method, method), " / ".join(seeds), f"{published:.2f}", *shown])
    others = (*(sized(LEARNED[way], base) for way in ("hcdc-probes", "hcdc-weighted")), SHARED["real-val"])
    for name in (*others, RIDGE, PARAMETERS, EARLY):
        if name in rows:
            whole = pooled(rows[name], [spearman(truth, one.scores) for one in rows[name]])
            ours = "0.74" if name == others[0] else ""
            lines.append([name, "", ours, "", "", "", f"{float(whole.mean()):.2f}"])
    head = ["copy", f"condensations, {' / '.join(METRICS)}", "the paper's"]
    head += [f"{recipe} recipe, {WORDS[metric]}" for recipe, metric in kinds]
    return table_text([*head[:-1], f"{head[-1]}, or as it says"], lines)


def _random_copies(found: Sequence[Record], known: set[int]) -> list[Record]:
    """Random copies for further seeds: HCDC's random S_train with random validation images."""
    made = {
        (r["label"], r["seed"]): r
        for r in found
        if r["label"] in ("random-val", "real-val")
        and r.get("train_method", "random") == "random"
        and r["seed"] not in known
    }
    return [
        {
            "label": "random", "recipe_name": "calibrated", "seed": seed,
            **{f"val.{what}": r[what] for what in WORDS},
            **{f"real.{what}": made["real-val", seed][what] for what in WORDS},
        }
        for (label, seed), r in made.items()
        if label == "random-val"
    ]  # fmt: skip


def _mean_and_spread(values: Sequence[Any]) -> str:
    """The mean, and the standard deviation if there are several values."""
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}"


def _runs(ranked: Sequence[Ranking]) -> str:
    """The number of rankings, and of condensations if there are fewer."""
    seeds = len({one.seed for one in ranked})
    return f"{len(ranked)}" if seeds in (1, len(ranked)) else f"{len(ranked)} of {seeds} condensations"


def nas201_table(name: str, found: Sequence[Record], clock: Clock | None = None) -> str | None:
    """The table with a name; None if there is no such table or no record for it."""
    for benchmark in ("cifar10", "cifar100"):
        for kind in KINDS:
            form = name.removeprefix(f"nas201-{benchmark}{kind}")
            if form == name or form not in ("", "-some", "-copies"):
                continue
            mine = [r for r in found if r["dataset"] == benchmark and kind_of(r) == kind]
            if mine:
                return copies(mine) if form == "-copies" else agreement(mine, clock, some=form == "-some")
    return None
