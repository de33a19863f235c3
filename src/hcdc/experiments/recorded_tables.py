"""Tables of ``search-replay`` on recorded pools: the ladder beside its rivals and without some of its rungs.

Regret is normalised: that of the median candidate is 1. What a method picks after its budget does not count.
Differences are paired by seed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hcdc.experiments.markdown import table_text
from hcdc.experiments.search_tables import (
    MARGIN,
    NOT_RUN,
    WORDS,
    Array,
    Record,
    Runs,
    difference,
    mean_error,
    non_inferior,
    normalised,
    regret,
    scored,
    seconds_to,
)


@dataclass(frozen=True)
class Section:
    """What the tables of a pool show.

    Attributes:
        against: Rivals that the ladder is compared with in detail.
        left_out: The ladders of the last table, in words.
    """

    against: Sequence[str]
    left_out: Mapping[str, str]


COPIED = Section(
    ("bohb", "hyperband", "asha", "dehb", "tpe", "gp", "evolution", "random", "random-subset", "summed-loss"),
    {
        "ladder": "all rungs",
        "ladder-without-copy": "without the copy",
        "ladder-without-short": "without short trainings",
    },
)
"""Pools with a copy."""
POOLS: Mapping[str, Section] = {
    "flights": Section(
        ("bohb", "hyperband", "random-subset"),
        {
            "ladder": "all rungs",
            "ladder-without-subset:0.111": "without a ninth of the rows",
            "ladder-without-subset:0.333": "without a third of the rows",
            "ladder-without-subset": "full trainings only",
        },
    ),
    "physics": COPIED,
    "physics-filters": COPIED,
    "resnet": COPIED,
}


def _prepared(found: Sequence[Record], pool: str) -> tuple[Runs, list[float]]:
    """The runs on a pool up to their budgets, with normalised regret; and the budgets."""
    cut = [
        {**r, "score": scored(r, r["budget"]), "curve": [at for at in r["curve"] if at[0] <= r["budget"]]}
        for r in found
        if r["pool"] == pool
    ]
    runs = Runs(normalised(cut), pool)
    return runs, sorted({r["budget"] for r in runs.all})


def _head(runs: Runs, budget: float) -> str:
    """A budget in words."""
    price = next(r for r in runs.all if r["budget"] == budget)["prices"]["full"]
    return f"{budget:g} s ({budget / price:.0f} full trainings)"


def _normal(runs: Sequence[Record]) -> str:
    return mean_error([r["normal"] for r in runs])


def paired(ours: Sequence[Record], theirs: Sequence[Record]) -> Array:
    """Differences of normalised regret, ours minus theirs, in runs with the same seed."""
    other = {r["seed"]: r["normal"] for r in theirs}
    return np.array([r["normal"] - other[r["seed"]] for r in ours if r["seed"] in other])


def methods_table(pool: str, found: Sequence[Record]) -> str:
    """All methods at each budget, and the seconds and trainings of the longest."""
    runs, budgets = _prepared(found, pool)
    rows = []
    for name, words in WORDS.items():
        own = [runs.of(name, budget) for budget in budgets]
        if not any(own) and name != "ladder":
            continue
        used = NOT_RUN
        if own and own[-1]:
            means = {
                rung: np.mean([r["trainings"].get(rung, 0) for r in own[-1]]) for rung in own[-1][0]["prices"]
            }
            used = ", ".join(f"{rung} {mean:.0f}" for rung, mean in means.items() if mean)
        some = [r["seconds"] / r["budget"] for each in own for r in each]
        spent = f"{np.mean(some):.0%} ({max(some):.0%})" if some else NOT_RUN
        rows.append([words, str(max(map(len, own), default=0)), *map(_normal, own), spent, used])
    heads = [f"regret after {_head(runs, budget)}" for budget in budgets]
    return table_text(
        ["searched by", "runs", *heads, "of the budget, mean (most)", "trainings in the longest"], rows
    )


def _reached(ours: Sequence[Record], theirs: Sequence[Record]) -> str:
    """Seconds until our mean regret is the final one of the other method, beside its own."""
    if not ours or not theirs:
        return NOT_RUN
    target = float(np.mean([regret(r) for r in theirs]))
    own, whole = seconds_to(ours, target), seconds_to(theirs, target)
    if own is None or whole is None:
        return "not reached"
    return f"{own:.0f} s / {whole:.0f} s = {own / whole:.2f}"


def against_table(pool: str, found: Sequence[Record]) -> str:
    """The ladder against its rivals: paired difference, verdict, and time to their final regret."""
    runs, budgets = _prepared(found, pool)
    rows = []
    for rival in POOLS[pool].against:
        for budget in budgets if runs.of(rival) else ():
            ours, theirs = runs.of("ladder", budget), runs.of(rival, budget)
            apart = paired(ours, theirs)
            rows.append(
                [
                    f"{WORDS[rival]}, {_head(runs, budget)}",
                    str(len(apart)),
                    f"{_normal(ours)} / {_normal(theirs)}",
                    difference(apart),
                    non_inferior(apart),
                    _reached(runs.timed("ladder"), theirs),
                ]
            )
    head = [
        "the ladder against", "pairs", "normalised regret, ladder / rival",
        "difference, mean over seeds [90 % interval]", f"non-inferior (upper bound <= {MARGIN:g})",
        "seconds to the rival's final mean regret, ladder / rival",
    ]  # fmt: skip
    return table_text(head, rows or [[WORDS[rival], *[NOT_RUN] * 5] for rival in POOLS[pool].against])


def rungs_table(pool: str, found: Sequence[Record]) -> str:
    """The ladder without some of its rungs, and the paired difference from the whole ladder."""
    runs, budgets = _prepared(found, pool)
    rows = []
    for name, words in POOLS[pool].left_out.items():
        row = [words]
        for budget in budgets:
            own = runs.of(name, budget)
            row.append(_normal(own))
            row.append("" if name == "ladder" else difference(paired(own, runs.of("ladder", budget))))
        rows.append(row)
    head = ["the ladder"]
    for budget in budgets:
        head += [f"regret after {_head(runs, budget)}", "more than with all rungs"]
    return table_text(head, rows)


RECORDED_TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    f"search-{pool}{part}": functools.partial(write, pool)
    for pool in POOLS
    for part, write in {"": methods_table, "-against": against_table, "-rungs": rungs_table}.items()
}
"""The tables by name."""
