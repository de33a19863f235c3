"""Protocol ``cells-rank``: rank held-out cells by a model of everything known, without learning an S_val.

The model is `hcdc.core.posterior`: what is hoped of a cell from its size, structure, training-free scores and
its loss and accuracy on copies, then Gaussian processes over trainings of 12 and of 200 epochs of other
cells. Nothing is trained here: results come from the benchmark's table and from recorded copies.

    python -m hcdc.experiments.cell_rank --copy records/pools/copy-cifar10-five.jsonl \\
        --before records/nas201-cifar10.jsonl records/nas201-cifar100.jsonl --out F

Judges are `JUDGES` cells that the copy has scored and that no earlier table judged (``--before``). Probes are
drawn from the other cells that the copy has scored; a probe of 200 epochs is one run, the truth is the mean
over runs. Each seed has other probes and leaves out another of the copy's five sets. Settings were chosen on
the cells that this copy has not scored, with another copy (`copy_losses_cifar10.csv.gz`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.condensers import rank_targets
from hcdc.core import records
from hcdc.core.gaussian import fit_scales, kernel
from hcdc.core.posterior import AMPLITUDE, LEVEL, Results, expected_scores, hope
from hcdc.core.ranks import standard, standard_ranks
from hcdc.core.ridge import ridge
from hcdc.core.seeds import numpy_stream
from hcdc.experiments._command import as_command, integers, rounded
from hcdc.experiments.cell_data import CellData
from hcdc.experiments.nas201_rankings import CELLS
from hcdc.experiments.search_pools import PRICES

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PROTOCOL = "cells-rank"
JUDGES = 1024
FREE_SECONDS = PRICES["nas201-cifar10"]["free"]


@dataclass(frozen=True)
class Draw:
    """One draw of probes and of the copy's sets.

    Attributes:
        data: What is known.
        judges: Rows of the cells that judge.
        pool: Rows of the other cells, in random order.
        sets: The sets of the copy in use; none if there is no copy.
        seed: The seed of the draw.
    """

    data: CellData
    judges: Index
    pool: Index
    sets: tuple[int, ...]
    seed: int

    def loss(self, rows: Index) -> Array:
        """Minus the loss on the copy, mean over its sets."""
        found: Array = -self.data.loss[rows][:, self.sets].mean(1)
        return found

    def accuracy(self, rows: Index) -> Array:
        """The accuracy on the copy, mean over its sets."""
        found: Array = self.data.accuracy[rows][:, self.sets].mean(1)
        return found

    def figures(self, rows: Index, copy: bool = True) -> Array:
        """What promises a good cell ``[n, k]``: size, structure, training-free scores, loss and accuracy."""
        free = [self.data.free[name][rows] for name in ("jacov", "synflow")]
        copied = [self.loss(rows), self.accuracy(rows)] if copy and self.sets else []
        found: Array = np.c_[self.data.size[rows], self.data.promises[rows], *free, *copied]
        return found

    def full(self, rows: Index) -> Array:
        """Validation accuracy after one run of 200 epochs."""
        return self.data.one_run(rows, numpy_stream(self.seed, "cells-rank-run"))


def hoped(draw: Draw, copy: bool = True) -> Array:
    """No training on the full data: the sum of the ranks of cheap figures."""
    return hope(draw.figures(draw.judges, copy))


def summed(draw: Draw, names: Sequence[str]) -> Array:
    """The sum of the ranks of some figures of the judging cells."""
    rows, data = draw.judges, draw.data
    known: Mapping[str, Callable[[], Array]] = {
        "loss": lambda: draw.loss(rows), "accuracy": lambda: draw.accuracy(rows),
        "parameters": lambda: data.size[rows], "short": lambda: data.short[rows], "hope": lambda: hoped(draw),
        **{name: partial(lambda column: column[rows], column) for name, column in data.free.items()},
    }  # fmt: skip
    return hope(np.stack([known[name]() for name in names], 1))


def modelled(draw: Draw, short: int = 0, long: int = 0, own: bool = False, top: bool = False) -> Array:
    """The posterior given ``short`` trainings of 12 and ``long`` ones of 200 epochs of other cells.

    Args:
        own: Every judging cell and every probe has been trained for 12 epochs too.
        top: The long probes are the most hopeful ones of 100 cells, not random ones.
    """
    others = draw.pool[: max(short + long, CELLS if top else 0)]
    rows, count = np.concatenate([draw.judges, others]), len(draw.judges)
    before = hope(draw.figures(rows))
    order = np.argsort(-before[count:], kind="stable") if top else np.arange(len(others))
    probes = count + order[:long]
    brief = np.arange(count + long, len(rows)) if short else np.arange(len(rows) if own else 0)
    shorts = [Results(brief, draw.data.short[rows[brief]])] if len(brief) else []
    full = Results(probes, draw.full(rows[probes])) if long else None
    return expected_scores(draw.data.structure[rows], before, shorts, full, draw.data.size[rows])[:count]


def regressed(draw: Draw, count: int, of: str = "long", beside: Sequence[str] = ("loss",)) -> Array:
    """Rival: ridge regression of the ranks of probes on structure, plus the ranks of other figures."""
    probes = draw.pool[:count]
    target = draw.full(probes) if of == "long" else draw.data.short[probes]
    known = draw.data.structure
    found = standard(ridge(known[probes], rank_targets(target.tolist()).numpy(), known[draw.judges]))
    return _with(draw, found, beside)


def processed(draw: Draw, count: int, of: str = "long", beside: Sequence[str] = ()) -> Array:
    """Rival: one plain Gaussian process on structure, loss and accuracy, plus the ranks of other figures."""
    probes = draw.pool[:count]
    rows = np.concatenate([draw.judges, probes])
    target = draw.full(probes) if of == "long" else draw.data.short[probes]
    raw = np.c_[draw.data.structure[rows], draw.loss(rows), draw.accuracy(rows)]
    features = np.stack([standard(column) for column in raw.T], 1)
    at, ranks = features[len(draw.judges) :], rank_targets(target.tolist()).numpy()
    level = np.full((count, count), LEVEL**2)
    scales = fit_scales(at, ranks, level, AMPLITUDE, numpy_stream(draw.seed, "cells-rank-process"))
    within = level + kernel(at, at, scales) + scales.noise**2 * np.eye(count)
    reach = kernel(features[: len(draw.judges)], at, scales) + LEVEL**2
    return _with(draw, standard(reach @ np.linalg.solve(within, ranks)), beside)


def _with(draw: Draw, found: Array, beside: Sequence[str]) -> Array:
    """Predictions plus the ranks of other figures."""
    for name in beside:
        found = found + standard_ranks(summed(draw, [name]))
    return found


@dataclass(frozen=True)
class Row:
    """A ranking.

    Attributes:
        rank: Its function.
        short, long: Trainings of 12 and of 200 epochs that it uses, for a search among 100 cells.
        copies: Other cells trained on the copy; None if it uses no copy.
        probes: Whether it depends on the draw of probes.
    """

    rank: Callable[[Draw], Array]
    short: int = 0
    long: int = 0
    copies: int | None = None
    probes: bool = False

    def copy_seconds(self, each: float) -> float:
        """Seconds on copies and for training-free scores, for a search among 100 cells."""
        cells = CELLS + self.short * self.probes + self.long
        return cells * FREE_SECONDS + (0.0 if self.copies is None else (CELLS + self.copies) * each)


def _model(short: int = 0, long: int = 0, top: bool = False) -> Row:
    copies = CELLS if top else short + long
    return Row(partial(modelled, short=short, long=long, top=top), short, long, copies, True)


def _sum(*names: str) -> Row:
    copies = 0 if {"loss", "accuracy", "hope"} & set(names) else None
    return Row(partial(summed, names=names), CELLS * ("short" in names), 0, copies)


def _own(long: int) -> Row:
    rank = partial(modelled, long=long, own=True)
    return Row(rank, CELLS + long, long, long, long > 0)


def _rival(rank: Callable[..., Array], short: int = 0, long: int = 0, beside: Sequence[str] = ()) -> Row:
    own = CELLS * ("short" in beside)
    made = partial(rank, count=short or long, of="short" if short else "long", beside=beside)
    return Row(made, short + own, long, 0 if rank is regressed else short + long, True)


MIXED = ((0, 32), (0, 64), (0, 127), (0, 325), (8, 195), (12, 130), (16, 65), (20, 0))
"""Trainings of 200 and of 12 epochs; the last five cost the same seconds."""
ROWS: dict[str, Row] = {
    "hope": Row(hoped, copies=0), "hope-free": Row(partial(hoped, copy=False)),
    "jacov-parameters": _sum("jacov", "parameters"), "loss": _sum("loss"),
    "loss-accuracy": _sum("loss", "accuracy"), "four": _sum("synflow", "nwot", "jacov", "loss"),
    "parameters": _sum("parameters"),
    **{f"model-{long}-{short}": _model(short, long) for long, short in MIXED},
    "model-top": _model(long=20, top=True),
    "ridge-127": _rival(regressed, short=127, beside=("loss",)),
    "process-127": _rival(processed, short=127),
    "process-127-sum": _rival(processed, short=127, beside=("jacov", "parameters")),
    "process-127-hope": _rival(processed, short=127, beside=("hope",)),
    "ridge-325": _rival(regressed, short=325, beside=("loss",)),
    "process-325-sum": _rival(processed, short=325, beside=("jacov", "parameters")),
    "ridge-20": _rival(regressed, long=20, beside=("loss",)),
    "ridge-20-accuracy": _rival(regressed, long=20, beside=("loss", "accuracy")),
    "ridge-20-hope": _rival(regressed, long=20, beside=("hope",)),
    "process-20": _rival(processed, long=20),
    "process-20-sum": _rival(processed, long=20, beside=("jacov", "parameters")),
    "own": _own(0), "own-20": _own(20), "short": _sum("short"),
    "jacov-parameters-short": _sum("jacov", "parameters", "short"), "loss-short": _sum("loss", "short"),
    "hope-short": _sum("hope", "short"),
    "ridge-20-short": _rival(regressed, long=20, beside=("loss", "short")),
}  # fmt: skip
"""Rankings of CIFAR-10 by name."""
WITHOUT_COPY = {
    **{name: ROWS[name] for name in (
        "hope-free", "jacov-parameters", "parameters", "model-20-0", "model-0-127", "model-0-325", "own",
        "own-20", "short", "jacov-parameters-short",
    )},
    "ridge-20": _rival(regressed, long=20),
    "ridge-20-sum": _rival(regressed, long=20, beside=("jacov", "parameters")),
}  # fmt: skip
"""Rankings of CIFAR-100, whose cells were trained on no copy."""


def judging(data: CellData, scored: NDArray[np.bool_], before: Sequence[str | Path]) -> Index:
    """Rows of the cells that judge: scored on the copy, and never judged in the records ``before``."""
    judged = {
        cell
        for file in before
        for line in records.read(file)
        if line["label"] == "truth"
        for cell in line["cells"]
    }
    fresh = np.array([row for row in np.flatnonzero(scored).tolist() if data.cells[row] not in judged])
    return np.sort(numpy_stream(0, PROTOCOL).permutation(fresh)[:JUDGES])


def run(
    dataset: str, data: Path, copy: Path, before: Sequence[str | Path], seeds: Sequence[int], out: Path
) -> None:
    """Rank the judging cells by every row; appends the truth and one record per row and seed to ``out``."""
    scored = CellData.read(data, copy)
    known = scored if dataset == "cifar10" else CellData.read(data, None, dataset)
    judges = judging(scored, scored.copied, before)
    others = np.setdiff1d(np.flatnonzero(scored.copied), judges)
    told: dict[str, Any] = {
        "protocol": PROTOCOL,
        "dataset": dataset,
        "environment": records.environment("cpu"),
    }
    percent = {part: (getattr(known, part)[judges] / 100).tolist() for part in ("val", "test")}
    cells = [known.cells[row] for row in judges.tolist()]
    records.append(out, {**told, "label": "truth", "cells": cells, **rounded(percent)})
    rows, sets = (ROWS, known.loss.shape[1]) if dataset == "cifar10" else (WITHOUT_COPY, 0)
    for seed in seeds:
        left_out = seed % max(sets, 1)
        pool = numpy_stream(seed, "cells-rank-probes").permutation(others)
        draw = Draw(known, judges, pool, tuple(k for k in range(sets) if k != left_out), seed)
        each = scored.seconds * len(draw.sets) / scored.loss.shape[1]
        for name, row in rows.items():
            copied = row.copies is not None and bool(sets)
            if seed >= (len(seeds) if row.probes else sets if copied else 1) + min(seeds):
                continue  # it would repeat an earlier one
            records.append(out, rounded({
                **told, "label": name, "seed": seed, "copy": left_out if copied else None,
                "probes": row.probes, "short": row.short, "long": row.long,
                "seconds": row.copy_seconds(each if copied else 0.0),
                "scores": [float(f"{score:.4g}") for score in row.rank(draw)],
            }))  # fmt: skip


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--dataset", choices=("cifar10", "cifar100"), default="cifar10")
    parser.add_argument("--copy", type=Path, required=True, help="records of hcdc.experiments.copy_pool")
    parser.add_argument("--before", nargs="+", default=[], help="records of tables that judged other cells")
    parser.add_argument("--seeds", default=",".join(map(str, range(10))))
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    given = parser.parse_args()
    folder = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
    seeds = integers("--seeds", given.seeds)
    run(given.dataset, folder, given.copy, given.before, seeds, given.out)


if __name__ == "__main__":
    as_command(main)
