"""Dimensions in words, in one short line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hcdc.spaces._dimension import Dimension

WIDTH = 80


def words(dimensions: Iterable[Dimension]) -> str:
    """Dimensions in one line of about 80 characters, with ``"and 3 more"`` if they do not fit.

    Four or more with equal bounds are grouped: ``"50 penalties from 1e-4 to 10 (log)"``.
    """
    groups: dict[Any, list[Dimension]] = {}
    for d in dimensions:
        alike = d.name if d.distribution == "choice" else (d.distribution, d.low, d.high, d.read_by)
        groups.setdefault(alike, []).append(d)
    parts = [
        part for alike in groups.values() for part in ([_many(alike)] if len(alike) > 3 else map(_one, alike))
    ]
    line, left = "", len(parts)
    for part in parts:
        if line and len(line) + len(part) > (WIDTH if left == 1 else WIDTH - 15):
            return f"{line}; and {left} more"
        line, left = f"{line}; {part}" if line else part, left - 1
    return line


def _one(d: Dimension) -> str:
    if d.distribution != "choice":
        return f"{d.name} {_bounds(d)}"
    shown = [str(choice) for choice in d.choices]
    every = " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return f"{d.name}: {every if len(every) <= 40 else f'{len(shown):,} choices'}"


def _many(alike: Sequence[Dimension]) -> str:
    """``"50 penalties from ... to ..."``, named by the common prefix before the first ``_``."""
    stems = {d.name.partition("_")[0] for d in alike}
    stem = stems.pop() if len(stems) == 1 else "hyperparameter"
    plural = f"{stem[:-1]}ies" if stem.endswith("y") else f"{stem}s"
    return f"{len(alike)} {plural} {_bounds(alike[0])}"


def _bounds(d: Dimension) -> str:
    log = " (log)" if d.distribution == "log-uniform" else ""
    return f"from {_number(d.low)} to {_number(d.high)}{log}"


def _number(value: float) -> str:
    """A number as people write it: 1e-4, not 0.0001."""
    if not 0 < abs(value) < 1e-3:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
