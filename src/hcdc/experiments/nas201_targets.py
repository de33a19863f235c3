"""Table of what S_val follows: targets and objectives on the same condensations, probes and networks.

Its records are those of protocol ``nas201`` whose modes have changes behind them, ``probes+model+top``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hcdc.core.ranks import mean_interval
from hcdc.experiments.markdown import table_text
from hcdc.experiments.nas201_draws import (
    DRAWS,
    REGRET_DRAWS,
    TOP,
    Regrets,
    Resampled,
    Samples,
    beside,
    draws,
    mean_text,
    pooled,
)
from hcdc.experiments.nas201_model import LABEL
from hcdc.experiments.nas201_rankings import (
    CELLS,
    LEARNED,
    TARGETS,
    Array,
    Ranking,
    Record,
    kind_of,
    ranking_of,
    rankings,
    sized,
)

MODEL = "**model** of everything known, no S_val"
CHANGED = {
    "model": "follows the model", "top": "pairs weighted toward the top", "many": "240 companions",
    "long": "60 steps",
}  # fmt: skip
"""What the changes of a mode do, in words."""
NOT_RUN = "not run"
HEAD = (
    "ranked by", "runs", f"Spearman, {DRAWS:,} draws of {CELLS}: mean [5 %, 95 %]", "all cells",
    "all cells, test accuracy as truth", "all cells, minus as before", "all cells, minus the model",
    f"top {TOP}", f"top {TOP}, minus as before", "companions, with their target",
    f"regret of the pick, points, {REGRET_DRAWS:,} draws", "after 5 promotions",
    f"seconds of {CELLS} trials on the copy, including making it",
)  # fmt: skip


def _named(label: str, r: Record) -> str:
    """A learned copy's row."""
    way, *changes = label.split("+")
    return ", ".join([sized(LEARNED[way], r), *(CHANGED[change] for change in changes)])


class Compared:
    """Rows, and for each the row that its way has without changes.

    Args:
        found: The records of one table.
    """

    def __init__(self, found: Sequence[Record]):
        changed = {r["label"] for r in found if "+" in r["label"]}
        plain = [r for r in found if r["label"] not in {*changed, LABEL}]
        self.base, rows = rankings(plain)
        self.rows = {
            name: ranked
            for name, ranked in rows.items()
            if not any(one.short or one.long == CELLS for one in ranked)
        }
        self.before: dict[str, str] = {}
        self.followed: dict[str, list[float]] = {}
        for r in found:
            label = r["label"]
            if label in changed or label == LABEL:
                name = MODEL if label == LABEL else _named(label, r)
                self.rows.setdefault(name, []).append(ranking_of(r))
                if label in changed:
                    self.before[name] = _named(label.partition("+")[0], r)
            if label.partition("+")[0] in LEARNED:
                last = r["history"][-1].get("companion_correlation")
                self.followed.setdefault(_named(label, r), []).extend([] if last is None else [last])
        self.truth, self.test = np.asarray(self.base["val"]), np.asarray(self.base["test"])
        each = draws(len(self.truth))
        best = np.argsort(-self.truth[each], axis=1, kind="stable")[:, :TOP]
        self.samples = Samples(self.truth, each)
        self.top = Samples(self.truth, np.take_along_axis(each, best, 1))
        self.regrets = Regrets(self.truth, self.test)

    def agreement(self, name: str, samples: Samples) -> Array:
        """Spearman's correlations ``[runs, draws]``."""
        return pooled(self.rows[name], [samples.correlations(one.scores) for one in self.rows[name]])

    def gain(self, name: str, other: str | None) -> str:
        """Paired gain over another row on all cells."""
        if other is None or other == name or other not in self.rows:
            return ""
        return Resampled(self.truth, self.rows[name]).gain(self.rows[other])

    def top_gain(self, name: str, other: str | None) -> str:
        """Paired gain among the first 30 of a draw: mean and half its 90 % interval over condensations."""
        if other is None or other not in self.rows:
            return ""
        by_seed: dict[int | None, list[float]] = {}
        for one in self.rows[name]:
            theirs = [self._among_top(each) for each in beside(one, self.rows[other])]
            by_seed.setdefault(one.seed, []).append(self._among_top(one) - float(np.mean(theirs)))
        mean, interval = mean_interval([float(np.mean(values)) for values in by_seed.values()])
        spread = "" if np.isnan(interval.low) else f" ± {interval.high - mean:.2f}"
        return f"{mean:+.2f}{spread}"

    def _among_top(self, one: Ranking) -> float:
        return float(np.nanmean(self.top.correlations(one.scores)))

    def line(self, name: str) -> tuple[float, list[str]]:
        """The row's mean correlation, by which rows are sorted, and its cells."""
        ranked, reached = self.rows[name], self.agreement(name, self.samples)
        low, high = np.quantile(reached, [0.05, 0.95])
        whole = [
            f"{float(pooled(ranked, [_all(truth, one) for one in ranked]).mean()):.3f}"
            for truth in (self.truth, self.test)
        ]
        lost: Mapping[str, Array] = {
            key: pooled(ranked, [self.regrets.figures(one)[key] for one in ranked])
            for key in ("regret", "promoted")
        }
        followed, before = self.followed.get(name, []), self.before.get(name)
        return float(reached.mean()), [
            name, str(len(ranked)), f"{float(reached.mean()):.3f} [{low:.2f}, {high:.2f}]", *whole,
            self.gain(name, before), self.gain(name, MODEL),
            f"{float(np.nanmean(self.agreement(name, self.top))):.2f}", self.top_gain(name, before),
            f"{np.mean(followed):.2f}" if followed else "", mean_text(lost["regret"]),
            mean_text(lost["promoted"]),
            f"{float(pooled(ranked, [one.search for one in ranked]).mean()):,.0f}",
        ]  # fmt: skip


def _all(truth: Array, one: Ranking) -> float:
    cells = np.arange(len(truth))[None]
    return float(Samples(truth, cells).correlations(one.scores)[0])


def targets_table(found: Sequence[Record]) -> str:
    """One row per ranking of CIFAR-10's cells; one that says so if there are no records."""
    mine = [r for r in found if r["dataset"] == "cifar10" and kind_of(r) == TARGETS]
    if not any(r["label"] != "truth" for r in mine):
        return table_text(HEAD, [[NOT_RUN, *[""] * (len(HEAD) - 1)]])
    compared = Compared(mine)
    lines = sorted((compared.line(name) for name in compared.rows), key=lambda pair: -pair[0])
    return table_text(HEAD, [line for _, line in lines])
