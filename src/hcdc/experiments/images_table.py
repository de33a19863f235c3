"""The paper's table of cells ranked on copies of CIFAR (tab:images), from records of ``nas201``.

Corr. and Perf. of each copy are means over draws of 100 judging cells. The paper's 50 images per class are
training and validation images together; copies with 50 training images per class stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hcdc.experiments.markdown import table_text
from hcdc.experiments.nas201_draws import Indices, draws, pooled
from hcdc.experiments.nas201_rankings import (
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
        for method, paper in zip(ROWS, (text.split("|") for text in PAPER[benchmark])):
            ours = [
                _reached(judged, method, recipe)
                for judged, recipe in zip([*every, every[1]], ["calibrated", "calibrated", "published"])
            ]
            if any(corr for corr, _ in ours):
                lines.append([benchmark, _words(method), *(text for pair in ours for text in pair), *paper])
        if any(every):
            best = [text for judged in every for text in ("", f"{_best(judged):.1f}" if judged else "")]
            lines.append([benchmark, "the best cell", *best, "", "", "", OPTIMAL[benchmark]])
    head = ["data", "copy"]
    for setting in ("50 per class in all", "50 for training", "50 for training, the published recipe"):
        head += [f"{setting}: Corr.", "Perf., %"]
    return table_text([*head, "paper: Corr.", "paper: Perf., %"], lines)


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


def _reached(judged: Judged | None, method: str, recipe: str) -> tuple[str, str]:
    """Corr. with the number of condensations, and Perf.; empty if not run."""
    ranked = _ranked(judged, method, recipe) if judged else []
    if judged is None or not ranked:
        return "", ""
    each = draws(len(judged.truth))
    corr = pooled(ranked, [judged.samples.correlations(one.scores) for one in ranked]).mean()
    picks = pooled(ranked, [_picked(one.scores, judged.test, each) for one in ranked]).mean()
    return f"{corr:.2f} ({len({one.seed for one in ranked})})", f"{100 * picks:.1f}"


def _picked(scores: Array, test: Array, each: Indices) -> Array:
    """Test accuracy of the first by ``scores`` in each draw ``[draws]``."""
    found: Array = test[each[np.arange(len(each)), scores[each].argmax(1)]]
    return found


def _best(judged: Judged) -> float:
    """Mean test accuracy of the best cell by validation in a draw, in percent."""
    return 100 * float(_picked(judged.truth, judged.test, draws(len(judged.truth))).mean())
