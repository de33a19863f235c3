"""Agreement by dimension as tables, one per stand-in."""

from __future__ import annotations

from html import escape

from hcdc.core.found import Found
from hcdc.core.told import number
from hcdc.core.trusted import DimensionTrust, Trust

HEADINGS = ("dimension", "tau", "importance", "verdict")
ENOUGH = 12
"""Audits below which every dimension is unknown, so that no table is shown."""


def dimension_tables(found: Found) -> list[str]:
    """HTML per stand-in that was measured: a table, most important dimension first, or why there is none."""
    return [_told(name, trust) for name, trust in found.trust.items() if trust.dimensions]


def _told(name: str, trust: Trust) -> str:
    about = f"'{name}' against '{trust.against}', {trust.probes} audits"
    if trust.probes < ENOUGH and all(d.verdict == "unknown" for d in trust.dimensions):
        return f"<p>{escape(about)}: too few to tell; {ENOUGH} may tell something, 60 tell much.</p>"
    head = "".join(f'<th scope="col">{heading}</th>' for heading in HEADINGS)
    ordered = sorted(trust.dimensions, key=lambda d: -d.importance)
    body = "".join(_row(d) for d in ordered)
    caption = f"<caption><span>{escape(about)}</span></caption>"
    rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table>{caption}{rows}</table></div>'


def _row(d: DimensionTrust) -> str:
    low, high = d.interval
    tau = number(d.tau) if low is None else f"{number(d.tau)} [{number(low)}, {number(high)}]"
    cells = "".join(f"<td>{escape(text)}</td>" for text in (tau, f"{100 * d.importance:.0f} %", d.verdict))
    return f'<tr><th scope="row">{escape(d.name)}</th>{cells}</tr>'
