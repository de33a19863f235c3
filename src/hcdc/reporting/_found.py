"""A search in words: what to use, how good it is, whether to believe it, and what it cost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError
from hcdc.core.found import Found, RungReport
from hcdc.core.progress import duration
from hcdc.reporting._table import number
from hcdc.reporting._words import config_text

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


def found_lines(found: Found) -> list[tuple[str, str]]:
    """The first box: configuration, score, verdict, cost, warnings."""
    best = "nothing: no candidate could be trained" if found.best is None else config_text(found.best)
    lines = [("use", best), ("score", score_text(found)), ("verdict", verdict(found)), ("cost", cost(found))]
    return [*lines, *(("warning", text) for text in [*found.warnings, *misjudged(found)])]


def figure(value: float | None) -> str:
    """A score with four digits."""
    return "-" if value is None else f"{value:.4g}"


def score_text(found: Found) -> str:
    """The expected full score, its interval and the scores on other parts."""
    if found.score is None:
        return "none: no fresh full training was made"
    low, high = found.interval
    between = "" if low is None else f" (90 % interval {figure(low)} to {figure(high)})"
    parts = "".join(f", {name} {figure(value)}" for name, value in found.parts.items())
    return f"{figure(found.score)}{between}, from a fresh full training{parts}"


def stand_ins(found: Found) -> list[RungReport]:
    """Paid rungs below the full training that were measured against the next one."""
    return [rung for rung in found.rungs if rung.name != "full" and rung.spearman is not None]


def verdict(found: Found) -> str:
    """Whether to believe the result, and why."""
    if found.best is None:
        return "do not use it"
    if found.score is None:
        return "do not rely on it yet: the winner was not trained in full with a fresh seed"
    full = found.rung("full").candidates
    proven = [rung for rung in stand_ins(found) if rung.pays]
    sure = f"use it: its score comes from a training that chose nothing, and it is the best of {full} in full"
    if full < 2:
        sure = "use it with care: it is the only candidate that was trained in full"
    if proven:
        trusted = all(rung.trust is not None and rung.trust.verdict == "trust" for rung in proven)
        rest = "those left out are probably worse" if trusted else "most of those left out should be worse"
        return f"{sure}; {_listed([_agrees(rung) for rung in proven])}, so {rest}"
    if stand_ins(found):
        return (
            f"{sure}; no stand-in was shown to rank like the next rung, so better ones may have been left out"
        )
    return sure


def _agrees(rung: RungReport) -> str:
    """How far a rung agrees with the next, in words."""
    low, high = rung.interval
    against = "the next rung" if rung.trust is None else f"'{rung.trust.against}'"
    between = "" if low is None else f", {number(low)} to {number(high)}"
    return f"'{rung.name}' agrees with {against} (rank correlation {number(rung.spearman)}{between})"


def misjudged(found: Found) -> list[str]:
    """Dimensions that a stand-in was shown to get wrong."""
    told = []
    for name, trust in found.trust.items():
        wrong = [f"'{d.name}'" for d in trust.dimensions if d.verdict == "keep open"]
        if wrong:
            told.append(f"'{name}' misjudges {_listed(wrong)} beside '{trust.against}': do not choose there")
    return told


def chain(found: Found) -> str:
    """What was measured against what, and what was not; empty without two stand-ins."""
    links = [f"'{name}' against '{trust.against}'" for name, trust in found.trust.items()]
    lower = [f"'{name}'" for name, trust in found.trust.items() if trust.against != "full"]
    if not lower:
        return ""
    return (
        f"each stand-in was measured against the next rung only ({', '.join(links)}). How far "
        f"{_listed(lower)} agrees with full trainings was not measured"
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


def cost(found: Found) -> str:
    """Time spent against what the same candidates would take in full."""
    spent = f"{duration(found.seconds)} for {found.full_trainings} full trainings"
    tried = max((rung.candidates for rung in found.rungs), default=0)
    price = next((rung.price for rung in found.rungs if rung.name == "full"), None)
    if not found.full_trainings:
        return f"{duration(found.seconds)} for {tried:,} candidates on the copy"
    if price is None or tried * price <= found.seconds:
        return f"{spent}; {tried:,} candidates were tried"
    whole = tried * price
    saved = f"{duration(whole)} in full, {whole / max(found.seconds, 1e-9):.1f} times as long"
    return f"{spent}; all {tried:,} candidates that were tried would take {saved}"


def rung_cells(rung: RungReport) -> list[str]:
    """A rung as a row; see `RUNG_HEADINGS`."""
    low, high = rung.interval
    agreement = "-" if rung.spearman is None else f"{number(rung.spearman)}"
    if rung.spearman is not None and low is not None:
        agreement += f" [{number(low)}, {number(high)}]"
    price = "-" if rung.price is None else f"{rung.price:.3g}"
    note = rung.note or {True: "pays", False: "not shown to pay", None: ""}[rung.pays]
    return [
        rung.name, f"{rung.candidates:,}", str(rung.failed or "-"), f"{rung.seconds:,.1f}", price, agreement,
        str(rung.audits or "-"), "-" if rung.trust is None else rung.trust.verdict, note,
    ]  # fmt: skip


RUNG_HEADINGS = (
    "rung", "candidates", "failed", "seconds", "seconds each", "agreement with the next rung", "audits",
    "ranking", "result",
)  # fmt: skip


def _listed(names: list[str]) -> str:
    return " and ".join(names)
