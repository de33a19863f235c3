"""Tables of ``search-learned``: the ladder with a learned copy, with real examples and without a copy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hcdc.experiments.markdown import table_text
from hcdc.experiments.search_tables import NOT_RUN, WORDS, Array, Record, bootstrap, mean_error, regret

Row = tuple[str, bool, str]
"""A way, whether it was made in the search, and the method."""
NOTHING: Row = ("none", False, "ladder")
"""The ladder without a copy."""


@dataclass(frozen=True)
class Measure:
    """A figure of merit.

    Attributes:
        words: Its name in a column's head.
        value: What a run loses.
        against: Rows that the others are compared with, by their words.
    """

    words: str
    value: Callable[[Record], float]
    against: Mapping[str, Row]


@dataclass(frozen=True)
class Shown:
    """What the table of a pool shows.

    Attributes:
        rows: Its rows, in words.
        measures: Its figures of merit at each budget.
    """

    rows: Mapping[Row, str]
    measures: Sequence[Measure]


def normalised(r: Record) -> float:
    """Regret over that of the median candidate; a pick after the budget does not count."""
    return regret(r, r["budget"]) / float(r["best"] - r["median"])


def unseen(r: Record) -> float:
    """Points of validation below the best candidate by validation, at the end of the budget.

    A run without a pick is left out (NaN).
    """
    reached = [score for at, score in r["validation"] if at <= r["budget"]]
    return float(r["best_validation"] - reached[-1]) if reached else math.nan


def _rivals(*names: str) -> dict[Row, str]:
    return {("none", False, name): WORDS[name] for name in names}


SHOWN: Mapping[str, Shown] = {
    "cells": Shown(
        {
            ("probes", False, "ladder"): "S_val learned from 20 probes (b), ready",
            ("probes", True, "ladder"): "the same, made in the search",
            ("weighted", False, "ladder"): "200 weighted real images, 20 probes (d), ready",
            ("weighted", True, "ladder"): "the same, made in the search",
            ("aligned", False, "ladder"): "S_val from hypergradients alone (a), ready",
            ("aligned", True, "ladder"): "the same, made in the search",
            ("real", False, "ladder"): "2,000 real validation images",
            ("random", False, "ladder"): "200 random validation images",
            ("none", False, "ladder"): "no copy",
            **_rivals("parameters-short-full", "hyperband", "random"),
        },
        [Measure("regret", regret, {"no copy": NOTHING, "real images": ("real", False, "ladder")})],
    ),
    "cells100": Shown(
        {
            ("probes", False, "ladder"): "S_val learned from 20 probes (b), ready",
            ("weighted", False, "ladder"): "1,000 weighted real images, 20 probes (d), ready",
            ("real", False, "ladder"): "2,000 real validation images",
            ("random", False, "ladder"): "1,000 random validation images",
            ("none", False, "ladder"): "no copy",
            **_rivals("parameters-short-full", "hyperband", "random"),
        },
        [Measure("regret", regret, {"no copy": NOTHING, "real images": ("real", False, "ladder")})],
    ),
    "filters": Shown(
        {
            ("learned-25", False, "ladder"): "25 nodes, S_val learned by `landscape`, ready",
            ("learned-25", True, "ladder"): "the same, made in the search",
            ("learned-400", False, "ladder"): "400 nodes, S_val learned by `landscape`, ready",
            ("learned-400", True, "ladder"): "the same, made in the search",
            ("process", False, "ladder"): "Gaussian process on the same 32 trainings, ready",
            ("process", True, "ladder"): "the same, trained in the search",
            ("random", False, "ladder"): "400 random nodes, real validation nodes",
            ("none", False, "ladder"): "no copy",
            **_rivals("hyperband", "random"),
        },
        [
            Measure("regret", normalised, {"no copy": NOTHING}),
            Measure("points below the best by validation", unseen, {"no copy": NOTHING}),
        ],
    ),
}


def _values(runs: Sequence[Record], measure: Measure) -> dict[int, float]:
    """What each run loses, by seed."""
    found = {r["seed"]: measure.value(r) for r in runs}
    return {seed: value for seed, value in found.items() if not math.isnan(value)}


def _difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """The mean difference in runs with the same seed, and its 90 % interval over seeds."""
    apart: Array = np.array([value - theirs[seed] for seed, value in ours.items() if seed in theirs])
    if not len(apart):
        return NOT_RUN
    low, high = bootstrap(apart)
    return f"{apart.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def learned_table(pool: str, found: Sequence[Record]) -> str:
    """What each way loses at each budget, and the differences from others."""
    shown = SHOWN[pool]
    by_row: dict[Row, list[Record]] = {}
    for r in found:
        if r["pool"] == pool:
            by_row.setdefault((r["way"], r["made"], r["method"]), []).append(r)
    budgets = sorted({r["budget"] for some in by_row.values() for r in some})
    columns = [(budget, measure) for budget in budgets for measure in shown.measures]
    rows = []
    for row, words in shown.rows.items():
        if not (own := by_row.get(row, [])):
            continue
        cells = [words, str(len({r["seed"] for r in own})), f"{np.mean([r['making'] for r in own]):,.0f}"]
        for budget, measure in columns:
            here = _values([r for r in own if r["budget"] == budget], measure)
            if not here:  # making it takes the whole budget
                cells += ["-"] * (1 + len(measure.against))
                continue
            cells.append(mean_error(list(here.values())))
            for other in measure.against.values():
                theirs = [r for r in by_row.get(other, []) if r["budget"] == budget]
                cells.append("" if row == other else _difference(here, _values(theirs, measure)))
        rows.append(cells)
    head = ["the ladder's copy, or a rival", "runs", "seconds to make it"]
    for budget, measure in columns:
        head.append(f"{measure.words} after {_time(budget)}")
        head += [f"more than with {name}" for name in measure.against]
    if not rows:
        head.append("regret")
        rows = [[words, *[NOT_RUN] * (len(head) - 1)] for words in shown.rows.values()]
    return table_text(head, rows)


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if math.fmod(seconds, 30) == 0 and seconds >= 300 else f"{seconds:g} s"


LEARNED_TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    f"search-learned-{pool}": functools.partial(learned_table, pool) for pool in SHOWN
}
"""The tables by name."""
