"""Tables and figures of ``hcdc reproduce`` from its records, and where HCDC stands in each.

Older records have no unit; what tables read of it is in the record itself.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.core.ranks import Interval, mean_interval
from hcdc.experiments.graph_tables import COPIES, PAPER, RIVALS, key, scores
from hcdc.experiments.images_table import cells_beside, images_table
from hcdc.experiments.markdown import table_text
from hcdc.experiments.nas201_draws import pooled
from hcdc.experiments.nas201_rankings import kind_of
from hcdc.experiments.nas201_tables import Judged
from hcdc.experiments.pipeline_figure import draw_pipeline
from hcdc.experiments.reproductions import REPRODUCTIONS
from hcdc.experiments.reproductions.cross_validation import PAPER as PAPER_FOLDS
from hcdc.experiments.reproductions.cross_validation import ROWS as FOLD_ROWS
from hcdc.experiments.reproductions.cross_validation import agreed, folds_in_order
from hcdc.experiments.reproductions.filters_80 import in_order
from hcdc.experiments.reproductions.nested_problems import WORDS as NESTED_WORDS
from hcdc.experiments.standing import LEVEL, Other, Reached, place, plain
from hcdc.experiments.zoo_tables import ROWS, SPACES, WEIGHTED
from hcdc.reporting import write_figure

Record = dict[str, Any]

TABLED = (
    "ablations",
    "adjacency-overfit",
    "cross-validation",
    "gnn-manifold",
    "gnn-transfer",
    "graph-nas-curve",
    "graphs-rank",
    "learned-images",
    "loss-landscape",
    "nested-problems",
    "ranks",
    "trajectories",
)
"""Results whose own table stands on the page."""
NOT_RUN = [["not run"]]


def own(name: str, found: Sequence[Record]) -> list[Record]:
    """The records of a result that its table can read, at one scale for each data set: the settings that the
    most have."""
    mine = [r for r in found if r.get("protocol") == REPRODUCTIONS[name].protocol and "unit" in r]
    settings = [
        (r["unit"].get("benchmark", r["unit"].get("dataset")), repr(r["unit"]["settings"])) for r in mine
    ]
    counts = Counter(settings)
    most = {dataset: given for (dataset, given), _ in reversed(counts.most_common())}
    return [r for r, (dataset, given) in zip(mine, settings) if most[dataset] == given]


def reproduced_table(name: str, found: Sequence[Record]) -> str:
    """A result's own table, and its notes below."""
    mine = own(name, found)
    if not mine:
        return table_text(["result"], NOT_RUN)
    made = REPRODUCTIONS[name]().table(mine)
    rows = [row for row in made.rows if "not run" not in row]
    return "\n".join([table_text(made.head, rows), *(f"\n{sentence(note)}" for note in made.notes)])


def sentence(note: str) -> str:
    """A note with a capital and a full stop."""
    return f"{note[0].upper()}{note[1:]}."


def write_reproduced_figures(found: Sequence[Record], folder: Path) -> None:
    """Write the diagram, and the figure of every result that has one and records of its own."""
    write_figure(draw_pipeline(), folder / "pipeline.png")
    for name in TABLED:
        mine = own(name, found)
        drawn = REPRODUCTIONS[name]().draw(mine) if mine else None
        if drawn is not None:
            write_figure(drawn, folder / f"{name}.png")


# --- where HCDC stands --------------------------------------------------------------------------------------


