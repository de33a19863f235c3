"""Figures from evaluations. Matplotlib is imported on first use, and no window is opened."""

from __future__ import annotations

import io
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hcdc.core.errors import InputError, require, unknown_name
from hcdc.core.files import write_atomic
from hcdc.core.results import Evaluation, Scores
from hcdc.core.seeds import numpy_stream
from hcdc.core.told import number
from hcdc.reporting._evaluations import comparable, is_fraction, rivals_once, short_names
from hcdc.reporting._table import PAYS_NOT, seconds

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY, BLACK = "#6b6b6b", "#1a1a1a"
SHADES = "viridis"


def new_figure(width: float, height: float, layout: str = "constrained") -> Any:
    """A figure without a window; sizes are in inches."""
    matplotlib = require("matplotlib", "plot")
    figure = require("matplotlib.figure", "plot").Figure(figsize=(width, height), layout=layout)
    require("matplotlib.backends.backend_agg", "plot").FigureCanvasAgg(figure)
    matplotlib.rcParams["svg.hashsalt"] = "hcdc"
    return figure


def plain(axes: Any) -> None:
    """Leave out the frame, draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def literal(text: str) -> str:
    """Text that matplotlib does not parse as a formula."""
    return text.replace("$", r"\$")


def _agreement(spearman: float | None, interval: Scores) -> str:
    low, high = interval[:2]
    text = number(spearman)
    return text if low is None else f"{text} [{number(low)}, {number(high)}]"


def _title(e: Evaluation) -> str:
    if e.spearman is None:
        return "rank agreement not defined"
    return f"Spearman {_agreement(e.spearman, e.interval)}"


def _level(e: Evaluation) -> str:
    return f"{100 * e.level:.0f} %"


def _scores(values: Scores) -> Any:
    return np.asarray([math.nan if value is None else value for value in values], np.float64)


def _axis_words(e: Evaluation) -> tuple[str, str]:
    """Axis labels for the truth and the proxy, with units."""
    full = f"validation {'accuracy, full data (%)' if is_fraction(e) else 'score, full data'}"
    if e.truth_source:
        full += f"\n{literal(e.truth_source)}"
    if e.metric == "loss":
        return full, "minus validation loss on the copy"
    return full, "accuracy on the copy (%)"


def draw_scatter(evaluations: Sequence[Evaluation]) -> Any:
    """Truth against proxy, one panel per copy; marks the copy's pick and the truly best candidate."""
    names = short_names(evaluations)
    columns = min(3, len(evaluations))
    lines = math.ceil(len(evaluations) / columns)
    figure = new_figure(1.2 + 3.3 * columns, 0.8 + 3.3 * lines)
    for k, e in enumerate(evaluations):
        axes = figure.add_subplot(lines, columns, k + 1)
        truth, proxy = _scores(e.truth) * (100 if is_fraction(e) else 1), _scores(e.proxy)
        if e.metric != "loss":
            proxy = 100 * proxy
        axes.scatter(truth, proxy, s=18, color=COLOURS[k % len(COLOURS)], alpha=0.65, linewidths=0)
        if np.isfinite(proxy).all():
            best, pick = int(truth.argmax()), int(proxy.argmax())
            axes.scatter(
                truth[best], proxy[best], s=70, facecolors="none", edgecolors=BLACK, label="truly best"
            )
            axes.scatter(truth[pick], proxy[pick], s=60, marker="x", color=BLACK, label="the copy's pick")
        axes.set_title(f"{literal(names[k])}\n{_title(e)}", fontsize=10)
        across, up = _axis_words(e)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.tick_params(labelsize=8)
        plain(axes)
        if k == 0:
            figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle(f"Truth against proxy (brackets: {_level(evaluations[0])} interval)", fontsize=11)
    return figure


@dataclass(frozen=True)
class Contender:
    """A copy or a rival in a figure."""

    name: str
    proxy: Any
    spearman: float | None
    interval: Scores
    colour: str

    @property
    def weight(self) -> str:
        return "normal" if self.colour == GREY else "bold"


