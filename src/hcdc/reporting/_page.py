"""The HTML page: conclusions, the table, figures, and where things were measured."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError
from hcdc.core.files import write_atomic
from hcdc.core.results import Evaluation
from hcdc.core.told import config_text
from hcdc.datasets import CondensedDataset
from hcdc.reporting._evaluations import belongs, short_names
from hcdc.reporting._figures import draw_all, to_bytes
from hcdc.reporting._images import PARTS, Before, draw_images, facts
from hcdc.reporting._table import COLUMNS, Row, summary_table
from hcdc.reporting._words import agreement_text, findings, payment, pick_text, shortened

CHOSEN = ("random", "kcenter", "herding")
"""Methods whose S_train is real images."""

STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --soft: #595959; --page: #ffffff; --line: #d9d9d9;
  --band: #f4f6f8; --mark: #fff4d6; --edge: #b58900; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8; --soft: #b3b3b3; --page: #16181b;
  --line: #3a3f45; --band: #1f2328; --mark: #3a2f10; --edge: #d9a514; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 74rem; background: var(--page);
  color: var(--text); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
ul { margin: .2rem 0; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .7rem; }
p.lead, figcaption, dd, caption { color: var(--soft); }
li { margin: .3rem 0; }
.warn { background: var(--mark); border-left: 4px solid var(--edge); padding: .6rem .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .35rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
thead th { white-space: normal; vertical-align: bottom; }
td:last-child { white-space: normal; min-width: 6rem; }
th:first-child, td:first-child, table.plain td, table.plain th { text-align: left; }
table.plain td { white-space: normal; overflow-wrap: anywhere; }
tr.copy th, tr.copy td { background: var(--band); font-weight: 650; }
tr.rival th { font-weight: 400; padding-left: 1.6rem; }
tr.full th, tr.full td { border-top: 2px solid var(--soft); }
tbody th small { display: block; color: var(--soft); font-weight: 400; max-width: 18rem;
  white-space: normal; }
figure { margin: 1.4rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figcaption { font-size: .88rem; margin-top: .4rem; max-width: 48rem; }
pre { background: var(--band); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9rem; }
dt { font-weight: 600; margin-top: .5rem; }
dd { margin: 0; }
.box { border: 1px solid var(--line); border-radius: 8px; padding: .4rem 1.1rem 1rem; margin: 1.2rem 0; }
.box dd { color: var(--text); }
.box pre { margin: .3rem 0; user-select: all; }
@media (max-width: 36rem) { table { font-size: .78rem; } th, td { padding: .3rem; }
  td:last-child { min-width: 0; } caption span { display: block; max-width: calc(100vw - 3rem); } }
@media print { body { padding: 0; max-width: none; } figure, tr, .box { break-inside: avoid; }
  h2, caption { break-after: avoid; } .wide { overflow: visible; } table { font-size: .72rem; }
  th, td { white-space: normal; padding: .25rem .35rem; } }
"""


def write_report(
    evaluations: Sequence[Evaluation],
    out_html: str | os.PathLike[str],
    title: str = "Rank agreement of condensed copies",
    copies: Sequence[CondensedDataset] = (),
    before: Sequence[Before | None] = (),
) -> Path:
    """Write one self-contained page, which loads nothing from the network.

    Args:
        evaluations: Evaluations from `hcdc.evaluate` or `hcdc.reporting.read_evaluation`.
        out_html: The file to write.
        title: Heading of the page.
        copies: The judged condensed data sets, in any order; the page shows their images, if any.
        before: What the images of each copy started from, or None; see `hcdc.reporting.draw_images`.
    """
    if not evaluations:
        raise InputError("a report needs at least one evaluation; make one with 'hcdc evaluate'")
    if before and len(before) != len(copies):
        raise InputError(
            f"before has {len(before)} entries for {len(copies)} copies; give one per copy, None if there is "
            "nothing to show"
        )
    for small in copies:
        _check_judged(small, evaluations)
    return write_page(_page(evaluations, title, _pictures(evaluations, copies, before)), out_html)


def write_page(page: str, out_html: str | os.PathLike[str]) -> Path:
    """Write a page, or say why it cannot be written."""
    try:
        write_atomic(out_html, page)
    except OSError as error:
        raise InputError(f"'{os.fspath(out_html)}' cannot be written: {error.strerror or error}") from error
    return Path(out_html)


def html_page(title: str, parts: Sequence[str]) -> str:
    """A whole page from its parts; empty ones are left out."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _check_judged(small: CondensedDataset, evaluations: Sequence[Evaluation]) -> None:
    """Refuse a copy that none of the evaluations judges."""
    meta = small.meta
    if not any(belongs(evaluation, meta) for evaluation in evaluations):
        raise InputError(
            f"copies: none of the evaluations judges the copy of '{meta.get('data', {}).get('name')}' by "
            f"'{meta.get('method')}' (seed {meta.get('seed')}); pass its evaluation too"
        )


def _pictures(
    evaluations: Sequence[Evaluation], copies: Sequence[CondensedDataset], before: Sequence[Before | None]
) -> list[str]:
    """Figures of each copy's images, if it has any (see `shown_parts`)."""
    names = short_names(evaluations)
    made = []
    for k, small in enumerate(copies):
        if small.train.pictures() is None:
            continue
        name = "; ".join(n for n, evaluation in zip(names, evaluations) if belongs(evaluation, small.meta))
        for part in shown_parts(small):
            own = part == ("train" if small.val is None else "val")
            start = before[k] if before and (own or isinstance(before[k], CondensedDataset)) else None
            told = "; ".join(["with the normalisation undone", *facts(small, start, part)])
            caption = f"{name}: images of {PARTS[part]}, one row per class, {told}."
            made.append(figure_html(f"images-{k + 1}-{part}", caption, draw_images(small, start, part)))
    return made


