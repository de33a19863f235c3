"""The paper's table of cells ranked on copies of CIFAR (tab:images), from records of ``nas201``.

Corr. and Perf. of each copy are means over draws of 100 judging cells. The paper's 50 images per class are
training and validation images together; copies with 50 training images per class stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hcdc.core.ranks import Interval, calibration
from hcdc.experiments.markdown import table_text
from hcdc.experiments.nas201_draws import Indices, Resampled, draws, pooled
from hcdc.experiments.nas201_rankings import (
    ALL,
    METRICS,
    NAMES,
    SHARED,
    WORDS,
    Array,
    Ranking,
    Record,
    kind_of,
    sized,
)
from hcdc.experiments.nas201_tables import Judged
from hcdc.experiments.reproductions.nas201 import OPTIMAL, PAPER, ROWS
from hcdc.experiments.standing import LEVEL, Other, place, plain, standing

SETTINGS = "50 per class in all", "50 for training"
KINDS = {"cifar10": ("-total", "-eight"), "cifar100": ("-total", "-steps")}
"""Records with 50 images per class in all, and with 50 for training, by benchmark."""


def images_table(found: Sequence[Record]) -> str:
    """One row per copy: ours in all settings that were run, and the paper's."""
    lines = []
    for benchmark, kinds in KINDS.items():
        cells = [r for r in found if r.get("protocol") == "nas201" and r["dataset"] == benchmark]
        every = [
            Judged(own, some=True) if own else None
            for own in ([r for r in cells if kind_of(r) == kind] for kind in kinds)
        ]
        places = _places(every)
        for method, paper in zip(ROWS, (text.split("|") for text in PAPER[benchmark])):
            ours = [
                _reached(judged, method, recipe)
                for judged, recipe in zip([*every, every[1]], ["calibrated", "calibrated", "published"])
            ]
            if any(corr for corr, *_ in ours):
                place = places if method == "hcdc" else ""
                shown = (text for three in ours for text in three)
                lines.append([benchmark, _words(method), *shown, *paper, place])
        if any(every):
            best = [text for judged in every for text in ("", "", f"{_best(judged):.1f}" if judged else "")]
            lines.append([benchmark, "the best cell", *best, *[""] * 4, OPTIMAL[benchmark], ""])
    head = ["data", "copy"]
    for setting in (*SETTINGS, "50 for training, the published recipe"):
        head += [f"{setting}: Corr.", "pairs in order", "Perf., %"]
    return table_text([*head, "paper: Corr.", "paper: Perf., %", "HCDC is"], lines)


def _words(method: str) -> str:
    return "**HCDC**, 20 probes" if method == "hcdc" else NAMES.get(method, method)


def _ranked(judged: Judged, method: str, recipe: str) -> list[Ranking]:
    """The rankings by a copy; HCDC's random S_train with random images is a random copy of further seeds."""
    if method == "hcdc":
        return judged.rows.get(judged.mine, []) if recipe == "calibrated" else []
    by = WORDS[METRICS[recipe]]
    found = judged.rows.get(f"{NAMES.get(method, method)} copy, {recipe} recipe, by {by}", [])
    if method == "random" and recipe == "calibrated":
        known = {one.seed for one in found}
        shared = judged.rows.get(sized(SHARED["random-val"], judged.base), [])
        found = [*found, *(one for one in shared if one.seed not in known)]
    return found


def _reached(judged: Judged | None, method: str, recipe: str) -> tuple[str, str, str]:
    """Corr. with the number of condensations, the share of pairs in order, and Perf.; empty if not run."""
    ranked = _ranked(judged, method, recipe) if judged else []
    if judged is None or not ranked:
        return "", "", ""
    each = draws(len(judged.truth))
    corr = pooled(ranked, [judged.samples.correlations(one.scores) for one in ranked]).mean()
    picks = pooled(ranked, [_picked(one.scores, judged.test, each) for one in ranked]).mean()
    pairs = pooled(ranked, [calibration(judged.truth, one.scores) for one in ranked]).mean()
    return f"{corr:.2f} ({len({one.seed for one in ranked})})", f"{pairs:.2f}", f"{100 * picks:.1f}"


def cells_beside(judged: Judged) -> dict[str, Other]:
    """The other rankings of cells; gains are intervals over cells, condensations and draws of probes."""
    resampled, others = Resampled(judged.truth, judged.rows[judged.mine]), {}
    for name, ranked in judged.rows.items():
        if "HCDC" not in name and name != ALL:
            _, least, most = resampled.gains(ranked)
            others[plain(name)] = float(judged.agreement(name).mean()), Interval(least, most, LEVEL)
    return others


def _places(every: Sequence[Judged | None]) -> str:
    """Where HCDC stands among copies with the calibrated recipe: by Corr. as in the table of standings, by
    Perf. over condensations."""
    told = []
    for words, judged in zip(SETTINGS, every):
        if judged is None or judged.mine not in judged.rows:
            continue
        copies = {name: other for name, other in cells_beside(judged).items() if " copy, " in name}
        perfs = {_words(method): _perfs(judged, method) for method in ROWS}
        by_corr = place(float(judged.agreement(judged.mine).mean()), copies)
        told.append(f"{words}: Corr. {by_corr}; Perf. {standing(perfs, _words('hcdc'))}")
    return ". ".join(told)


def _perfs(judged: Judged, method: str) -> list[float]:
    """Perf. of each condensation, in percent."""
    each = draws(len(judged.truth))
    picks: dict[int | None, list[float]] = {}
    for one in _ranked(judged, method, "calibrated"):
        picks.setdefault(one.seed, []).append(100 * float(_picked(one.scores, judged.test, each).mean()))
    return [sum(some) / len(some) for some in picks.values()]


def _picked(scores: Array, test: Array, each: Indices) -> Array:
    """Test accuracy of the first by ``scores`` in each draw ``[draws]``."""
    found: Array = test[each[np.arange(len(each)), scores[each].argmax(1)]]
    return found


def _best(judged: Judged) -> float:
    """Mean test accuracy of the best cell by validation in a draw, in percent."""
    return 100 * float(_picked(judged.truth, judged.test, draws(len(judged.truth))).mean())
