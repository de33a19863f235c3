"""Figures of protocol ``nas201``: 100 cells in the order of each ranking, coloured by true rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hcdc.core.errors import InputError
from hcdc.core.ranks import calibration, spearman
from hcdc.core.results import Evaluation
from hcdc.experiments.nas201_draws import Indices, Samples, draws, pooled
from hcdc.experiments.nas201_rankings import (
    ALL,
    LEARNED,
    ONE,
    RIDGE,
    SHARED,
    TARGETS,
    Array,
    Ranking,
    Record,
    Rows,
    kind_of,
    on_same_cells,
    rankings,
    sized,
)
from hcdc.experiments.nas201_tables import PAPER
from hcdc.reporting import rank_colours


def figure(found: Sequence[Record], path: str | Path, of_copies: bool = False) -> Path:
    """Write `typical` as a figure: cells ordered by each row and coloured by true rank."""
    drawn, title = typical(found, of_copies)
    return rank_colours(drawn, path, title)


def typical(found: Sequence[Record], of_copies: bool = False) -> tuple[Evaluation, str]:
    """One draw of 100 cells ranked by one run of each row, and the title of its figure.

    Run and draw are those closest to the means in the table (see `_typical`). ``of_copies`` also shows copies
    of other methods, on the cells that judged them.
    """
    base, rows = on_same_cells(*rankings(found), all_rows=of_copies)
    left_out = [ALL]
    if of_copies:  # show random images once, and no regressions on losses
        name = sized(SHARED["random-val"], base)
        rows = _random_joined(rows, name)
        left_out += [name, ONE, "the random copy's"]
    rows = {name: ranked for name, ranked in rows.items() if not any(part in name for part in left_out)}
    if not any(name.startswith(sized(LEARNED["hcdc-probes"], base)) for name in rows):
        raise InputError("the figure needs a run of HCDC (b), and the records have none")
    every = np.asarray(base["val"])
    chosen, some = _typical(every, rows)
    truth = every[some]
    named = {_in_short(name): one.scores[some] for name, one in chosen.items()}
    ours = next(name for name in named if name.startswith("HCDC (b):"))
    contenders = [
        {
            "name": name,
            "proxy": scores.tolist(),
            "spearman": spearman(truth, scores),
            "calibration": calibration(truth, scores),
            "interval": None,
        }
        for name, scores in named.items()
    ]
    mine = next(one for one in contenders if one["name"] == ours)
    others = [one for one in contenders if one is not mine]
    drawn = {**mine, "method": ours, "truth": truth.tolist(), "rivals": others}
    classes = base["dataset"].removeprefix("cifar")
    of = f"NAS-Bench-201, CIFAR-{classes}, {base['train_size'] // int(classes)} images per class"
    return Evaluation.from_json(drawn), of


def _in_short(name: str) -> str:
    """A short name for a row."""
    for long, short in (("*", ""), (RIDGE, "ridge, 20 probes")):
        name = name.replace(long, short)
    name = re.sub(r"[\d,]+ images learned", "images learned", name)
    name = name.replace(" (2,000 at most)", "").replace(" validation images, by loss", " validation images")
    return name.replace("ridge on operation counts, parameters and", "ridge with")


def _random_joined(rows: Rows, other: str) -> Rows:
    """Add the condensations of row ``other`` to the random copy, as in the table of copies."""
    name = "random copy, calibrated recipe, by loss"
    mine = rows.get(name, [])
    more = [one for one in rows.get(other, []) if one.seed not in {own.seed for own in mine}]
    return {**rows, name: [*mine, *more]} if more else rows


def _typical(truth: Array, rows: Rows) -> tuple[dict[str, Ranking], Indices]:
    """The run of each row closest to the row's mean over draws, and the draw in which these runs are closest
    to the rows' means (least squares)."""
    every = draws(len(truth))
    samples = Samples(truth, every)
    chosen, away = {}, np.zeros(len(every))
    for name, ranked in rows.items():
        reached = [samples.correlations(one.scores) for one in ranked]
        mean = pooled(ranked, reached).mean()
        run = int(np.argmin([abs(values.mean() - mean) for values in reached]))
        chosen[name] = ranked[run]
        away += np.nan_to_num(reached[run] - mean) ** 2
    return chosen, every[away.argmin()]


def write_figures(found: Sequence[Record], folder: Path) -> None:
    """Write one figure per benchmark and kind of records, and one with copies of other methods."""
    kinds = {(r["dataset"], kind_of(r)) for r in found if kind_of(r) not in ("-total", TARGETS)}
    for benchmark, kind in sorted(kinds):
        mine = [r for r in found if (r["dataset"], kind_of(r)) == (benchmark, kind)]
        figure(mine, folder / f"nas201-{benchmark}{kind}.png")
        if benchmark == "cifar10" and any(r["label"] in PAPER for r in mine):
            figure(mine, folder / f"nas201-{benchmark}{kind}-copies.png", of_copies=True)