def beside(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Other | None:
    """The mean of another ranking over its seeds, and HCDC's gain over it on the seeds of both."""
    own, other = ({s: v for s, v in some.items() if not math.isnan(v)} for some in (ours, theirs))
    gains = [own[seed] - other[seed] for seed in own.keys() & other.keys()]
    if not other:
        return None
    mean = sum(other.values()) / len(other)
    return mean, mean_interval(gains)[1] if gains else Interval(math.nan, math.nan, LEVEL)


def reached(values: Sequence[float]) -> Reached | None:
    """Mean and interval of the defined values."""
    known = [value for value in values if not math.isnan(value)]
    return mean_interval(known) if known else None


def text(found: Reached) -> str:
    """A correlation, with its interval within [-1, 1] if it has one."""
    mean, interval = found
    if math.isnan(interval.low):
        return f"{mean:.2f}"
    return f"{mean:.2f} [{max(interval.low, -1):.2f}, {min(interval.high, 1):.2f}]"


def share(values: Sequence[float | None]) -> str:
    """A share of pairs in order: the mean of the defined values."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return f"{sum(known) / len(known):.2f}" if known else ""


Row = tuple[str, str, Reached, str, str, dict[str, Other], dict[str, Other]]
"""Result, setting, HCDC's figure, its share of pairs in order, the paper's figure, and the figures of other
copies and of other rankings."""


def graph_rows(
    found: Sequence[Record], label: str, paper: Mapping[Any, float], way: str = "hcdc"
) -> list[Row]:
    """One row per graph and size.

    Args:
        found: Records of one protocol and space.
        label: The paper's name of the result.
        paper: Its figures by graph and size.
        way: Label of HCDC's records; what others of its ways had beside them does not count.
    """
    some = [r for r in found if r["label"] == way or not r["label"].startswith("hcdc")]
    table, rows = scores(some), []
    for column in dict.fromkeys(key(r) for r in some if r["label"] == way):
        own = table[way][column]
        mine = reached(list(own.values()))
        if mine is None:
            continue
        every = {name: beside(own, by.get(column, {})) for name, by in table.items()}
        known = {name: value for name, value in every.items() if value is not None}
        copies = {plain(COPIES[n]): v for n, v in known.items() if n in COPIES and n != way}
        others = {n: words for n, words in (ROWS if way == WEIGHTED else RIVALS).items() if n != way}
        rivals = {plain(words): known[n] for n, words in others.items() if n in known}
        printed = f"{paper[column]:.2f}" if column in paper else "none"
        told = ", weighted validation nodes" if way == WEIGHTED else ""
        pairs = share([in_order(r, r) for r in some if r["label"] == way and key(r) == column])
        setting = f"{column[0]}, {column[1]} nodes{told}"
        rows.append((label, setting, mine, pairs, printed, copies, rivals))
    return rows


def zoo_rows(found: Sequence[Record]) -> list[Row]:
    """Rows of ``gnn-zoo`` and of NAS-Bench-Graph, whose networks are ranked in two ways."""
    rows = []
    for space, words in SPACES.items():
        some = [r for r in found if r.get("protocol") == "gnn-zoo" and r["space"]["name"] == space]
        for way in ("hcdc", WEIGHTED):
            rows += graph_rows(some, f"tab:gnns, {words}", {}, way)
    return rows


CELLS = {
    ("cifar10", ""): ("CIFAR-10, 512 cells", "0.74 ± .21"),
    ("cifar10", "-eight"): ("CIFAR-10, copies of all methods", "0.74 ± .21"),
    ("cifar10", "-total"): ("CIFAR-10, 50 per class in all", "0.74 ± .21"),
    ("cifar100", "-steps"): ("CIFAR-100, 50 per class", "0.63 ± .13"),
}
"""Kinds of records of ``nas201`` in words, and the paper's figure."""


def cell_rows(found: Sequence[Record]) -> list[Row]:
    """One row per kind of records of ``nas201``: means over runs and draws of 100 cells, 5 - 95 % of them.

    Gains are intervals of the mean, over cells, condensations and draws of probes.
    """
    rows = []
    for (benchmark, kind), (words, printed) in CELLS.items():
        cells = [r for r in found if r.get("protocol") == "nas201" and r["dataset"] == benchmark]
        mine = [r for r in cells if kind_of(r) == kind]
        if not any(r["label"] == "hcdc-probes" for r in mine):
            continue
        judged = Judged(mine, some=kind in ("-eight", "-total"))
        values = judged.agreement(judged.mine)
        low, high = np.nanquantile(values, [0.05, 0.95])
        ours = float(np.nanmean(values)), Interval(float(low), float(high), LEVEL)
        pairs = pooled(judged.rows[judged.mine], judged.in_order(judged.mine))
        others = cells_beside(judged)
        copies = {n: v for n, v in others.items() if " copy, " in n}
        rivals = {n: v for n, v in others.items() if n not in copies}
        rows.append(("tab:images", words, ours, share(list(pairs)), printed, copies, rivals))
    return rows


def fold_rows(found: Sequence[Record]) -> list[Row]:
    """One row per c/n of ``cross-validation``, by loss."""
    mine, rows = own("cross-validation", found), []
    for percent in sorted({r["percent"] for r in mine}):
        some = [r for r in mine if r["percent"] == percent]
        figures = {name: {r["seed"]: agreed(r, name, "loss") for r in some} for name in FOLD_ROWS}
        ours = reached(list(figures["hcdc"].values()))
        if ours is None:
            continue
        every = {name: beside(figures["hcdc"], values) for name, values in figures.items()}
        known = {name: value for name, value in every.items() if value is not None}
        copies = {FOLD_ROWS[n]: known[n] for n in ("random", "gm", "dm") if n in known}
        rivals = {FOLD_ROWS[n]: known[n] for n in ("early", "gm-real") if n in known}
        printed = PAPER_FOLDS.get(f"{percent}%", {}).get("hcdc", "none")
        pairs = share([folds_in_order(r, "hcdc") for r in some])
        rows.append(("tab:cv-image", f"c/n {percent} %", ours, pairs, printed, copies, rivals))
    return rows


def nested_rows(found: Sequence[Record]) -> list[Row]:
    """One row of ``nested-problems``: HCDC by cosines, beside the nested problems."""
    mine = own("nested-problems", found)
    figures = {name: {r["seed"]: r["found"][name]["spearman"] for r in mine} for name in NESTED_WORDS}
    ours = reached(list(figures["hcdc"].values()))
    if ours is None:
        return []
    others: dict[str, Other] = {}
    for name, words in NESTED_WORDS.items():
        other = None if name.startswith("hcdc") else beside(figures["hcdc"], figures[name])
        if other is not None:
            others[words] = other
    pairs = share([r["found"]["hcdc"].get("calibration") for r in mine])
    return [("eq. (HCDC-bl)", "tiny tables", ours, pairs, "none", others, {})]


def standings_table(found: Sequence[Record]) -> str:
    """Where HCDC stands in every ranking that has records: among copies, and among all ways to rank."""
    rows = [
        *cell_rows(found),
        *graph_rows([r for r in found if r.get("protocol") == "filters-80"], "tab:graphs", PAPER),
        *zoo_rows(found),
        *fold_rows(found),
        *nested_rows(found),
    ]
    lines = [
        [
            label,
            setting,
            text(ours),
            paper,
            pairs,
            place(ours[0], copies),
            place(ours[0], {**copies, **rivals}),
        ]
        for label, setting, ours, pairs, paper, copies, rivals in rows
    ]
    head = [
        "result",
        "setting",
        "HCDC's Corr.",
        "paper",
        "pairs in order",
        "among copies, HCDC is",
        "among all rankings, HCDC is",
    ]
    return table_text(head, lines or [["not run", *[""] * 6]])


def listing_table(found: Sequence[Record]) -> str:
    """Every name of ``hcdc reproduce``, its scales and its records."""
    rows = []
    for name, kind in sorted(REPRODUCTIONS.items()):
        mine = [r for r in found if kind.owns(r)]
        # where records do not name their seed, their units do
        seeds = {r["seed"] for r in mine if "seed" in r} or {r["unit"]["seed"] for r in mine if "unit" in r}
        seeds -= {None}
        told = f"{len(mine)}" + (f", {len(seeds)} seed{'s' if len(seeds) > 1 else ''}" if seeds else "")
        rows.append([
            f"`{name}`", kind.label, kind.title, kind.scales["small"].takes, told if mine else "none",
        ])  # fmt: skip
    return table_text(["name", "in the paper", "what it measures", "`small` takes", "records"], rows)


REPRODUCED_TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    "standings": standings_table,
    "reproductions": listing_table,
    "reproduced-images-rank": images_table,
    "reproduced-images-rank-small": functools.partial(reproduced_table, "images-rank"),
    **{f"reproduced-{name}": functools.partial(reproduced_table, name) for name in TABLED},
}
"""The tables by name; each takes all records."""
