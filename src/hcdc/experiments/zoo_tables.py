"""Table of protocol ``gnn-zoo``: networks of two spaces ranked by weighted validation nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hcdc.core.ranks import spearman
from hcdc.experiments.graph_tables import RIVALS
from hcdc.experiments.markdown import table_text

Record = dict[str, Any]
Column = tuple[str, str, int]

WEIGHTED = "hcdc-weighted"
SPACES = {"gnn-zoo": "zoo", "nasbench-graph": "NAS-Bench-Graph"}
ROWS = {
    WEIGHTED: "**HCDC**, weighted validation nodes",
    "real-val": RIVALS["real-val"],
    "real-val-loss": RIVALS["real-val-loss"],
    "ridge-probes": "kernel ridge on features and the same probes, no copy",
    "ridge-and-real-val": "that ridge + real validation loss",
    "ridge-and-real-accuracy": "that ridge + real validation accuracy",
    "early-stopping": "full data, one seed, as many example visits as the copy",
    "parameter-count": RIVALS["parameter-count"],
}


def weighted_table(found: Sequence[Record]) -> str:
    """Spearman's correlation with validation and with test results, mean over seeds."""
    chosen = [r for r in found if r["label"] == WEIGHTED]
    columns = sorted({_column(r) for r in chosen}, key=lambda c: (list(SPACES).index(c[0]), c[1:]))
    by_column = {column: [r for r in chosen if _column(r) == column] for column in columns}
    rows = [
        [words, *(_cell([_agreement(r, _scores(r, name)) for r in by_column[column]]) for column in columns)]
        for name, words in ROWS.items()
    ]
    ceiling = [_cell([_agreement(r, r["test"]) for r in by_column[column]]) for column in columns]
    rows.append(["the test results themselves", *ceiling])
    counts = [str(len({r["seed"] for r in by_column[column]})) for column in columns]
    rows.append(["seeds", *counts])
    return table_text(["ranked by", *(_head(column) for column in columns)], rows)


def _column(record: Record) -> Column:
    return str(record["space"]["name"]), str(record["dataset"]), int(record["train_size"])


def _head(column: Column) -> str:
    space, dataset, size = column
    return f"{SPACES[space]}, {dataset.capitalize()} {size}"


def _scores(record: Record, name: str) -> Sequence[float] | None:
    """The scores by which a ranking orders the candidates; None if it was not run."""
    if name == WEIGHTED:
        return list(record["proxy"])
    known = {rival["name"]: rival["proxy"] for rival in record["rivals"]}
    return known.get(name)


def _agreement(record: Record, scores: Sequence[float] | None) -> tuple[float, float] | None:
    """Spearman's correlation with validation and test results."""
    if scores is None or None in scores:
        return None
    both = (np.asarray(record[part]) for part in ("truth", "test"))
    val, test = (spearman(known, np.asarray(scores)) for known in both)
    return float(val), float(test)


def _cell(values: Sequence[tuple[float, float] | None]) -> str:
    """Both means; the smallest and largest of the first if there are several."""
    if not values or None in values:
        return "not run"
    known = np.asarray(values, np.float64)
    val, test = known.mean(0)
    spread = f" ({known[:, 0].min():.2f} - {known[:, 0].max():.2f})" if len(known) > 1 else ""
    return f"{val:.3f}{spread} / {test:.3f}"
