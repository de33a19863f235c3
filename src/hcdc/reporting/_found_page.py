"""The HTML page about a search: what to use, the ladder, best so far, agreement by rung."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from hcdc.core.found import Found
from hcdc.reporting._figures import BLACK, COLOURS, GREY, literal, new_figure, plain
from hcdc.reporting._found import RUNG_HEADINGS, found_lines, rung_cells, stand_ins
from hcdc.reporting._page import figure_html, html_page, write_page

BOX = {
    "use": "Use this configuration",
    "score": "Expected full score",
    "verdict": "Verdict",
    "cost": "Time spent and saved",
    "warning": "Warning",
}


def write_search_report(
    found: Found, out_html: str | os.PathLike[str], title: str = "What the search found"
) -> Path:
    """Write one self-contained page about a search, which loads nothing from the network."""
    data = found.spec.get("data")
    name = data.get("name") if isinstance(data, dict) else found.spec.get("objective")
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(str(name))}, {escape(_asked(found))}.</p>' if name else "",
        _box(found),
        "<h2>The ladder</h2>",
        _ladder(found),
        *(figure_html(name, caption, drawn) for name, caption, drawn in _figures(found)),
        "<h2>Trained again</h2>" if found.finalists else "",
        _finalists(found),
        "<h2>Where it was measured</h2>",
        _facts(found),
    ]
    return write_page(html_page(title, parts), out_html)


def _asked(found: Found) -> str:
    spent = f"{found.seconds:,.0f} s"
    return f"searched for {spent}" + ("" if found.budget is None else f" of {found.budget:,.0f} s allowed")


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
        "Cheapest rung first. Agreement: rank correlation with the next rung on the audit sample, which was "
        "drawn beforehand; brackets: 90 % interval."
    )
    return (
        f'<div class="wide"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _figures(found: Found) -> list[tuple[str, str, Any]]:
    drawn = [("ladder", "Candidates per rung, cheapest rung at the top.", _draw_ladder(found))]
    if found.curve:
        caption = "Best full score so far against total time, audits and overhead included. "
        caption += "The dot is the winner's score from a fresh training."
        drawn.append(("best-so-far", caption, _draw_curve(found)))
    if stand_ins(found):
        caption = "Agreement of each stand-in with the next rung, with its 90 % interval."
        drawn.append(("agreement", caption, _draw_agreement(found)))
    return drawn


def _draw_ladder(found: Found) -> Any:
    rungs = [rung for rung in found.rungs if rung.candidates]
    figure = new_figure(7.2, 0.7 + 0.42 * len(rungs))
    axes = figure.add_subplot()
    places = range(len(rungs))
    axes.barh(places, [rung.candidates for rung in rungs], height=0.6, color=COLOURS[0])
    for place, rung in zip(places, rungs):
        axes.text(rung.candidates, place, f" {rung.candidates:,} in {rung.seconds:,.0f} s", va="center")
    axes.set_yticks(places, [literal(rung.name) for rung in rungs])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.set_xlabel("candidates scored")
    plain(axes)
    return figure


def _draw_curve(found: Found) -> Any:
    figure = new_figure(7.2, 3.0)
    axes = figure.add_subplot()
    times, scores = zip(*found.curve)
    axes.step([*times, found.seconds], [*scores, scores[-1]], where="post", color=COLOURS[0], linewidth=2)
    if found.score is not None:
        low, high = found.interval
        if low is not None and high is not None:
            axes.plot([found.seconds] * 2, [low, high], color=BLACK, linewidth=1.5)
        axes.plot(found.seconds, found.score, "o", color=BLACK)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds, everything included")
    axes.set_ylabel("best full score so far")
    plain(axes)
    return figure


def _draw_agreement(found: Found) -> Any:
    rungs = stand_ins(found)
    figure = new_figure(7.2, 0.8 + 0.42 * len(rungs))
    axes = figure.add_subplot()
    for place, rung in enumerate(rungs):
        low, high = rung.interval
        colour = COLOURS[0] if rung.pays else GREY
        if low is not None and high is not None:
            axes.plot([low, high], [place] * 2, color=colour, linewidth=2)
        axes.plot(rung.spearman, place, "o", color=colour)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.set_yticks(range(len(rungs)), [literal(rung.name) for rung in rungs])
    axes.set_ylim(len(rungs) - 0.5, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("rank correlation with the next rung")
    plain(axes)
    return figure


def _finalists(found: Found) -> str:
    if not found.finalists:
        return ""
    lines = []
    for some in found.finalists:
        scores = ", ".join(f"{score:.4g}" for score in some["scores"])
        shown = escape(", ".join(f"{key} {_short(value)}" for key, value in some["config"].items()))
        lines.append(f"<tr><td>{shown}</td><td>{scores}</td></tr>")
    head = "<tr><th>configuration</th><th>full scores, the first of which chose it</th></tr>"
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
