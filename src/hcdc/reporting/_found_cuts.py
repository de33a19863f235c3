"""What is kept, and what is lost, if only the best by a stand-in go on: a table, one row per stand-in."""

from __future__ import annotations

from html import escape

from hcdc.core.found import Found
from hcdc.core.told import estimate_text
from hcdc.core.trusted import Cut, Trust

HEADINGS = ("stand-in", "kept", "truly best kept", "score lost", "the same in the better half", "lost there")
CAPTION = (
    "If only the best by a stand-in are kept: the share of the truly best that is kept (recall), and how far "
    "the best one kept lies below the best of a few random candidates (regret); then the same among the "
    "better half by the stand-in. The truth is the rung that is named; parentheses: 90 % interval."
)


def cut_table(found: Found) -> str:
    """HTML of the table; empty if no stand-in has audits enough."""
    rows = [_row(name, t) for name, t in found.trust.items() if t.at_k.recall.value is not None]
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in HEADINGS)
    return (
        f'<div class="wide"><table><caption><span>{CAPTION}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        if rows
        else ""
    )


def _row(name: str, trust: Trust) -> str:
    first, again = _cells(trust.at_k), _cells(trust.survivors_at_k)
    cells = "".join(f"<td>{escape(text)}</td>" for text in (f"{trust.k:.0%}", *first, *again))
    return f'<tr><th scope="row">{escape(f"{name} against {trust.against}")}</th>{cells}</tr>'


def _cells(cut: Cut) -> tuple[str, str]:
    groups = "" if cut.regret.value is None else f", {cut.kept} of {cut.of} kept"
    return estimate_text(cut.recall), f"{estimate_text(cut.regret)}{groups}"
