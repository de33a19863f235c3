"""Tables of protocols ``cells-rank``, ``cells-edges`` and ``cells-finite``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hcdc.core.ranks import spearman
from hcdc.core.seeds import numpy_stream
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
HOPE = "the model's figures without trainings"
WORDS = {
    "hope": f"{MODEL}: parameters, jacov, synflow, NASWOT, 2 bits of structure, corrected loss and accuracy",
    "hope-raw": "the same with loss and accuracy as they are",
    "hope-free": f"{MODEL} without copies",
    "four": "synflow + NASWOT + jacov + loss", "jacov-parameters": "jacov + parameters",
    "one-shot": "loss with the weights of a one-shot supernet",
    "one-shot-jacov-parameters": "loss of a one-shot supernet + jacov + parameters",
    "loss": "loss on copies", "loss-corrected": "loss on copies, corrected for noise",
    "loss-accuracy": "loss + accuracy on copies", "parameters": "number of parameters",
    "model-top": f"{MODEL}, 20 of 200 epochs: those of 100 cells that promise most",
    "ridge-111": "ridge on structure, 111 of 12 epochs, + loss",
    "process-111": "one Gaussian process on structure, edges, loss, accuracy, 111 of 12 epochs",
    "process-111-sum": "one Gaussian process, 111 of 12 epochs, + jacov + parameters",
    "process-111-hope": f"one Gaussian process, 111 of 12 epochs, + {HOPE}",
    "ridge-304": "ridge on structure, 304 of 12 epochs, + loss",
    "process-304-sum": "one Gaussian process, 304 of 12 epochs, + jacov + parameters",
    "ridge-20": "ridge on structure, 20 of 200 epochs, + loss",
    "ridge-20-accuracy": "ridge on structure, 20 of 200 epochs, + loss + accuracy",
    "ridge-20-corrected": "ridge on structure, 20 of 200 epochs, + corrected loss",
    "ridge-20-hope": f"ridge on structure, 20 of 200 epochs, + {HOPE}",
    "ridge-20-sum": "ridge on structure, 20 of 200 epochs, + jacov + parameters",
    "process-20": "one Gaussian process on structure, edges, loss, accuracy, 20 of 200 epochs",
    "process-20-sum": "one Gaussian process, 20 of 200 epochs, + jacov + parameters",
    "process-20-hope": f"one Gaussian process, 20 of 200 epochs, + {HOPE}",
    "companions-ridge": "ridge on operation counts, 20 of 200 epochs, + loss (expected of companions today)",
    "companions-model": "the model without copies, 20 of 200 epochs, + loss (the model in its place)",
    "own": f"{MODEL}, every candidate for 12 epochs",
    "own-20": f"{MODEL}, every candidate for 12 epochs, 20 others for 12 and 200",
    "short": "12 epochs alone", "jacov-parameters-short": "jacov + parameters + 12 epochs",
    "loss-short": "loss + 12 epochs", "hope-short": f"{HOPE} + 12 epochs",
    "ridge-20-short": "ridge on structure, 20 of 200 epochs, + loss + 12 epochs",
}  # fmt: skip
"""Rows in words; the model with probes is named by `_words`."""
GROUPS = {
    "no training on the full data": (
        "hope", "hope-raw", "hope-free", "four", "jacov-parameters", "loss-corrected", "loss",
        "loss-accuracy", "parameters",
    ),
    "short trainings of other cells, 10 minutes with everything": (
        "model-0-111", "model-0-64", "model-0-32", "model-0-127", "process-111-sum", "process-111-hope",
        "process-111", "ridge-111", "one-shot-jacov-parameters", "one-shot",
    ),
    "20 trainings of 200 epochs, or as many seconds": (
        "model-20-0", "model-top", "model-16-53", "model-12-115", "model-8-178", "model-0-304", "model-0-325",
        "process-20", "process-20-sum", "process-20-hope", "ridge-20", "ridge-20-accuracy",
        "ridge-20-corrected", "ridge-20-hope", "ridge-20-sum", "companions-ridge", "companions-model",
        "process-304-sum", "ridge-304",
    ),
    "12 epochs for every candidate": (
        "own", "own-20", "hope-short", "jacov-parameters-short", "ridge-20-short", "loss-short", "short",
    ),
}  # fmt: skip
"""Rows by what they may spend."""
TWENTY = (
    "process-20", "process-20-sum", "process-20-hope", "ridge-20", "ridge-20-accuracy", "ridge-20-corrected",
    "ridge-20-hope", "ridge-20-sum",
)  # fmt: skip
GAINS = {
    "hope": (
        "hope-raw", "hope-free", "jacov-parameters", "four", "loss-corrected", "loss", "one-shot",
        "one-shot-jacov-parameters",
    ),
    "hope-free": ("jacov-parameters", "parameters"),
    "model-0-111": ("hope", "hope-free", "process-111-sum", "process-111-hope", "ridge-111"),
    "model-20-0": ("hope", "hope-free", *TWENTY),
    "model-0-304": ("model-20-0", *TWENTY, "process-304-sum", "ridge-304", "jacov-parameters-short"),
    "companions-model": ("companions-ridge",),
    "own": ("jacov-parameters-short", "ridge-20-short", "hope-short", "loss-short", "short"),
}  # fmt: skip
"""Which gains are shown: over rows of about equal cost, and over what a row adds to."""
FIRST = {
    "hope": "first model: parameters, jacov, synflow, 2 bits of structure, loss and accuracy as they are",
    "jacov-parameters": WORDS["jacov-parameters"],
    "model-0-127": "first model, 127 of 12 epochs", "model-20-0": "first model, 20 of 200 epochs",
    "model-0-325": "first model, 325 of 12 epochs", "own": "first model, every candidate for 12 epochs",
    "jacov-parameters-short": WORDS["jacov-parameters-short"],
}  # fmt: skip
"""Rows of the first version that are shown, in words."""


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
            spent = [
                f"{one[kind]} of {epochs} epochs"
                for kind, epochs in (("long", 200), ("short", 12))
                if one[kind]
            ]
            return " and ".join(spent) or "none"
        return f"{one['short'] * clock.short + one['long'] * clock.long + one['seconds']:,.0f}"


def _ranking(r: Record) -> Ranking:
    return Ranking(np.asarray(r["scores"]), seed=r["copy"], draw=r["seed"] if r["probes"] else None)


def agreement_table(
    found: Sequence[Record], dataset: str, clock: Clock | None = None, only: Mapping[str, str] | None = None
) -> str:
    """One row per ranking, by what it may spend: agreement, regret, seconds.

    Args:
        found: The records of one protocol.
        dataset: The data set.
        clock: Seconds of trainings.
        only: Show these rows alone, in these words.
    """
    judged, lines = Judged([r for r in found if r["dataset"] == dataset]), []
    for group, names in GROUPS.items():
        if shown := [name for name in names if name in judged.rows and (only is None or name in only)]:
            lines.append([f"*{group}*", *[""] * 7])
        lines += [[only[name] if only else _words(name), *_line(judged, name, clock)] for name in shown]
    head = [
        "ranked by", "runs", f"Spearman, {DRAWS:,} draws of {CELLS}: mean [5 %, 95 %]",
        "test accuracy as truth", f"top {TOP}", f"regret of the pick, points, {REGRET_DRAWS:,} draws",
        f"after {PROMOTED} promotions", f"seconds for {CELLS} cells" if dataset == "cifar10" else "trainings",
    ]  # fmt: skip
    return table_text(head, lines)


def _line(judged: Judged, name: str, clock: Clock | None) -> list[str]:
    val, test, top = (judged.agreement(name, part) for part in ("val", "test", "top"))
    low, high = np.quantile(val, [0.05, 0.95])
    ranked = judged.rows[name]
    each = [judged.regrets.figures(one) for one in ranked]
    lost = {key: pooled(ranked, [one[key] for one in each]) for key in ("regret", "promoted")}
    return [
        str(len(ranked)), f"{float(val.mean()):.3f} [{low:.2f}, {high:.2f}]",
        f"{float(test.mean()):.3f}", f"{float(top.mean()):.2f}", mean_text(lost["regret"]),
        mean_text(lost["promoted"]), judged.seconds(name, clock),
    ]  # fmt: skip


def gain_table(found: Sequence[Record], dataset: str) -> str:
    """Paired gains of the model in Spearman's correlation on all cells, with 90 % intervals."""
    judged, lines = Judged([r for r in found if r["dataset"] == dataset]), []
    for mine, others in GAINS.items():
        if mine not in judged.rows:
            continue
        by = [Resampled(truth, judged.rows[mine]) for truth in (judged.truth, judged.test)]
        for other in (name for name in others if name in judged.rows):
            lines.append([_words(mine), _words(other), *(one.gain(judged.rows[other]) for one in by)])
    head = ["", "minus", "validation accuracy as truth: mean [90 % interval]", "test accuracy as truth"]
    return table_text(head, lines)