def _contenders(evaluations: Sequence[Evaluation]) -> list[Contender]:
    """The copies, then their rivals; rivals of the same name say which copy they belong to."""
    names, lists = short_names(evaluations), rivals_once(evaluations)
    copies = [
        Contender(name, _scores(e.proxy), e.spearman, e.interval, COLOURS[k % len(COLOURS)])
        for k, (name, e) in enumerate(zip(names, evaluations))
    ]
    rivals = []
    several = Counter(rival.name for own in lists for rival in own)
    for name, own in zip(names, lists):
        for rival in own:
            label = f"{rival.name} (beside {name})" if several[rival.name] > 1 else rival.name
            proxy = _scores(rival.proxy or [None] * len(evaluations[0].truth))
            rivals.append(Contender(label, proxy, rival.spearman, rival.interval, GREY))
    return copies + rivals


def _strips(axes: Any, rows: Sequence[Contender], strips: Any, told: Sequence[str]) -> Any:
    """Draw true ranks ``strips`` ``[rows, candidates]``, with names on the left and ``told`` on the right."""
    image = axes.imshow(
        strips, aspect="auto", cmap=f"{SHADES}_r", vmin=1, vmax=strips.shape[1], interpolation="nearest"
    )
    axes.set_yticks(range(len(rows)), [literal(row.name) for row in rows], fontsize=9)
    for line, (label, row) in enumerate(zip(axes.get_yticklabels(), rows)):
        label.set_fontweight(row.weight)
        axes.text(1.01, line, told[line], transform=axes.get_yaxis_transform(), va="center", fontsize=9)
    axes.set_yticks(np.arange(len(rows) - 1) + 0.5, minor=True)
    axes.grid(which="minor", axis="y", color="white", linewidth=3)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    return image


def _worst_first(scores: Any) -> Any:
    """Positions of candidates by rising score; ties are in a fixed random order.

    The original order may be informative, and a method must not get credit for ties.
    """
    return np.lexsort((numpy_stream(0, "ties").random(len(scores)), scores))


def draw_rank_colours(evaluations: Sequence[Evaluation], of: str = "") -> Any:
    """The paper's rank figure: each row orders the candidates from worst to best and colours the true ranks.

    Rows are the full data, then copies and rivals by Spearman's correlation. Methods without a ranking are
    named below.

    Args:
        evaluations: Evaluations with the same candidates and truth.
        of: First line of the title.
    """
    truth = _scores(evaluations[0].truth)
    rank = stats.rankdata(-truth)  # 1 is best
    ranked: list[Contender] = []
    without: list[Contender] = []
    for one in _contenders(evaluations):
        defined = one.spearman is not None and bool(np.isfinite(one.proxy).all())
        (ranked if defined else without).append(one)
    ranked.sort(key=lambda one: -(one.spearman or 0.0))
    rows = [Contender("full data", truth, None, [], BLACK), *ranked]
    figure = new_figure(9.6, 1.7 + 0.36 * len(rows))
    axes = figure.add_subplot(1, 1, 1)
    strips = np.stack([rank[_worst_first(row.proxy)] for row in rows])
    told = [_agreement(row.spearman, row.interval) for row in ranked]
    some = any(row.interval[0] is not None for row in ranked)
    image = _strips(axes, rows, strips, ["1 (by definition)", *told])
    for label, row in zip(axes.get_yticklabels(), rows):
        label.set_color(BLACK if row.colour == GREY else row.colour)
    axes.text(
        1.01,
        1.0,
        "Spearman" + (f" [{_level(evaluations[0])} interval]" if some else "") + "\n",
        transform=axes.transAxes,
        va="bottom",
        fontsize=8,
        color=GREY,
        linespacing=0.4,
    )
    axes.set_xticks([0, len(truth) - 1], ["ranked worst", "ranked best"], fontsize=9)
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    if without:
        names = ", ".join(one.name for one in without)
        axes.set_xlabel(literal(f"without a ranking: {names}"), fontsize=8, color=GREY)
    title = f"{len(truth)} candidates in each method's order, from worst to best"
    axes.set_title(literal(f"{of}\n{title}" if of else title), fontsize=11)
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", fraction=0.06, pad=0.04, aspect=50)
    bar.set_ticks([1, len(truth)], labels=["1 (best)", f"{len(truth)} (worst)"])
    bar.set_label("true rank", fontsize=9, labelpad=-8)
    bar.ax.tick_params(labelsize=8, length=0)
    bar.ax.invert_xaxis()
    bar.outline.set_visible(False)
    return figure


