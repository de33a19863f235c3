"""Table of protocol ``nas-search`` beside the paper's, and what it says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcdc.core.ranks import Interval, mean_interval
from hcdc.experiments.markdown import table_text
from hcdc.experiments.search_pools import PRICES
from hcdc.experiments.standing import Reached, stands

Record = dict[str, Any]

DATA: Mapping[str, str] = {"random": "Random", "dc": "DC", "hcdc": "HCDC", "original": "Original"}
PAPER: Mapping[str, Sequence[str]] = {
    "DARTS-PT": ("37.1", "89.4 ± 0.3", "39.2", "85.2 ± 1.9", "35.5", "91.9 ± 0.4", "229", "92.7 ± 0.6"),
    "REINFORCE": ("166", "88.1 ± 1.8", "105", "80.1 ± 6.5", "119", "92.3 ± 1.1", "1,492", "93.0 ± 0.9"),
}
"""The paper's row for each searcher: seconds and test accuracy, by data."""
EPOCHS: Mapping[str, str] = {"calibrated": "200 epochs", "published": "12 epochs"}
"""Recipe on copies, and the training on the original data in the same row."""
NOT_RUN = "not run"
MANY = 20
"""From this many runs on, quantiles are shown instead of the standard deviation."""


@dataclass(frozen=True)
class Found:
    """The searches of one row on one kind of data.

    Attributes:
        accuracies: Test accuracy of each pick, in percent.
        search, making: Mean seconds of a search, and of making its copy.
        probes: Full trainings behind a copy.
        best_probe: Mean test accuracy of the best probe, in percent; None if it is not known.
        timed: Whether the price of a probe is known on the device of the searches.
    """

    accuracies: Sequence[float]
    search: float
    making: float
    probes: float
    best_probe: float | None
    timed: bool = True

    @classmethod
    def of(cls, some: Sequence[Record]) -> Found:
        """From records of one search each, or of many replays."""

        def every(name: str) -> list[float]:
            each = [found if isinstance(found := r.get(name), list) else [found] for r in some]
            return [value for values in each for value in values if value is not None]

        known = every("best_probe")
        search, making, probes = (
            float(np.mean(every(name))) for name in ("search_seconds", "making_seconds", "probes")
        )
        best = 100 * float(np.mean(known)) if known else None
        accuracies = [100 * v for v in every("test_accuracy")]
        return cls(accuracies, search, making, probes, best, not any(map(_on_cpu, some)))

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    def whole(self) -> str:
        """Seconds of the search with making and probes, on one clock."""
        spent = self.search + self.making
        if self.timed or not self.probes:
            return _number(spent + self.probes * PRICES["nas201-cifar10"]["full"])
        return f"{_number(spent)} + {self.probes:.0f} probes"

    def seconds(self) -> str:
        return f"{_number(self.search)} / {self.whole()}"

    def reached(self) -> Reached:
        """Mean accuracy and its interval; that of replays, which share their cells, is their 5 - 95 %."""
        if len(self.accuracies) < MANY:
            return mean_interval(self.accuracies)
        low, high = np.quantile(self.accuracies, [0.05, 0.95])
        return self.mean, Interval(float(low), float(high), 0.9)

    def accuracy(self) -> str:
        values = self.accuracies
        if len(values) >= MANY:
            low, high = np.quantile(values, [0.05, 0.95])
            return f"{self.mean:.1f} [{low:.1f}, {high:.1f}]"
        spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
        return f"{self.mean:.1f}{spread} ({len(values)})"


def _number(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}"


@dataclass(frozen=True)
class Row:
    """The searches with one setting.

    Attributes:
        searcher: One of `PAPER`.
        space: What is searched.
        trained: How networks are trained on copies, or in all searches.
        original: How they are trained on the original data.
        found: The searches by data.
    """

    searcher: str
    space: str
    trained: str
    original: str
    found: Mapping[str, Found]

    @property
    def words(self) -> str:
        """Its first cell."""
        how = self.trained if self.trained == self.original else f"{self.trained} (original: {self.original})"
        return f"{self.searcher}: {self.space}, {how}"


def _on_cpu(r: Record) -> bool:
    return str(r.get("environment", {}).get("device", "")).startswith("cpu") and r["searcher"] != "reinforce"


def _setting(r: Record) -> tuple[str, str, str, str]:
    """The row of a record: searcher, space, and training on copies and on the original data."""
    if r["searcher"] == "reinforce":
        recipe = next(name for name, epochs in EPOCHS.items() if r["recipe"] in (name, epochs))
        return "REINFORCE", f"100 of {r['cells']} cells", f"{recipe} recipe", EPOCHS[recipe]
    s = r["settings"]
    space = f"{s['cells']} cell{'s' * (s['cells'] > 1)} per stage"
    how = f"{s['epochs']} and 5 x {s['tune_epochs']} epochs in batches of {s['batch']}"
    how += ", on a CPU" * _on_cpu(r)
    return "DARTS-PT", space, how, how


def rows(found: Sequence[Record]) -> list[Row]:
    """All rows; searches with other settings are other rows."""
    groups: dict[tuple[str, str, str, str], dict[str, list[Record]]] = {}
    for r in found:
        groups.setdefault(_setting(r), {}).setdefault(r["data"], []).append(r)
    return [Row(*key, {data: Found.of(some) for data, some in own.items()}) for key, own in groups.items()]


def place(found: Mapping[str, Found]) -> str:
    """Where the cells found on HCDC's copy stand, by test accuracy."""
    return stands({data: one.reached() for data, one in found.items()}, "hcdc", DATA)


def nas_search_table(found: Sequence[Record]) -> str:
    """The paper's table with ours, and a sentence for each searcher."""
    ours = rows(found)
    lines = []
    for name, published in PAPER.items():
        lines.append([f"{name}, the paper's", *published, ""])
        for row in ours:
            if row.searcher == name:
                some = [row.found.get(data) for data in DATA]
                cells = [(one.seconds(), one.accuracy()) if one else (NOT_RUN, NOT_RUN) for one in some]
                lines.append([row.words, *(text for pair in cells for text in pair), place(row.found)])
    head = ["searched by"]
    for words in DATA.values():
        head += [f"{words}, seconds of the search / with making and probes", "test accuracy, %"]
    head.append("HCDC's cell is")
    told = [said for name in PAPER if (said := sentence([row for row in ours if row.searcher == name]))]
    return "\n\n".join([table_text(head, lines), *told])


def sentence(ours: Sequence[Row]) -> str:
    """What HCDC's copy saves and costs, from the last row of a searcher that has it; nothing if none has."""
    row = next((row for row in reversed(ours) if "hcdc" in row.found), None)
    if row is None:
        return ""
    mine = row.found["hcdc"]
    told = f"{row.searcher}, {row.space}: a search on HCDC's copy takes {_number(mine.search)} seconds"
    told += f", with making it and its {mine.probes:.0f} probes {mine.whole()}"
    others = [("on random images", row.found["random"])] if "random" in row.found else []
    others += [
        (f"on the original data ({other.original})", other.found["original"])
        for other in ours
        if other.space == row.space and "original" in other.found
    ]
    for place, other in others:
        told += f"; {place} it takes {other.whole()} and finds a cell {_apart(other.mean - mine.mean)}"
    if mine.best_probe is not None:
        told += f"; the best of the probes is {_apart(mine.best_probe - mine.mean)}"
    return f"{told}."


def _apart(points: float) -> str:
    """A difference of accuracies in words."""
    return f"{abs(points):.2f} points {'better' if points > 0 else 'worse'}"
