"""A search read from its file, and its rungs in words; see `hcdc.core.told` for its conclusions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError
from hcdc.core.found import Found, RungReport
from hcdc.core.told import listed, number

NEEDED = ("best", "score", "interval", "full_trainings", "rungs")
"""Keys that every search has."""


def is_found(value: Any) -> bool:
    """Whether a parsed JSON value is what a search found."""
    return (
        isinstance(value, dict) and all(key in value for key in NEEDED) and isinstance(value["rungs"], list)
    )


def read_found(path: str | os.PathLike[str]) -> Found | None:
    """What a search wrote to its JSON file; None if the file holds something else or cannot be read."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not is_found(value):
        return None
    try:
        return Found.from_json(value)
    except TypeError as error:
        raise InputError(
            f"'{os.fspath(path)}' was written by 'hcdc search' but is damaged: {error}"
        ) from error


def chain(found: Found) -> str:
    """What was measured against what, and what was not; empty without two stand-ins."""
    links = [f"'{name}' against '{trust.against}'" for name, trust in found.trust.items()]
    lower = [f"'{name}'" for name, trust in found.trust.items() if trust.against != "full"]
    if not lower:
        return ""
    return (
        f"each stand-in was measured against one more expensive rung only ({', '.join(links)}). How far "
        f"{listed(lower)} agrees with full trainings was not measured"
    )


def where_seconds_went(found: Found) -> str:
    """The seconds of the search in one sentence."""
    cost = found.cost
    parts = [f"{seconds:,.0f} s '{name}'" for name, seconds in cost.rungs.items() if seconds]
    parts.append(f"{max(cost.overhead, 0):,.0f} s the search itself")
    within = [f"audits took {cost.audits:,.0f} s"] if cost.audits else []
    within += [f"making copies and first trials {cost.preparing:,.0f} s"] if cost.preparing else []
    allowed = "" if cost.budget is None else f" of {cost.budget:,.0f} s allowed"
    inside = f"; of these, {' and '.join(within)}" if within else ""
    return f"{cost.total:,.0f} s{allowed}: {', '.join(parts)}{inside}"


def agreement(rung: RungReport) -> str:
    """How far a rung ranks like the next one."""
    if rung.spearman is None:
        return "-"
    if not rung.measured:
        return "unknown, too few audits"
    low, high = rung.interval
    interval = "" if low is None else f" [{number(low)}, {number(high)}]"
    against = "" if rung.trust is None else f" with '{rung.trust.against}'"
    return f"{number(rung.spearman)}{interval}{against}"


def unfinished(rung: RungReport) -> str:
    """How many candidates of a rung have no score: failed ones, and apart from them the pruned ones."""
    failed = rung.failed - rung.pruned
    some = [*([f"{failed:,}"] if failed else []), *([f"{rung.pruned:,} pruned"] if rung.pruned else [])]
    return ", ".join(some) or "-"


def result(rung: RungReport) -> str:
    """What the search did with a rung, and why; empty for the full training."""
    if rung.note:
        return f"dropped: {rung.note}"
    higher = "higher scores here went with higher scores on the next rung"
    return {True: f"kept: {higher}", False: f"kept on trial: not shown that {higher}", None: ""}[rung.pays]


def rung_cells(rung: RungReport) -> list[str]:
    """A rung as a row; see `RUNG_HEADINGS`."""
    price = "-" if rung.price is None else f"{rung.price:.3g}"
    ranking = "-" if rung.trust is None else rung.trust.verdict
    return [
        rung.name, f"{rung.candidates:,}", unfinished(rung), f"{rung.seconds:,.1f}", price,
        agreement(rung), str(rung.audits or "-"), ranking, result(rung),
    ]  # fmt: skip


RUNG_HEADINGS = (
    "rung", "candidates", "failed", "seconds", "seconds each", "agreement", "audits",
    "ranking", "result",
)  # fmt: skip
TWO_COLUMNS = (
    "Ranking judges the order of a rung by its audits alone; result says whether the search kept the rung, "
    "for which it counts promoted candidates too."
)
"""The difference between the last two of `RUNG_HEADINGS`."""