def edges_table(found: Sequence[Record]) -> str:
    """Differences between neighbouring cells: estimators against themselves and the truth, worst first."""
    lines = []
    for r in sorted(found, key=lambda r: float(r["val_spearman"])):
        own = [f"{r[key]:.2f}" if r[key] is not None else "-" for key in ("self_spearman", "self_cosine")]
        true = [f"{r[f'{part}_{key}']:.2f}" for part in ("val", "test") for key in ("spearman", "cosine")]
        lines.append([r["words"], *own, *true, f"{100 * r['sign']:.0f} %", f"{r['pairs']:,}"])
    head = [
        "difference between neighbours by", "two estimates: Spearman", "cosine", "with the truth: Spearman",
        "cosine", "with test: Spearman", "cosine", "right sign", "pairs",
    ]  # fmt: skip
    return table_text(head, lines)


FINITE = {
    "finite": "**S_val aligned with finite hypergradients**",
    "values": "S_val that follows the values of the same cells",
    "start": "the images both start from",
    "pool": "1,000 or 2,000 real validation images",
    "ridge": "ridge on the same short trainings, no copy",
    "ridge + start": "that ridge + the images both start from",
    "ridge + pool": "that ridge + the real images",
    "parameters": "number of parameters",
}
FEW = 100
"""Fewer judges make a small run of ``cells-finite``."""
RESAMPLES = 2000


