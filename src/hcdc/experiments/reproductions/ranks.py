"""``ranks``: candidates in the order of each ranking, coloured by their true rank (fig:ranks).

``small`` and ``paper`` draw cells from records of ``nas201``, one file each; nothing is trained. ``smoke``
ranks a few filters of a graph instead. Cells and runs are those closest to the means over all draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.results import Evaluation
from hcdc.experiments.nas201_figures import typical
from hcdc.experiments.nas201_rankings import kind_of
from hcdc.experiments.nas201_tables import PAPER
from hcdc.experiments.reproductions._frame import Record, Reproduction, Scale, Table, Unit, Work, register
from hcdc.experiments.reproductions.filters_80 import QUICK, Filters80
from hcdc.reporting import draw_rank_colours

FILTERS, COPIES = "filters", "-eight"
"""The source that is no file; the kind of records with copies of all methods."""
NAMES = {
    "HCDC (a):": 0.74, "random copy": PAPER["random"], "K-Center": PAPER["kcenter"],
    "Herding": PAPER["herding"], **{name: PAPER[name.lower()] for name in ("DC", "DSA", "DM", "KIP", "TM")},
}  # fmt: skip
"""Beginnings of the rows' names, and the paper's correlations on CIFAR-10.

The paper learns S_val from hypergradients alone. That is HCDC (a); the other ways also have probes.
"""


@register
@dataclass(frozen=True)
class Ranks(Reproduction):
    """One figure of rankings.

    Attributes:
        sources: Files of records of ``nas201``; those with copies of all methods are drawn. ``filters`` ranks
            a few filters instead.
    """

    sources: tuple[str, ...] = ("records/nas201-cifar10.jsonl",)

    name = "ranks"
    label = "fig:ranks"
    title = "cells in the order of each ranking, coloured by true rank"
    axes = ("sources",)
    scales: ClassVar = {
        "smoke": Scale({"sources": (FILTERS,)}),
        "small": Scale(takes="seconds, from records of nas201"),
        "paper": Scale(takes="seconds, from records of nas201"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [self.unit(seed, source=source) for seed in seeds for source in self.sources]

    def check(self, unit: Unit, work: Work) -> None:
        if unit["source"] != FILTERS and not Path(unit["source"]).exists():
            raise InputError(
                f"--set sources={unit['source']}: no such file; records of 'hcdc reproduce nas201' are needed"
            )

    def run(self, unit: Unit, work: Work) -> list[Record]:
        if unit["source"] == FILTERS:
            quick = Filters80.from_preset(overrides={**QUICK, "methods": ("hcdc",)})
            made = quick.units([unit["seed"]])[0]
            small = work.copy(quick.planned(made, work))
            found = quick.judged(made, small, work, rivals=True)
            return [{"seed": unit["seed"], "title": "filters of a small graph", "ranked": found}]
        every = [r for r in records.read(unit["source"]) if r.get("protocol") == "nas201"]
        mine = [r for r in every if kind_of(r) == COPIES]
        if not mine:
            raise InputError(
                f"--set sources={unit['source']}: no records of nas201 with eight initialisations, which "
                "have the copies of all methods"
            )
        drawn, title = typical(mine, of_copies=True)
        return [{"seed": unit["seed"], "title": title, "ranked": drawn.to_json()}]

    def table(self, found: Sequence[Record]) -> Table:
        rows = []
        for record in found:
            drawn = Evaluation.from_json(record["ranked"])
            ranked = [(drawn.method, drawn.spearman, drawn.calibration)]
            ranked += [(one.name, one.spearman, one.calibration) for one in drawn.rivals]
            for name, value, pairs in sorted(ranked, key=lambda one: -(one[1] or -2.0)):
                paper = [f"{printed:.2f}" for start, printed in NAMES.items() if name.startswith(start)]
                text = "undefined" if value is None else f"{value:.2f}"
                share = "undefined" if pairs is None else f"{pairs:.2f}"
                rows.append([record["title"], name, text, *(paper[:1] or [""]), share])
        head = ["candidates", "ranked by", "Corr. on those drawn", "paper", "pairs in order"]
        if all(row[-1] == "undefined" for row in rows):  # older records hold no shares
            head, rows = head[:-1], [row[:-1] for row in rows]
        return Table(head, rows)

    def draw(self, found: Sequence[Record]) -> Any:
        """The first record."""
        return draw_rank_colours([Evaluation.from_json(found[0]["ranked"])], found[0]["title"])
