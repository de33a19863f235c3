"""Figures about a search: the ladder, best so far beside random search, agreement of the rungs."""

from __future__ import annotations

import math
from typing import Any

from hcdc.core.found import Found
from hcdc.core.told import stand_ins
from hcdc.reporting._figures import BLACK, COLOURS, GREY, literal, new_figure, plain

FEWEST = 6
"""Uniform full scores without which random search is not estimated."""


def found_figures(found: Found) -> list[tuple[str, str, Any]]:
    """Names, captions and figures."""
    drawn = [("ladder", "Candidates per rung, cheapest rung at the top.", draw_ladder(found))]
    if found.curve:
        drawn.append(("best-so-far", _curve_caption(found), draw_curve(found)))
    if any(rung.measured for rung in stand_ins(found)):
        caption = "Agreement of each stand-in with the rung it was measured against, with its 90 % interval."
        drawn.append(("agreement", caption, draw_rungs(found)))
    return drawn


def _curve_caption(found: Found) -> str:
    caption = "Best full score so far against total time, audits and overhead included."
    if found.score is not None:
        which = "a training with a fresh seed" if found.finalists else "the only full training"
        caption += f" The black dot is the winner's score from {which}."
    if count := len(random_curve(found)):
        caption += (
            " Dashed: what full trainings of random candidates alone should reach in the same seconds. They "
            f"were not run: this is a rough estimate from the {count} full trainings of the audit sample, "
            "which was drawn uniformly. It ends where the sample ends."
        )
    return caption


def random_curve(found: Found) -> list[tuple[float, float]]:
    """Seconds and expected best full score of 1, 2, ... random full trainings; empty without a sample.

    The audit sample was drawn uniformly, so the mean best of all its groups of k estimates the best of k
    random trainings without bias: sum_i y_(i) C(i - 1, k - 1) / C(n, k). Beyond its size nothing is known. A
    failed training counts as the worst.
    """
    scores = [score for _, score in found.uniform if score is not None]
    count = len(found.uniform)
    if len(scores) < FEWEST:
        return []
    ordered = [min(scores)] * (count - len(scores)) + sorted(scores)
    price = sum(seconds or 0.0 for seconds, _ in found.uniform) / count
    return [
        (k * price, sum(y * math.comb(i, k - 1) for i, y in enumerate(ordered)) / math.comb(count, k))
        for k in range(1, count + 1)
    ]


def draw_ladder(found: Found) -> Any:
    """Candidates per rung, cheapest at the top."""
    rungs = [rung for rung in found.rungs if rung.candidates]
    figure = new_figure(7.2, 0.7 + 0.42 * len(rungs))
    axes = figure.add_subplot()
    places = range(len(rungs))
    axes.barh(places, [rung.candidates for rung in rungs], height=0.6, color=COLOURS[0])
    for place, rung in zip(places, rungs):
        spent = f"{rung.seconds:,.{1 if rung.seconds < 10 else 0}f} s"
        axes.text(rung.candidates, place, f" {rung.candidates:,} in {spent}", va="center")
    axes.set_yticks(places, [literal(rung.name) for rung in rungs])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("candidates scored")
    plain(axes)
    return figure


def draw_curve(found: Found) -> Any:
    """Best full score so far against total time, beside random full trainings where they can be estimated."""
    figure = new_figure(7.2, 3.2)
    axes = figure.add_subplot()
    times, scores = zip(*found.curve)
    axes.step(
        [*times, found.seconds], [*scores, scores[-1]], where="post", color=COLOURS[0], linewidth=2,
        label="this search",
    )  # fmt: skip
    if rival := random_curve(found):
        at, expected = zip(*rival)
        axes.plot(at, expected, "--", color=COLOURS[1], marker="o", markersize=3, label="random (estimate)")
    if found.score is not None:
        low, high = found.interval
        if low is not None and high is not None:
            axes.plot([found.seconds] * 2, [low, high], color=BLACK, linewidth=1.5)
        axes.plot(found.seconds, found.score, "o", color=BLACK, label="score of the winner")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds, everything included")
    axes.set_ylabel("best full score so far")
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    plain(axes)
    return figure


def draw_rungs(found: Found) -> Any:
    """Agreement of each stand-in with the rung it was measured against, with its interval."""
    rungs = [rung for rung in stand_ins(found) if rung.measured]
    figure = new_figure(7.2, 0.8 + 0.42 * len(rungs))
    axes = figure.add_subplot()
    for place, rung in enumerate(rungs):
        low, high = rung.interval
        colour = COLOURS[0] if rung.pays else GREY
        if low is not None and high is not None:
            axes.plot([low, high], [place] * 2, color=colour, linewidth=2)
        axes.plot(rung.spearman, place, "o", color=colour)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    names = [rung.name if rung.trust is None else f"{rung.name} with {rung.trust.against}" for rung in rungs]
    axes.set_yticks(range(len(rungs)), [literal(name) for name in names])
    axes.set_ylim(len(rungs) - 0.5, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("rank correlation")
    plain(axes)
    return figure
