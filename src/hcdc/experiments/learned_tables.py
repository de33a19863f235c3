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


@dataclass(frozen=True)
class Shown:
    """What the table of a pool shows.

    Attributes:
        rows: Its rows, in words.
        beside: The way that the others are compared with, besides no copy, and its words.
        normalised: Divide regret by that of the median candidate, and leave out picks after the budget.
    """

    rows: Mapping[Row, str]
    beside: tuple[str, str]
    normalised: bool = False


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
        ("real", "real images"),
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
        ("random", "random nodes"),
        normalised=True,
    ),
}


def _values(runs: Sequence[Record], shown: Shown) -> dict[int, float]:
    """Regret by seed."""
    if not shown.normalised:
        return {r["seed"]: regret(r) for r in runs}
    return {r["seed"]: regret(r, r["budget"]) / (r["best"] - r["median"]) for r in runs}


def _difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """The mean difference in runs with the same seed, and its 90 % interval over seeds."""
    apart: Array = np.array([value - theirs[seed] for seed, value in ours.items() if seed in theirs])
    if not len(apart):
        return NOT_RUN
    low, high = bootstrap(apart)
    return f"{apart.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def learned_table(pool: str, found: Sequence[Record]) -> str:
    """Regret at each budget, and the differences from no copy and from real examples."""
    shown = SHOWN[pool]
    by_row: dict[Row, list[Record]] = {}
    for r in found:
        if r["pool"] == pool:
            by_row.setdefault((r["way"], r["made"], r["method"]), []).append(r)
    budgets = sorted({r["budget"] for some in by_row.values() for r in some})
    against = {"no copy": ("none", False, "ladder"), shown.beside[1]: (shown.beside[0], False, "ladder")}
    rows = []
    for row, words in shown.rows.items():
        own = by_row.get(row, [])
        making = [r["making"] for r in own]
        cells = [words, str(len({r["seed"] for r in own})), f"{np.mean(making):,.0f}" if making else NOT_RUN]
        for budget in budgets:
            here = _values([r for r in own if r["budget"] == budget], shown)
            if own and not here:  # making it takes the whole budget
                cells += ["-"] * (1 + len(against))
                continue
            cells.append(mean_error(list(here.values())))
            for other in against.values():
                theirs = [r for r in by_row.get(other, []) if r["budget"] == budget]
                cells.append("" if row == other else _difference(here, _values(theirs, shown)))
        rows.append(cells)
    head = ["the ladder's copy, or a rival", "runs", "seconds to make it"]
    for budget in budgets:
        head += [f"regret after {_time(budget)}", *(f"more than with {name}" for name in against)]
    return table_text(head, rows)


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if math.fmod(seconds, 30) == 0 and seconds >= 300 else f"{seconds:g} s"


LEARNED_TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    f"search-learned-{pool}": functools.partial(learned_table, pool) for pool in SHOWN
}
"""The tables by name."""
