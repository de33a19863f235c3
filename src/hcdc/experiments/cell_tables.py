"""Tables of protocols ``cells-rank`` and ``cells-edges``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hcdc.experiments.markdown import table_text
from hcdc.experiments.nas201_draws import (
    DRAWS,
    PROMOTED,
    REGRET_DRAWS,
    TOP,
    Regrets,
    Resampled,
    Samples,
    draws,
    mean_text,
    pooled,
)
from hcdc.experiments.nas201_rankings import CELLS, Array, Ranking, Record
from hcdc.experiments.nas201_tables import Clock

MODEL = "**model**"
WORDS = {
    "hope": f"{MODEL}: parameters, jacov, synflow, two bits of structure, loss and accuracy on copies",
    "hope-free": f"{MODEL} without copies: parameters, jacov, synflow, two bits of structure",
    "four": "synflow + NASWOT + jacov + loss on copies", "jacov-parameters": "jacov + parameters",
    "loss": "loss on copies", "loss-accuracy": "loss + accuracy on copies",
    "parameters": "number of parameters",
    "model-top": f"{MODEL}, 20 of 200 epochs: the most hopeful of 100 cells",
    "ridge-127": "ridge on structure, 127 of 12 epochs, + loss",
    "process-127": "one Gaussian process on structure, loss, accuracy, 127 of 12 epochs",
    "process-127-sum": "that process + jacov + parameters",
    "process-127-hope": "that process + the model's sum without trainings",
    "ridge-325": "ridge on structure, 325 of 12 epochs, + loss",
    "process-325-sum": "one Gaussian process, 325 of 12 epochs, + jacov + parameters",
    "ridge-20": "ridge on structure, 20 of 200 epochs, + loss",
    "ridge-20-accuracy": "ridge on structure, 20 of 200 epochs, + loss + accuracy",
    "ridge-20-hope": "ridge on structure, 20 of 200 epochs, + the model's sum without trainings",
    "ridge-20-sum": "ridge on structure, 20 of 200 epochs, + jacov + parameters",
    "process-20": "one Gaussian process on structure, loss, accuracy, 20 of 200 epochs",
    "process-20-sum": "one Gaussian process, 20 of 200 epochs, + jacov + parameters",
    "own": f"{MODEL}, every candidate for 12 epochs",
    "own-20": f"{MODEL}, every candidate for 12 epochs, 20 others for 12 and 200",
    "short": "12 epochs alone", "jacov-parameters-short": "jacov + parameters + 12 epochs",
    "loss-short": "loss on copies + 12 epochs", "hope-short": "the model's sum without trainings + 12 epochs",
    "ridge-20-short": "ridge on structure, 20 of 200 epochs, + loss + 12 epochs",
}  # fmt: skip
"""Rows in words; the model with probes is named by `_words`."""
GROUPS = {
    "no training on the full data": (
        "hope", "hope-free", "four", "jacov-parameters", "loss", "loss-accuracy", "parameters",
    ),
    "short trainings of other cells, at most 10 minutes": (
        "model-0-32", "model-0-64", "model-0-127", "ridge-127", "process-127", "process-127-sum",
        "process-127-hope",
    ),
    "20 trainings of 200 epochs, or as many seconds": (
        "model-20-0", "model-top", "model-16-65", "model-12-130", "model-8-195", "model-0-325", "ridge-20",
        "ridge-20-accuracy", "ridge-20-hope", "ridge-20-sum", "process-20", "process-20-sum", "ridge-325",
        "process-325-sum",
    ),
    "12 epochs for every candidate": (
        "own", "own-20", "hope-short", "ridge-20-short", "jacov-parameters-short", "loss-short", "short",
    ),
}  # fmt: skip
"""Rows by what they may spend."""
GAINS = {
    "hope": ("jacov-parameters", "four", "loss", "loss-accuracy", "hope-free"),
    "hope-free": ("jacov-parameters", "parameters"),
    "model-0-127": ("hope", "hope-free", "process-127-hope", "process-127-sum", "ridge-127"),
    "model-20-0": (
        "hope", "hope-free", "ridge-20", "ridge-20-accuracy", "ridge-20-hope", "ridge-20-sum", "process-20",
        "process-20-sum",
    ),
    "model-0-325": (
        "model-20-0", "ridge-20", "ridge-20-accuracy", "ridge-20-hope", "ridge-20-sum", "process-20",
        "process-20-sum", "ridge-325", "process-325-sum", "jacov-parameters-short",
    ),
    "own": ("jacov-parameters-short", "ridge-20-short", "loss-short", "hope-short", "short"),
}  # fmt: skip
"""Which gains are shown: over rows of equal or greater cost, and over what a row adds to."""


def _words(name: str) -> str:
    if name in WORDS:
        return WORDS[name]
    long, short = name.removeprefix("model-").split("-")
    spent = [f"{count} of {epochs} epochs" for count, epochs in ((long, 200), (short, 12)) if count != "0"]
    return f"{MODEL}, {' and '.join(spent)}"


class Judged:
    """The rankings of one data set with their figures.

    Args:
        found: Its records.
    """

    def __init__(self, found: Sequence[Record]):
        truth = next(r for r in found if r["label"] == "truth")
        self.truth, self.test = (np.asarray(truth[part]) for part in ("val", "test"))
        self.records: dict[str, list[Record]] = {}
        for r in found:
            if r["label"] != "truth":
                self.records.setdefault(r["label"], []).append(r)
        self.rows = {name: [_ranking(r) for r in some] for name, some in self.records.items()}
        each = draws(len(self.truth))
        best = np.argsort(-self.truth[each], axis=1, kind="stable")[:, :TOP]
        self.samples = {"val": Samples(self.truth, each), "test": Samples(self.test, each)}
        self.samples["top"] = Samples(self.truth, np.take_along_axis(each, best, 1))
        self.regrets = Regrets(self.truth, self.test)

    def agreement(self, name: str, part: str) -> Array:
        """Spearman's correlations ``[runs, draws]`` with a truth: ``"val"``, ``"test"`` or ``"top"``."""
        ranked = self.rows[name]
        return pooled(ranked, [self.samples[part].correlations(one.scores) for one in ranked])

    def seconds(self, name: str, clock: Clock | None) -> str:
        """Seconds of everything for a search among 100 cells."""
        one = self.records[name][0]
        if one["dataset"] != "cifar10" or clock is None:
            return f"{one['short']} x 12, {one['long']} x 200 epochs"
        return f"{one['short'] * clock.short + one['long'] * clock.long + one['seconds']:,.0f}"


