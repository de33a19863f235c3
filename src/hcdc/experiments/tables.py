"""Writes the tables and figures of the documents from the records in the repository.

    python -m hcdc.experiments.tables

Without arguments it takes all records and documents of the repository, whose root is the working folder. With
``FILE.jsonl ... FILE.md`` it takes these alone: a table then knows no other records.

In each document, table NAME replaces the text between ``<!-- NAME -->`` and ``<!-- /NAME -->``. NAME is one
of `TABLES`, of `hcdc.experiments.reproduced_tables` or of `hcdc.experiments.nas201_tables`.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.files import write_atomic
from hcdc.experiments import (
    cell_tables,
    graph_tables,
    pay_tables,
    plan_tables,
    published_tables,
    table_rank_tables,
    trust_tables,
    zoo_tables,
)
from hcdc.experiments._command import as_command
from hcdc.experiments.cell_hypergradient_table import hypergradients_table
from hcdc.experiments.learned_tables import LEARNED_TABLES
from hcdc.experiments.markdown import filled, table_text
from hcdc.experiments.nas201_draws import mean_text
from hcdc.experiments.nas201_figures import write_figures
from hcdc.experiments.nas201_rankings import EARLY, LEARNED, PARAMETERS, RIDGE, SHARED, SUM, kind_of
from hcdc.experiments.nas201_tables import Clock, Judged, nas201_table
from hcdc.experiments.nas201_targets import targets_table
from hcdc.experiments.nas_search_tables import nas_search_table
from hcdc.experiments.recorded_tables import RECORDED_TABLES
from hcdc.experiments.reproduced_tables import REPRODUCED_TABLES, write_reproduced_figures
from hcdc.experiments.reproductions.nas201 import PROTOCOL as NAS201
from hcdc.experiments.search_figure import write_search_figure
from hcdc.experiments.search_tables import SEARCH_TABLES
from hcdc.experiments.speed_table import against_table, speed_table

Record = dict[str, Any]

TABLES: dict[str, tuple[str | None, Callable[[Sequence[Record]], str]]] = {
    "agreement": ("filters-80", graph_tables.agreement_table),
    "gain": ("filters-80", graph_tables.gain_table),
    "by-test": ("filters-80", graph_tables.by_test_table),
    "pick": ("filters-80", graph_tables.pick_table),
    "cost": ("filters-80", graph_tables.cost_table),
    "trainings": ("graphs-cost", graph_tables.trainings_table),
    "pays": ("graphs-pay", pay_tables.pays_table),
    "pays-picks": ("graphs-pay-picks", pay_tables.picks_table),
    "gcn": ("gcn-accuracy", published_tables.gcn_table),
    "convnet": ("convnet-accuracy", published_tables.convnet_table),
    "others": ("filters-80", graph_tables.others_table),
    "zoo": ("gnn-zoo", graph_tables.others_table),
    "zoo-weighted": ("gnn-zoo", zoo_tables.weighted_table),
    "nas-search": ("nas-search", nas_search_table),
    "trust": ("trust-calibration", trust_tables.trust_table),
    "trust-dimensions": ("trust-calibration", trust_tables.dimensions_table),
    "search-trust": ("search-trust", trust_tables.searches_table),
    "tables-rank": ("tables-rank", table_rank_tables.agreement_table),
    "tables-gain": ("tables-rank", table_rank_tables.gain_table),
    "tables-by-test": ("tables-rank", table_rank_tables.by_test_table),
    "tables-cost": ("tables-rank", table_rank_tables.cost_table),
    "cells-edges": ("cells-edges", cell_tables.edges_table),
    "cells-finite": ("cells-finite", cell_tables.finite_table),
    "cells-finite-small": ("cells-finite", functools.partial(cell_tables.finite_table, small=True)),
    "cells-hypergradients": ("cells-hypergradients", hypergradients_table),
    "nas201-cifar10-targets": (NAS201, targets_table),
    "plan-reliability": ("plan-reliability", plan_tables.reliability_table),
    "plan-reliability-pools": ("plan-reliability", plan_tables.pools_table),
    "plan-reliability-apart": ("plan-reliability", plan_tables.apart_table),
    "plan-forecast": (None, plan_tables.forecast_table),
    "speed": (None, speed_table),
    "against": (None, against_table),
    **{name: ("search-learned", write) for name, write in LEARNED_TABLES.items()},
    **{name: ("search-replay", write) for name, write in {**SEARCH_TABLES, **RECORDED_TABLES}.items()},
}
"""The protocol behind each table (None: benchmarks) and the function that writes it, by name."""

HEADLINE = (
    ("**HCDC**, S_val learned (graphs: `both`, images: `probes`)", "hcdc", LEARNED["hcdc-probes"]),
    ("HCDC, S_val from hypergradients alone (`aligned`)", "hcdc-aligned", SHARED["hcdc-aligned"]),
    ("same S_train, real validation set", "real-val", SHARED["real-val"]),
    ("regression on the same full trainings, no copy", "ridge-probes", RIDGE),
    ("that regression + real validation loss", "ridge-and-real-val", f"ridge + real validation loss {SUM}"),
    ("full data, shortened training (graphs: one seed; images: 12 epochs)", "early-stopping", EARLY),
    (
        "shortened training + same S_train, real validation set",
        "early-stopping-and-real-val",
        f"12 epochs + real validation loss {SUM}",
    ),
    ("number of parameters", "parameter-count", PARAMETERS),
)
"""Rows of the short table: description, name in graph records, row of the image table."""


def headline_table(found: Sequence[Record]) -> str:
    """Graphs and images in eight rows, for the README."""
    graphs = graph_tables.scores([r for r in found if r.get("protocol") == "filters-80"])
    cells = [r for r in found if r.get("protocol") == NAS201 and r["dataset"] == "cifar10"]
    judged = Judged([r for r in cells if kind_of(r) == ""])
    clock = Clock.read(found)
    columns = [("cora", 35), ("citeseer", 30)]
    rows = []
    for words, graph, image in HEADLINE:
        reached = [list(graphs[graph].get(column, {}).values()) for column in columns]
        low, high = np.quantile(agreed := judged.agreement(image), [0.05, 0.95])
        total = (judged.full_seconds(image, clock) or 0.0) + judged.copy_seconds(image)
        rows.append(
            [
                words,
                *(graph_tables.cell(values) for values in reached),
                f"{float(agreed.mean()):.3f} [{low:.2f}, {high:.2f}]",
                mean_text(judged.regret(image)["regret"]),
                f"{total:,.0f}",
            ]
        )
    head = ["ranked by", *(f"{name}, filters" for name in graph_tables.head(columns))]
    head += ["CIFAR-10, cells", "its pick, points below the best of 100", "its seconds for 100 cells"]
    return table_text(head, rows)


def table(name: str, found: Sequence[Record]) -> str:
    """A table by its name."""
    if name == "headline":
        return headline_table(found)
    if name in cell_tables.RANKED:
        return cell_tables.ranked_table(name, found)
    if name in REPRODUCED_TABLES:
        return REPRODUCED_TABLES[name](found)
    if name in TABLES:
        protocol, write = TABLES[name]
        if protocol is None:
            return write([r for r in found if "benchmark" in r])
        return write([r for r in found if r.get("protocol") == protocol])
    text = nas201_table(name, [r for r in found if r.get("protocol") == NAS201], Clock.read(found))
    if text is None:
        known = ", ".join((*TABLES, *cell_tables.RANKED, *REPRODUCED_TABLES, "headline"))
        raise InputError(
            f"table '{name}' does not exist or has no records; choose one of: {known}, or nas201-..."
        )
    return text


def read(paths: Sequence[str | Path]) -> list[Record]:
    """Records from files of JSON lines and of single JSON objects."""
    found = [r for path in paths if str(path).endswith(".jsonl") for r in records.read(path)]
    return found + [json.loads(Path(path).read_text()) for path in paths if str(path).endswith(".json")]


ALL = ("records/*.jsonl", "benchmarks/records/*", "docs/**/*.md", "records/history.md", "README.md")
"""Records and documents of the repository."""
FIGURES = Path("docs/figures")


def main(arguments: Sequence[str] | None = None) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("files", nargs="*", help="records (.jsonl, .json) and documents (.md); default: all")
    parser.add_argument("--figures", type=Path, help=f"folder; default with all files: {FIGURES}")
    given = parser.parse_args(arguments)
    if not given.files:
        given.files = sorted(str(path) for pattern in ALL for path in Path().glob(pattern))
        given.figures = given.figures or FIGURES
    if not given.files:
        raise InputError("there are no records here; run this in the repository, or name files")
    found = read(given.files)
    once = functools.cache(lambda name: table(name, found))
    for document in (file for file in given.files if file.endswith(".md")):
        write_atomic(document, filled(Path(document).read_text(), once))
    if given.figures is not None:
        write_figures([r for r in found if r.get("protocol") == NAS201], given.figures)
        write_reproduced_figures(found, given.figures)
        write_search_figure(found, given.figures)


if __name__ == "__main__":
    as_command(main)
