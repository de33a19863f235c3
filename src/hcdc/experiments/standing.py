"""Where a ranking stands among others: first, tied, or beaten, and by what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hcdc.core.ranks import Interval, mean_interval

LEVEL = 0.9
Reached = tuple[float, Interval]
"""A mean and its interval; the interval of one seed is NaN."""
Other = tuple[float, Interval]
"""The mean of another ranking, and the interval of HCDC's paired gain over it; NaN for one seed."""


def place(mean: float, others: Mapping[str, Other]) -> str:
    """First, tied with the best other (the interval of the difference holds 0), or beaten by it.

    One run has no interval, so it is first or beaten.
    """
    if not others:
        return "alone"
    best = max(others, key=lambda name: others[name][0])
    other, gain = others[best]
    told = f"{best} ({other:.2f})"
    if mean == other or gain.low <= 0 <= gain.high:  # False without an interval
        return f"tied with {told}"
    ahead = mean > other if math.isnan(gain.low) else gain.low > 0
    return f"first, before {told}" if ahead else f"beaten by {told}"


def plain(words: str) -> str:
    """Words without emphasis."""
    return words.replace("*", "")


def standing(
    figures: Mapping[str, Sequence[float]], ours: str, words: Mapping[str, str] | None = None
) -> str:
    """Whether ``ours`` has the highest mean: first, tied (90 % intervals overlap), or beaten, and by what.

    One seed has no interval, so it is first or beaten. ``words`` say the names of others.
    """
    return stands(
        {name: mean_interval(list(values)) for name, values in figures.items() if values}, ours, words
    )


def stands(found: Mapping[str, Reached], ours: str, words: Mapping[str, str] | None = None) -> str:
    """`standing` from means and intervals."""
    others = [name for name in found if name != ours]
    if not others or ours not in found:
        return ""
    best = max(others, key=lambda name: found[name][0])
    told = (words or {}).get(best, best)
    (mean, own), (other, its) = found[ours], found[best]
    if mean == other or (own.low <= its.high and its.low <= own.high):  # False without an interval
        return f"tied with {told}"
    return "first" if mean > other else f"beaten by {told}"


def standings(
    corr: Mapping[str, Sequence[float]],
    perf: Mapping[str, Sequence[float]],
    ours: str,
    words: Mapping[str, str] | None = None,
) -> str:
    """`standing` by Corr. and by Perf."""
    by = {"Corr.": standing(corr, ours, words), "Perf.": standing(perf, ours, words)}
    return "; ".join(f"{name} {place}" for name, place in by.items() if place)