def shown_parts(small: CondensedDataset) -> list[str]:
    """S_train if it was learned, and S_val, unless it is the real set or random beside a learned S_train."""
    learned = small.meta.get("train_method") not in CHOSEN
    if small.val is None:
        return ["train"]
    if not learned:
        return ["val"]
    return ["train"] if small.meta.get("val_method") == "random" else ["train", "val"]


def _page(evaluations: Sequence[Evaluation], title: str, pictures: Sequence[str]) -> str:
    names = short_names(evaluations)
    datasets = ", ".join(dict.fromkeys(e.dataset for e in evaluations))
    short = [name for name, e in zip(names, evaluations) if shortened(e)]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">Data: {escape(datasets)}. Copies judged: {escape("; ".join(names))}.</p>',
        f"<p class=\"warn\">Shortened runs (preset 'demo'): {escape('; '.join(short))}. "
        "They do not show the methods at their best.</p>"
        if short
        else "",
        "<h2>Result</h2>",
        "".join(_answer(name, e) for name, e in zip(names, evaluations)),
        "<h2>Other findings</h2>",
        "".join(_found(name, texts) for name, texts in findings(evaluations, answers=False)),
        "<h2>All numbers</h2>",
        _table(summary_table(evaluations)),
        "<h2>Figures</h2>",
        *(figure_html(name, caption, figure) for name, caption, figure in draw_all(evaluations)),
        "<h2>Images of the copies</h2>" if pictures else "",
        *pictures,
        "<h2>What was judged</h2>",
        _facts(names, [vars(e) for e in evaluations], _SUBJECT),
        "<h2>Where it was measured</h2>",
        _facts(names, [e.environment for e in evaluations], None),
        "<h2>What the columns mean</h2>",
        "<dl>"
        + "".join(f"<dt>{escape(c.heading)}</dt><dd>{escape(c.meaning)}</dd>" for c in COLUMNS)
        + "</dl>",
    ]
    return html_page(title, parts)


_SUBJECT = {
    "dataset": "data",
    "method": "method",
    "preset": "preset",
    "train_method": "S_train made by",
    "train_size": "S_train size",
    "val_method": "S_val made by",
    "val_size": "S_val size",
    "metric": "candidates ranked by",
    "truth_source": "truth from",
    "candidates": "candidates judged",
    "dropped": "candidates left out (used to make the copy)",
    "seed": "seed of the copy",
    "judge_seed": "seed of the judge",
    "space": "search space",
}


def _answer(name: str, e: Evaluation) -> str:
    """The configuration, how good and how certain it is, and whether the copy pays off."""
    pick = e.pick
    config = "" if pick is None else f"<pre>{escape(config_text(pick.config))}</pre>"
    pays = "" if e.spearman is None else payment(e)
    texts = {"How good": pick_text(e), "How certain": agreement_text(e), "Does it pay": pays}
    lines = "".join(f"<dt>{label}</dt><dd>{_sentence(text)}</dd>" for label, text in texts.items() if text)
    return f'<section class="answer"><h3>{escape(name)}</h3>{config}<dl>{lines}</dl></section>'


def _sentence(text: str) -> str:
    return escape(f"{text[:1].upper()}{text[1:]}.")


def _found(name: str, texts: Sequence[str]) -> str:
    lines = "".join(f"<li>{_sentence(text)}</li>" for text in texts)
    return (f"<h3>{escape(name)}</h3>" if name else "") + f"<ul>{lines}</ul>"


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col" title="{escape(c.meaning)}">{escape(c.heading)}</th>' for c in COLUMNS)
    lines = []
    for row in rows:
        first, *cells = (escape(c.cell(row)) for c in COLUMNS)
        told = f"<small>{escape(row.note)}</small>" if row.note else ""
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr class="{row.role}"><th scope="row">{first}{told}</th>{body}</tr>')
    caption = (
        "Copies (shaded) with their rivals, and the full data. Brackets: 90 % interval. "
        "Seconds and break-even come from one run and depend on other load on the machine."
    )
    return (
        f'<div class="wide"><table><caption><span>{caption}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def figure_html(name: str, caption: str, figure: Any) -> str:
    """A figure as an embedded image with its caption."""
    picture = base64.b64encode(to_bytes(figure, "svg")).decode()
    return (
        f'<figure id="{escape(name)}"><img alt="{escape(caption)}" src="data:image/svg+xml;base64,{picture}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _facts(names: Sequence[str], facts: Sequence[Mapping[str, Any]], labels: Mapping[str, str] | None) -> str:
    """A table with one column per copy; ``labels`` select and name the rows, None shows every key."""
    keys = labels or {key: key for fact in facts for key in fact}
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = []
    for key, label in keys.items():
        cells = [_text(fact.get(key)) for fact in facts]
        if any(cells):
            body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            lines.append(f'<tr><th scope="row">{escape(label)}</th>{body}</tr>')
    return (
        f'<div class="wide"><table class="plain"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    return "" if value is None else str(value)
