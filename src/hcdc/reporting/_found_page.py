"""The HTML page about a search: what to use, the ladder, best so far, agreement by rung."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from hcdc.core.found import Found
from hcdc.core.progress import duration
from hcdc.core.told import found_lines
from hcdc.reporting._found import RUNG_HEADINGS, TWO_COLUMNS, chain, rung_cells, where_seconds_went
from hcdc.reporting._found_copies import copy_figures, found_copies
from hcdc.reporting._found_cuts import cut_table
from hcdc.reporting._found_dimensions import dimension_tables
from hcdc.reporting._found_figures import found_figures
from hcdc.reporting._page import figure_html, html_page, write_page

BOX = {
    "use": "Use this configuration",
    "score": "Expected full score",
    "verdict": "Verdict",
    "cost": "Time spent and saved",
    "warning": "Warning",
}


def write_search_report(
    found: Found,
    out_html: str | os.PathLike[str],
    title: str = "What the search found",
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one self-contained page about a search, which loads nothing from the network.

    Args:
        found: What `hcdc.search` found.
        out_html: The file to write.
        title: Heading of the page.
        folder: Where else to look for the files of its copies, which the page shows.
    """
    data = found.spec.get("data")
    name = data.get("name") if isinstance(data, dict) else found.spec.get("objective")
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(str(name))}, {escape(_asked(found))}.</p>' if name else "",
        _box(found),
        "<h2>The ladder</h2>",
        _ladder(found),
        *(f"<p>{_sentence(text)}</p>" for text in (chain(found), where_seconds_went(found)) if text),
        *(figure_html(*drawn) for drawn in found_figures(found)),
        *(["<h2>What a cut keeps</h2>", cuts] if (cuts := cut_table(found)) else []),
        *_dimensions(found),
        *_copies(found, folder),
        "<h2>Trained again</h2>" if found.finalists else "",
        _finalists(found),
        "<h2>Where it was measured</h2>",
        _facts(found),
    ]
    return write_page(html_page(title, parts), out_html)


def _asked(found: Found) -> str:
    allowed = "" if found.budget is None else f" of {found.budget:,.0f} s allowed"
    return f"searched for {duration(found.seconds)}{allowed}"


def _box(found: Found) -> str:
    lines = []
    for label, text in found_lines(found):
        heading = f"<dt>{BOX[label]}</dt>"
        if label == "use":
            lines.append(f"{heading}<dd><pre>{escape(text)}</pre></dd>")
        elif label == "warning":
            lines.append(f'{heading}<dd class="warn">{_sentence(text)}</dd>')
        else:
            lines.append(f"{heading}<dd>{_sentence(text)}</dd>")
    return f'<section class="answer box"><dl>{"".join(lines)}</dl></section>'


def _sentence(text: str) -> str:
    return escape(f"{text[:1].upper()}{text[1:]}.")


def _ladder(found: Found) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in RUNG_HEADINGS)
    lines = []
    for rung in found.rungs:
        first, *cells = (escape(cell) for cell in rung_cells(rung))
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{first}</th>{body}</tr>')
    caption = (
        "Cheapest rung first. Agreement: rank correlation with the rung that is named, on the audit sample, "
        f"which was drawn beforehand; brackets: 90 % interval. {TWO_COLUMNS}"
    )
    return (
        f'<div class="wide"><table><caption><span>{caption}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _dimensions(found: Found) -> list[str]:
    """Agreement by dimension, if the search measured any."""
    tables = dimension_tables(found)
    told = (
        "Does a hyperparameter act on a stand-in as it acts on the rung it was measured against? tau is the "
        "correlation of its main effects on both, with its 90 % interval; importance is the share of that "
        "rung's variance that it explains alone. An unknown dimension counts as open: let a more expensive "
        "rung choose it."
    )
    return ["<h2>Agreement by dimension</h2>", f"<p>{told}</p>", *tables] if tables else []


def _copies(found: Found, folder: str | os.PathLike[str] | None) -> list[str]:
    """What the copies look like, where their files are at hand."""
    made = [
        figure_html(f"{place}-{name}", caption, drawn)
        for place, (rung, small) in enumerate(found_copies(found, folder), 1)
        for name, caption, drawn in copy_figures(rung, small)
    ]
    return ["<h2>What the copies look like</h2>", *made] if made else []


def _finalists(found: Found) -> str:
    if not found.finalists:
        return ""
    lines = []
    for some in found.finalists:
        scores = ", ".join(f"{score:.4g}" for score in some["scores"])
        shown = escape(", ".join(f"{key} {_short(value)}" for key, value in some["config"].items()))
        lines.append(f"<tr><td>{shown}</td><td>{scores}</td></tr>")
    head = "<tr><th>configuration</th><th>full scores (the first made it a finalist)</th></tr>"
    body = f"<thead>{head}</thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="wide"><table class="plain">{body}</table></div>'


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _facts(found: Found) -> str:
    lines = "".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(str(value))}</td></tr>'
        for key, value in found.environment.items()
        if value is not None
    )
    return f'<div class="wide"><table class="plain"><tbody>{lines}</tbody></table></div>'
