"""Tables of protocol ``tables-rank``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcdc.core.ranks import mean_interval
from hcdc.experiments.markdown import table_text

Record = dict[str, Any]

SEARCHES = {
    "penalties": "penalties of features",
    "network": "weight decay and width",
    "trees": "boosted trees",
}
ROWS = {
    "hcdc-both": "**HCDC** `both`: hypergradients and values of 28 full trainings",
    "hcdc-aligned": "HCDC `aligned`: hypergradients alone",
    "hcdc-probes": "HCDC `probes`: rows learned from 20 probes",
    "hcdc-weighted": "HCDC `weighted`: real rows weighted by 20 probes",
    "random-val": "random rows of the same number, by accuracy (values: by loss)",
    "random-val-loss": "random rows of the same number, by loss",
    "real-val": "same S_train, all validation rows, by accuracy (values: by loss)",
    "real-val-loss": "same S_train, all validation rows, by loss",
    "kcenter-weighted": "K-Center rows, real rows weighted by 20 probes",
    "kcenter-real-val": "K-Center rows, all validation rows, by accuracy (values: by loss)",
    "kcenter-real-val-loss": "K-Center rows, all validation rows, by loss",
    "herding-weighted": "Herding rows, real rows weighted by 20 probes",
    "herding-real-val": "Herding rows, all validation rows, by accuracy (values: by loss)",
    "herding-real-val-loss": "Herding rows, all validation rows, by loss",
    "random-5%": "random 5 % of the training rows, all validation rows",
    "random-10%": "random 10 %",
    "random-25%": "random 25 %",
    "early-stopping": "full data, as many row visits as the copy",
    "ridge-both": "kernel ridge on the 28 full trainings, no copy",
    "ridge-weighted": "kernel ridge on the 20 probes, no copy",
    "ridge-and-real-val": "that ridge and the loss of all validation rows",
}
SAME = ("random-val", "random-val-loss")
"""Random rows of the same number; the better of the two is the bar."""


def cases(found: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Records by search and table; the last row of a seed counts, and other S_trains add rows."""
    grouped: dict[tuple[str, str], dict[int, Record]] = defaultdict(dict)
    for record in found:
        of = grouped[record["search"], record["dataset"]]
        earlier = of.get(record["seed"])
        if earlier is None:
            of[record["seed"]] = record
            continue
        latest = record if "real-val" in record["rows"] else earlier  # others hold a coreset's rows alone
        of[record["seed"]] = {**latest, "rows": {**earlier["rows"], **record["rows"]}}
    order = {name: k for k, name in enumerate(SEARCHES)}
    keys = sorted(grouped, key=lambda key: (order[key[0]], grouped[key][min(grouped[key])]["train_rows"]))
    return {key: [grouped[key][seed] for seed in sorted(grouped[key])] for key in keys}


def _head(grouped: dict[tuple[str, str], list[Record]]) -> list[str]:
    return [
        f"{SEARCHES[search]}, {name}: {of[0]['train_size']} of {of[0]['train_rows']:,} rows"
        for (search, name), of in grouped.items()
    ]


def agreement_table(found: Sequence[Record], figure: str = "spearman") -> str:
    """Spearman with the full data by row and case: mean over seeds and half the 90 % interval."""
    grouped, rows = cases(found), []
    for name, words in ROWS.items():
        values = [[one["rows"][name][figure] for one in of if name in one["rows"]] for of in grouped.values()]
        rows.append([words, *map(_cell, values)])
    if figure == "test_spearman":
        own = [[one["val_with_test"] for one in of] for of in grouped.values()]
        rows.append(["full-data validation itself", *map(_cell, own)])
    return table_text(["ranked by", *_head(grouped)], _run(rows))


def by_test_table(found: Sequence[Record]) -> str:
    """The same with test scores as truth."""
    return agreement_table(found, "test_spearman")


def gain_table(found: Sequence[Record]) -> str:
    """What HCDC gains, paired over seeds, on random rows of the same number and of 5, 10 and 25 %."""
    grouped, rows = cases(found), []
    rivals = {
        "random rows of the same number, the better metric": SAME,
        "random 5 %": ("random-5%",), "random 10 %": ("random-10%",), "random 25 %": ("random-25%",),
        "same S_train, all validation rows, the better metric": ("real-val", "real-val-loss"),
        "kernel ridge on the same full trainings": ("ridge",),
    }  # fmt: skip
    for way in (name for name in ROWS if name.startswith("hcdc")):
        for words, names in rivals.items():
            cells = [_gain(of, way, names) for of in grouped.values()]
            rows.append([f"`{way.removeprefix('hcdc-')}` minus {words}", *cells])
    for name, words in {"kcenter": "K-Center", "herding": "Herding"}.items():
        cells = [_gain(of, f"{name}-weighted", ("hcdc-weighted",)) for of in grouped.values()]
        rows.append([f"`weighted` with {words} rows minus with random rows as S_train", *cells])
    return table_text(["", *_head(grouped)], _run(rows))


def cost_table(found: Sequence[Record]) -> str:
    """CPU seconds by row and case: before the first candidate + for all candidates."""
    grouped, rows = cases(found), []
    for name, words in ROWS.items():
        cells = []
        for of in grouped.values():
            own = [one["rows"][name] for one in of if name in one["rows"]]
            parts = [np.mean([r[k] for r in own]) for k in ("once_seconds", "candidates_seconds") if own]
            cells.append(" + ".join(f"{part:.1f}" for part in parts) or "-")
        rows.append([words, *cells])
    full = [f"{np.mean([one['full_seconds'] for one in of]):.1f}" for of in grouped.values()]
    return table_text(["CPU seconds", *_head(grouped)], [*_run(rows), ["the full data itself", *full]])


def _run(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The rows that some case has."""
    return [row for row in rows if set(row[1:]) != {"-"}]


def _gain(of: Sequence[Record], way: str, names: Sequence[str]) -> str:
    """Mean gain of a way over the best of some rows (the same row for all seeds)."""
    if names == ("ridge",):
        names = ("ridge-both",) if way in ("hcdc-both", "hcdc-aligned") else ("ridge-weighted",)
    of = [one for one in of if way in one["rows"]]
    means = {
        name: np.mean([_figure(one, name) for one in of])
        for name in names
        if of and all(name in one["rows"] for one in of)
    }
    if not means:
        return "-"
    best = max(means, key=lambda name: means[name])
    return _interval([_figure(one, way) - _figure(one, best) for one in of])


def _figure(record: Record, name: str) -> float:
    """A Spearman correlation; a ranking that ties all candidates counts as 0."""
    return float(record["rows"][name]["spearman"] or 0.0)


def _cell(values: Sequence[float | None]) -> str:
    if not values:
        return "-"
    numbers = [value or 0.0 for value in values]
    if len(numbers) == 1:
        return f"{numbers[0]:.2f} (1 seed)"
    mean, within = mean_interval(numbers)
    return f"{mean:.2f} ± {within.high - mean:.2f}"


def _interval(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:+.2f} (1 seed)"
    mean, within = mean_interval(values)
    return f"{mean:+.2f} [{within.low:+.2f}, {within.high:+.2f}]"