def finite_table(found: Sequence[Record], small: bool = False) -> str:
    """S_val from finite hypergradients beside rivals: means over runs, and intervals over the judges.

    Args:
        found: Records of ``cells-finite``.
        small: Write the table of the small runs, not of the others.
    """
    found, lines = [r for r in found if (len(r["judges"]) < FEW) == small], []
    for name, words in FINITE.items():
        agreed = [r["agreement"].get(name) for r in found]
        cells = [
            f"{np.mean([one[part][what] for one in agreed]):.2f}" if all(agreed) else "-"
            for part, what in (
                ("watching", "self"), ("learning", "short"), ("watching", "short"), ("watching", "full"),
            )
        ]  # fmt: skip
        ranked = [f"{np.mean([r['ranked'][name][part] for r in found]):.2f}" for part in ("val", "test")]
        lines.append([words, *cells, *ranked, "" if name == "finite" else _finite_gain(found, name)])
    head = [
        "ranked by", "two networks agree", "with 12 epochs, stars it learned from", "other stars",
        "with 200 epochs, other stars", "judges: Spearman", "test accuracy as truth", "aligned minus it",
    ]  # fmt: skip
    return table_text(head, lines)


def _finite_gain(found: Sequence[Record], name: str) -> str:
    """How much better the aligned S_val ranks the judges, with a 90 % interval over judges."""
    rng, draws_of = numpy_stream(0, "cells-finite-table"), []
    for r in found:
        truth, own, other = (
            np.array(x) for x in (r["truth"]["val"], *(r["scores"][k] for k in ("finite", name)))
        )
        picks = rng.integers(len(truth), size=(RESAMPLES, len(truth)))
        draws_of.append([spearman(truth[i], own[i]) - spearman(truth[i], other[i]) for i in picks])
    low, high = np.nanquantile(np.mean(draws_of, axis=0), [0.05, 0.95])
    mean = np.mean([r["ranked"]["finite"]["val"] - r["ranked"][name]["val"] for r in found])
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


RANKED: dict[str, tuple[str, Callable[[Sequence[Record], Clock | None], str]]] = {
    "cells-rank": ("cells-rank", lambda found, clock: agreement_table(found, "cifar10", clock)),
    "cells-rank-gain": ("cells-rank", lambda found, clock: gain_table(found, "cifar10")),
    "cells-rank-cifar100": ("cells-rank", lambda found, clock: agreement_table(found, "cifar100", clock)),
    "cells-rank-cifar100-gain": ("cells-rank", lambda found, clock: gain_table(found, "cifar100")),
    "cells-rank-first": (
        "cells-rank-first", lambda found, clock: agreement_table(found, "cifar10", clock, FIRST),
    ),
}  # fmt: skip
"""The protocol behind each table of rankings, and the function that writes it, by name."""


def ranked_table(name: str, found: Sequence[Record]) -> str:
    """A table of `RANKED`; all records are given, as the clock is read from a benchmark."""
    protocol, write = RANKED[name]
    return write([r for r in found if r.get("protocol") == protocol], Clock.read(found))
