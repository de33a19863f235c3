"""A figure of counted costs: one panel per statement, plain numbers in."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hcdc.reporting._figures import COLOURS, literal, new_figure, plain, write_figure

MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_counts(panels: Sequence[Mapping[str, Any]]) -> Any:
    """Counts against a size, up to three panels in a row; both axes start at 0, so that linear is straight.

    Args:
        panels: Each has ``title``, ``across`` and ``up`` (axis labels with units), ``x`` (values across) and
            ``lines`` (values up by name).
    """
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(0.4 + 3.9 * columns, 0.3 + 3.2 * rows)
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, number)
        for k, (name, values) in enumerate(panel["lines"].items()):
            style = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
            axes.plot(panel["x"], values, label=literal(name), linewidth=2, markersize=5, **style)
        top = max(value for values in panel["lines"].values() for value in values)
        axes.set_xticks([0, *panel["x"]])
        axes.set_xlim(0, 1.05 * max(panel["x"]))
        axes.set_ylim(0, 1.3 * top)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_title(literal(panel["title"]), fontsize=10)
        axes.set_xlabel(literal(panel["across"]), fontsize=9)
        axes.set_ylabel(literal(panel["up"]), fontsize=9)
        axes.tick_params(labelsize=8)
        axes.legend(fontsize=8, loc="upper left", frameon=False)
        plain(axes)
    return figure


def counts_figure(panels: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Write `draw_counts` as a PNG or SVG file, by the suffix of ``path``; returns its path."""
    return write_figure(draw_counts(panels), path)