def draw_agreement(evaluations: Sequence[Evaluation]) -> Any:
    """Rank agreement with intervals: copies in colour, rivals in grey, the best on top.

    Evaluations must have the same candidates and truth.
    """
    points = sorted(
        _contenders(evaluations), key=lambda point: -2 if point.spearman is None else point.spearman
    )
    figure = new_figure(8.0, 1.3 + 0.36 * len(points))
    axes = figure.add_subplot(1, 1, 1)
    lowest = 0.0
    for line, point in enumerate(points):
        if point.spearman is None:
            axes.text(
                0.01, line, "not defined", transform=axes.get_yaxis_transform(), va="center", fontsize=9
            )
            continue
        low, high = point.interval[:2]
        if low is not None:
            axes.plot([low, high], [line, line], color=point.colour, linewidth=2.2, solid_capstyle="round")
        axes.plot(point.spearman, line, "o", color=point.colour, markersize=7)
        place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        axes.annotate(number(point.spearman), (point.spearman, line), **place)
        lowest = min(lowest, point.spearman if low is None else low)
    axes.set_yticks(range(len(points)), [literal(point.name) for point in points], fontsize=9)
    for label, point in zip(axes.get_yticklabels(), points):
        label.set_fontweight(point.weight)
    axes.set_ylim(-0.6, len(points) - 0.3)
    axes.set_xlim(math.floor(lowest * 10) / 10, 1.02)
    axes.set_xlabel(
        f"Spearman's rank correlation with the full data, {_level(evaluations[0])} interval", fontsize=9
    )
    axes.set_title("Rank agreement: copies (bold) and their rivals", fontsize=11)
    plain(axes)
    return figure


def draw_cost(evaluations: Sequence[Evaluation]) -> Any:
    """Total seconds against the number of trials, with break-even points.

    Evaluations must have the same candidates and truth.
    """
    crossings = [e.break_even_trials for e in evaluations if e.break_even_trials]
    last = 10 ** math.ceil(math.log10(2 * max([*crossings, len(evaluations[0].truth)])))
    trials = np.geomspace(1, last, 400)
    figure = new_figure(8.0, 4.4)
    axes = figure.add_subplot(1, 1, 1)
    full = evaluations[0].full_cost
    others = {e.break_even_against: e.rival(e.break_even_against or "") for e in evaluations}
    beside = [(full, "-"), *((rival.cost, "--") for rival in others.values() if rival is not None)]
    for cost, style in beside:
        label = f"{cost.words} ({seconds(cost.each)} s per trial)"
        axes.plot(trials, (cost.once or 0.0) + trials * (cost.each or 0.0), style, color=BLACK, label=label)
    for k, (name, e) in enumerate(zip(short_names(evaluations), evaluations)):
        once, each = e.condense_seconds or 0.0, e.proxy_seconds_per_candidate or 0.0
        crossing = e.break_even_trials
        colour = COLOURS[k % len(COLOURS)]
        spent = f"{seconds(e.condense_seconds)} s + {seconds(each)} s per trial"
        label = literal(f"{name} ({spent}): {_cost_word(e)}")
        axes.plot(trials, once + trials * each, color=colour, linewidth=2, label=label)
        if crossing and crossing > 1:
            place = once + crossing * each
            axes.plot(crossing, place, "o", color=colour, markersize=9, markeredgecolor="white")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xlabel("number of trials", fontsize=9)
    axes.set_ylabel("total time (s)", fontsize=9)
    axes.set_title("Search time, including condensing (dots: break-even)", fontsize=11)
    axes.tick_params(labelsize=8)
    plain(axes)
    axes.legend(fontsize=8, loc="upper left", framealpha=0.9)
    return figure


