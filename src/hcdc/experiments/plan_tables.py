"""Tables of protocol ``plan-reliability`` and of ``benchmarks/plan.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.planned import ODDS, raised
from hcdc.experiments.markdown import table_text

Record = dict[str, Any]
EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 1.0)
"""Ends of the bins of stated chances."""
FACTORS = np.geomspace(0.5, 5, 47).tolist()
"""Factors of odds to choose from."""
CASES = {
    "graph": "embedded graph, filters",
    "digits": "digits, small cells",
    "table": "breast cancer, MLP",
    "torch": "examples/search_torch.py",
    "trees": "examples/search_trees.py",
}


def reliability_table(found: Sequence[Record]) -> str:
    """Stated chances in bins against how often the ladder was better; cases are tables and budgets."""
    rows = []
    for low, high in pairwise(EDGES):
        some = [r for r in found if low <= r["chance"] < high]
        if some:
            rows.append([f"{low:.1f} to {high:.1f}", *_reliability(some)])
    rows.append(["all", *_reliability(found)])
    share = float(np.mean([r["won"] for r in found]))
    rows.append(
        [f"always {share:.2f} instead", f"{share:.2f}", *rows[-1][2:5], f"{_constant(found, share):.3f}"]
    )
    return table_text(
        ["stated chance", "mean stated", "observed share", "cases", "pools", "Brier score"], rows
    )


def pools_table(found: Sequence[Record]) -> str:
    """The same by pool and budget, in full trainings."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for r in found:
        groups.setdefault((r["pool"], r["full_trainings"]), []).append(r)
    rows = [
        [
            pool,
            str(trainings),
            "yes" if some[0]["pays"] else "no",
            *_reliability(some)[:3],
            f"{_brier(some):.3f}",
        ]
        for (pool, trainings), some in sorted(groups.items())
    ]
    head = ["pool", "full trainings in the budget", "ladder advised", "mean stated", "observed share"]
    return table_text([*head, "cases", "Brier score"], rows)


def _reliability(some: Sequence[Record]) -> list[str]:
    means = [float(np.mean([r[name] for r in some])) for name in ("chance", "won")]
    pools = len({r["pool"] for r in some})
    return [*(f"{mean:.2f}" for mean in means), str(len(some)), str(pools), f"{_brier(some):.3f}"]


def _brier(some: Sequence[Record]) -> float:
    return float(np.mean([r["brier"] for r in some]))


def apart_table(found: Sequence[Record]) -> str:
    """Brier scores of chances that know nothing of the pool, which are judged pool by pool.

    The worlds' chance is the stated one with its odds divided by `ODDS`. *Odds by the other pools* fits the
    factor to these, each counting the same; the constant is their mean share.
    """
    pools = sorted({r["pool"] for r in found})
    groups = {pool: [r for r in found if r["pool"] == pool] for pool in pools}
    scores: dict[str, list[NDArray[np.float64]]] = {}
    factors = []
    for pool in pools:
        others = [groups[other] for other in pools if other != pool]
        factors.append(min(FACTORS, key=lambda factor: _mean([_raised(some, factor) for some in others])))
        share = float(np.mean([np.mean([r["won"] for r in some]) for some in others]))
        for name, errors in {
            "the worlds alone": _raised(groups[pool], 1.0),
            "as stated": _raised(groups[pool], ODDS),
            "odds by the other pools": _raised(groups[pool], factors[-1]),
            "a constant by the other pools": _errors(groups[pool], np.full(len(groups[pool]), share)),
        }.items():
            scores.setdefault(name, []).append(errors)
    rows = [
        [name, f"{_mean(errors):.3f}", f"{float(np.concatenate(errors).mean()):.3f}"]
        for name, errors in scores.items()
    ]
    head = ["chance", "Brier score, mean over pools", "mean over cases"]
    fitted = f"Factors of odds by the other pools: {min(factors):.1f} to {max(factors):.1f}."
    return f"{table_text(head, rows)}\n\n{fitted}"


def _raised(some: Sequence[Record], factor: float) -> NDArray[np.float64]:
    """Squared errors ``[n]`` with the odds of the worlds multiplied."""
    return _errors(some, np.array([raised(raised(r["chance"], 1 / ODDS), factor) for r in some]))


def _errors(some: Sequence[Record], chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared errors ``[n]`` of other chances; a pair of searches scores 1, 1/2 or 0."""
    won, tied = (np.array([r[name] for r in some]) for name in ("won", "tied"))
    found: NDArray[np.float64] = chance**2 - 2 * chance * won + won - tied / 4
    return found


def _mean(errors: Sequence[NDArray[np.float64]]) -> float:
    """Mean over pools of the mean over cases."""
    return float(np.mean([some.mean() for some in errors]))


def _constant(some: Sequence[Record], share: float) -> float:
    """The Brier score of a forecast that always says ``share``."""
    squares = [r["brier"] - r["chance"] ** 2 + 2 * r["chance"] * r["won"] for r in some]
    return float(np.mean([share**2 - 2 * share * r["won"] + square for r, square in zip(some, squares)]))


def forecast_table(found: Sequence[Record]) -> str:
    """The plan's figures over what a search took: memory, and per rung seconds and prices."""
    rows = [
        [
            CASES[r["case"]],
            f"{r['budget']:g}",
            f"{r['ratios']['memory']:.2f}",
            _by_rung(r["ratios"]["price"]),
            _by_rung(r["ratios"]["seconds"]),
        ]
        for r in found
        if r.get("benchmark") == "plan"
    ]
    return table_text(["case", "budget, s", "memory", "seconds per candidate", "seconds per rung"], rows)


def _by_rung(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()) or "-"