def _ranking(r: Record) -> Ranking:
    return Ranking(np.asarray(r["scores"]), seed=r["copy"], draw=r["seed"] if r["probes"] else None)


def agreement_table(found: Sequence[Record], dataset: str) -> str:
    """One row per ranking, by what it may spend: agreement, regret, seconds."""
    judged, clock, lines = Judged(_of(found, dataset)), Clock.read(found), []
    for group, names in GROUPS.items():
        shown = [name for name in names if name in judged.rows]
        lines.append([f"*{group}*", *[""] * 7])
        for name in shown:
            val, test, top = (judged.agreement(name, part) for part in ("val", "test", "top"))
            low, high = np.quantile(val, [0.05, 0.95])
            each = [judged.regrets.figures(one) for one in judged.rows[name]]
            lost = {key: pooled(judged.rows[name], [one[key] for one in each]) for key in each[0]}
            lines.append(
                [
                    _words(name), str(len(val)), f"{float(val.mean()):.3f} [{low:.2f}, {high:.2f}]",
                    f"{float(test.mean()):.3f}", f"{float(top.mean()):.2f}", mean_text(lost["regret"]),
                    mean_text(lost["promoted"]), judged.seconds(name, clock),
                ]
            )  # fmt: skip
    head = [
        "ranked by", "runs", f"Spearman, {DRAWS:,} draws of {CELLS}: mean [5 %, 95 %]",
        "test accuracy as truth",
        f"top {TOP}", f"regret of the pick, points, {REGRET_DRAWS:,} draws", f"after {PROMOTED} promotions",
        f"seconds for {CELLS} cells" if dataset == "cifar10" else "trainings",
    ]  # fmt: skip
    return table_text(head, lines)


def gain_table(found: Sequence[Record], dataset: str) -> str:
    """Paired gains of the model in Spearman's correlation on all cells, with 90 % intervals."""
    judged, lines = Judged(_of(found, dataset)), []
    for mine, others in GAINS.items():
        if mine not in judged.rows:
            continue
        by = [Resampled(truth, judged.rows[mine]) for truth in (judged.truth, judged.test)]
        for other in (name for name in others if name in judged.rows):
            lines.append([_words(mine), _words(other), *(one.gain(judged.rows[other]) for one in by)])
    head = ["", "minus", "validation accuracy as truth: mean [90 % interval]", "test accuracy as truth"]
    return table_text(head, lines)


def edges_table(found: Sequence[Record]) -> str:
    """Differences between neighbouring cells: agreement of estimators with themselves and with the truth."""
    lines = []
    for r in found:
        own = [f"{r[key]:.2f}" if r[key] is not None else "-" for key in ("self_spearman", "self_cosine")]
        true = [f"{r[f'{part}_{key}']:.2f}" for part in ("val", "test") for key in ("spearman", "cosine")]
        lines.append([r["words"], *own, *true, f"{100 * r['sign']:.0f} %", f"{r['pairs']:,}"])
    head = [
        "difference between neighbours by", "two estimates: Spearman", "cosine", "with the truth: Spearman",
        "cosine", "with test: Spearman", "cosine", "right sign", "pairs",
    ]  # fmt: skip
    return table_text(head, lines)


def _of(found: Sequence[Record], dataset: str) -> list[dict[str, Any]]:
    return [r for r in found if r.get("protocol") == "cells-rank" and r["dataset"] == dataset]