def _cost_word(e: Evaluation) -> str:
    """Whether a copy pays off, in a few words."""
    if e.break_even_trials:
        start = "the first trial" if e.break_even_trials == 1 else f"{e.break_even_trials:,} trials"
        return f"faster from {start} on"
    copy, full = e.proxy_seconds_per_candidate, e.full_seconds_per_candidate
    never = e.break_even_against or (copy is not None and full is not None and copy >= full)
    return PAYS_NOT if never else "no break-even"


Figures = dict[str, tuple[Callable[[Sequence[Evaluation]], Any], str]]

FIGURES: Figures = {
    "agreement": (draw_agreement, "Rank agreement of copies and rivals."),
    "ranks": (
        draw_rank_colours,
        "Each row shows all candidates in one method's order, from worst to best (ties in random order). The "
        "colour is the true rank; lighter is better. A perfect method repeats the first row.",
    ),
    "scatter": (
        draw_scatter,
        "Each dot is a candidate: its validation score on the full data, and its score on the copy.",
    ),
    "cost": (
        draw_cost,
        "Total seconds of a search on each copy (including condensing) and on the full data; dots mark the "
        "break-even.",
    ),
}
"""Each figure's function and caption, by name."""


def draw_all(evaluations: Sequence[Evaluation]) -> list[tuple[str, str, Any]]:
    """Every figure as ``(name, caption, figure)``, for each group with the same candidates and truth.

    The cost figure is left out if seconds are missing, e.g. for full-data results from another machine.
    """
    groups = comparable(evaluations)
    figures = []
    for place, group in enumerate(groups, 1):
        chosen = [evaluations[k] for k in group]
        timed = all(e.cost.each is not None and e.full_cost.each is not None for e in chosen)
        for name, (draw, caption) in FIGURES.items():
            if timed or name != "cost":
                if len(groups) > 1:
                    name = f"{name}-{place}"
                    caption = f"{chosen[0].dataset} ({', '.join(short_names(chosen))}). {caption}"
                figures.append((name, caption, draw(chosen)))
    return figures


def to_bytes(figure: Any, kind: str) -> bytes:
    """A figure as ``"png"`` or ``"svg"``, without a date: equal evaluations give equal bytes."""
    stream, undated = io.BytesIO(), {"Date" if kind == "svg" else "Software": None}
    figure.savefig(stream, format=kind, dpi=150, facecolor="white", metadata=undated)
    return stream.getvalue()


def write_figure(figure: Any, path: str | os.PathLike[str]) -> Path:
    """Write one figure as PNG or SVG, by the suffix of ``path``."""
    path = Path(path)
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise unknown_name("file type of a figure", kind, ("png", "svg"))
    try:
        write_atomic(path, to_bytes(figure, kind))
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror or error}") from error
    return path


def rank_colours(evaluation: Evaluation, path: str | os.PathLike[str], of: str = "") -> Path:
    """Write `draw_rank_colours` of one evaluation as a PNG or SVG file; returns its path."""
    return write_figure(draw_rank_colours([evaluation], of), path)


def write_figures(evaluations: Sequence[Evaluation], folder: str | os.PathLike[str]) -> list[Path]:
    """Write every figure as a PNG file into ``folder``; returns the paths."""
    return [write_figure(figure, Path(folder) / f"{name}.png") for name, _, figure in draw_all(evaluations)]
