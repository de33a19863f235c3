"""Protocol ``cells-rank``: rank held-out cells by a model of everything known, without learning an S_val.

The model is `hcdc.core.posterior`: what cheap figures promise (size, structure, training-free scores, loss
and accuracy on copies), then Gaussian processes over trainings of 12 and of 200 epochs of other cells.
Nothing is trained here: results come from the benchmark's table and from recorded copies.

    python -m hcdc.experiments.cell_rank --copy records/pools/copy-cifar10-five.jsonl --out F \\
        --supernet records/pools/supernet-cifar10.jsonl \\
        --before records/nas201-cifar10.jsonl records/nas201-cifar100.jsonl records/cells-rank-first.jsonl

Judges are `JUDGES` cells that the copy has scored and that no earlier table judged (``--before``). Probes and
companions are drawn from the other cells that the copy has scored; a probe of 200 epochs is one run, the
truth is the mean over runs. Each seed has other probes and leaves out another of the copy's five sets.
Settings were chosen on the cells that this copy has not scored, with another copy
(`copy_losses_cifar10.csv.gz`), and on the judges of the first version (`records/cells-rank-first.jsonl`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.gaussian import fit_scales, kernel
from hcdc.core.posterior import AMPLITUDE, LEVEL, Results, corrected, expected_scores, ranks_summed
from hcdc.core.ranks import standard, standard_ranks
from hcdc.core.ridge import ridge
from hcdc.core.seeds import numpy_stream
from hcdc.experiments._command import as_command, check_names, integers, rounded
from hcdc.experiments.cell_data import CellData
from hcdc.experiments.nas201_draws import PROBES
from hcdc.experiments.nas201_rankings import CELLS
from hcdc.experiments.search_pools import PRICES

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PROTOCOL = "cells-rank"
JUDGES = 1024
COMPANIONS = 256
"""Other cells trained on the copy, from which its noise is learned."""
FREE_SECONDS = PRICES["nas201-cifar10"]["free"]


@dataclass(frozen=True)
class Draw:
    """One draw of probes and of the copy's sets.

    Attributes:
        data: What is known.
        judges: Rows of the cells that judge.
        pool: Rows of the other cells, in random order: probes from its start, companions from its end.
        sets: The sets of the copy in use; none if there is no copy.
        seed: The seed of the draw.
    """

    data: CellData
    judges: Index
    pool: Index
    sets: tuple[int, ...]
    seed: int

    @cached_property
    def rows(self) -> Index:
        """The judging cells, then the pool."""
        return np.concatenate([self.judges, self.pool])

    @cached_property
    def raw(self) -> dict[str, Array]:
        """Minus the loss, and the accuracy on the copy, means over its sets, of all `rows`."""
        if not self.sets:
            return {}
        loss, accuracy = (
            part[self.rows][:, self.sets].mean(1) for part in (self.data.loss, self.data.accuracy)
        )
        return {"loss": -loss, "accuracy": accuracy}

    @cached_property
    def corrected(self) -> dict[str, Array]:
        """`raw` with less noise."""
        companions = np.arange(len(self.rows) - COMPANIONS, len(self.rows))
        structure = self.data.structure[self.rows]
        return {name: corrected(structure, values, companions) for name, values in self.raw.items()}

    def figures(self, count: int, copy: str = "corrected") -> dict[str, Array]:
        """What promises a good cell, by name, of the first ``count`` of `rows`.

        Args:
            copy: Figures of the copy: ``"corrected"``, ``"raw"`` or ``""`` for none.
        """
        known = {"parameters": self.data.size, **self.data.promises, **self.data.free}
        found = {name: values[self.rows[:count]] for name, values in known.items()}
        return found | (
            {name: values[:count] for name, values in getattr(self, copy).items()} if copy else {}
        )

    def described(self, count: int) -> Array:
        """Structure and operations of the first ``count`` of `rows`."""
        some = self.rows[:count]
        found: Array = np.c_[self.data.structure[some], self.data.encoded[some]]
        return found

    def full(self, probes: Index) -> Array:
        """Validation accuracy after one run of 200 epochs."""
        return self.data.one_run(probes, numpy_stream(self.seed, "cells-rank-run"))


def hoped(draw: Draw, copy: str = "corrected") -> Array:
    """No training on the full data: the sum of the ranks of cheap figures."""
    return ranks_summed(draw.figures(len(draw.judges), copy))


def summed(draw: Draw, names: Sequence[str]) -> Array:
    """The sum of the ranks of some figures of the judging cells; figures of the copy are raw."""
    figures = draw.figures(len(draw.judges), "raw")
    figures |= {"short": draw.data.short[draw.judges]}
    if draw.data.one_shot is not None:
        figures["one-shot"] = -draw.data.one_shot.loss[draw.judges]
    if "hope" in names:
        figures["hope"] = hoped(draw)
    figures |= {f"{name}-corrected": values[: len(draw.judges)] for name, values in draw.corrected.items()}
    return ranks_summed({name: figures[name] for name in names})


def modelled(draw: Draw, short: int = 0, long: int = 0, top: bool = False) -> Array:
    """The model, given ``short`` trainings of 12 and ``long`` ones of 200 epochs of other cells.

    Args:
        top: The long probes are those of 100 cells that promise most, not random ones.
    """
    judges = len(draw.judges)
    count = judges + max(short + long, CELLS if top else 0)
    figures = draw.figures(count)
    probes = judges + np.arange(long)
    if top:
        probes = judges + np.argsort(-ranks_summed(figures)[judges:], kind="stable")[:long]
    brief = judges + long + np.arange(short)
    shorts = [Results(brief, draw.data.short[draw.rows[brief]])] if short else []
    full = Results(probes, draw.full(draw.rows[probes])) if long else None
    return expected_scores(draw.described(count), figures, shorts, full)[:judges]


def own(draw: Draw, long: int = 0) -> Array:
    """The model, given 12 epochs of every candidate, and ``long`` probes of 12 and of 200 epochs.

    A cell is one of 100 candidates. Its 99 fellows differ between draws of 100 cells, so 99 other random
    cells stand in for them.
    """
    judges = len(draw.judges)
    count = judges + CELLS - 1
    results = Results(np.arange(count), draw.data.short[draw.rows[:count]], np.arange(judges, count))
    probes = judges + np.arange(long)
    full = Results(probes, draw.full(draw.rows[probes])) if long else None
    return expected_scores(draw.described(count), draw.figures(count), [results], full)[:judges]


def companions(draw: Draw, model: bool) -> Array:
    """What companions are expected to reach when an S_val is learned from 20 probes, plus minus their loss.

    Args:
        model: Expect what the model does without a copy; otherwise a ridge regression on operation counts.
    """
    count, judges = len(draw.judges) + PROBES, len(draw.judges)
    if model:
        probes = Results(judges + np.arange(PROBES), draw.full(draw.pool[:PROBES]))
        found = expected_scores(draw.described(count), draw.figures(count, ""), full=probes)[:judges]
    else:
        known = draw.data.features
        found = ridge(known[draw.pool[:PROBES]], _target(draw, PROBES, "long"), known[draw.judges])
    return standard(found) + standard(draw.raw["loss"][:judges])


def _target(draw: Draw, count: int, of: str) -> Array:
    """Standardised ranks of the first ``count`` of the pool after 12 or 200 epochs."""
    probes = draw.pool[:count]
    return standard_ranks(draw.full(probes) if of == "long" else draw.data.short[probes])


def regressed(draw: Draw, count: int, of: str, beside: Sequence[str]) -> Array:
    """Rival: ridge regression of the ranks of probes on structure, plus the ranks of other figures."""
    known = draw.data.structure
    found = standard(ridge(known[draw.pool[:count]], _target(draw, count, of), known[draw.judges]))
    return _with(draw, found, beside)


def processed(draw: Draw, count: int, of: str, beside: Sequence[str]) -> Array:
    """Rival: one plain Gaussian process on structure, operations, loss and accuracy, plus other figures."""
    judges = len(draw.judges)
    copied = [values[: judges + count] for values in draw.corrected.values()]
    raw = np.c_[draw.described(judges + count), *copied]
    features = np.stack([standard(column) for column in raw.T], 1)
    at, target, level = features[judges:], _target(draw, count, of), np.full((count, count), LEVEL**2)
    scales = fit_scales(at, target, level, AMPLITUDE, numpy_stream(draw.seed, "cells-rank-process"))
    within = level + kernel(at, at, scales) + scales.noise**2 * np.eye(count)
    reach = kernel(features[:judges], at, scales) + LEVEL**2
    return _with(draw, standard(reach @ np.linalg.solve(within, target)), beside)


def _with(draw: Draw, found: Array, beside: Sequence[str]) -> Array:
    """Predictions plus the ranks of other figures."""
    return found + np.sum([standard_ranks(summed(draw, [name])) for name in beside], 0) if beside else found


@dataclass(frozen=True)
class Row:
    """A ranking.

    Attributes:
        rank: Its function.
        short, long: Trainings of 12 and of 200 epochs that it uses, for a search among 100 cells.
        copies: Other cells trained on the copy; None if it uses no copy.
        probes: Whether it depends on the draw of probes or companions.
        one_shot: Whether it trains a supernet.
    """

    rank: Callable[[Draw], Array]
    short: int = 0
    long: int = 0
    copies: int | None = None
    probes: bool = False
    one_shot: bool = False

    def copy_seconds(self, each: float) -> float:
        """Seconds on copies and for training-free scores, for a search among 100 cells."""
        trained = 0.0 if self.copies is None else (CELLS + self.copies) * each
        return (CELLS + (self.copies or 0)) * FREE_SECONDS + trained


def _model(short: int = 0, long: int = 0, top: bool = False) -> Row:
    copies = COMPANIONS + (CELLS if top else short + long)
    return Row(partial(modelled, short=short, long=long, top=top), short, long, copies, True)


def _sum(*names: str) -> Row:
    corrects = any(name == "hope" or name.endswith("-corrected") for name in names)
    copies = COMPANIONS if corrects else 0 if {"loss", "accuracy"} & set(names) else None
    short = CELLS * ("short" in names)
    return Row(partial(summed, names=names), short, 0, copies, corrects, "one-shot" in names)


def _own(long: int) -> Row:
    return Row(partial(own, long=long), CELLS + long, long, COMPANIONS + long, True)


def _rival(rank: Callable[..., Array], short: int = 0, long: int = 0, beside: Sequence[str] = ()) -> Row:
    trained = short + CELLS * ("short" in beside)
    made = partial(rank, count=short or long, of="short" if short else "long", beside=beside)
    simple = rank is regressed and not {"hope", "loss-corrected"} & set(beside)
    return Row(made, trained, long, 0 if simple else COMPANIONS + short + long, True)


MIXED = ((0, 32), (0, 64), (0, 111), (0, 304), (8, 178), (12, 115), (16, 53), (20, 0))
"""Trainings of 200 and of 12 epochs: up to 10 minutes with everything, then at most the 1,543 seconds that 20
trainings of 200 epochs and 100 cells on the copy take; the last pair is the literal one."""
SUM = ("jacov", "parameters")
ROWS: dict[str, Row] = {
    "hope": Row(hoped, copies=COMPANIONS, probes=True), "hope-raw": Row(partial(hoped, copy="raw"), copies=0),
    "hope-free": Row(partial(hoped, copy="")), "jacov-parameters": _sum(*SUM), "loss": _sum("loss"),
    "loss-corrected": _sum("loss-corrected"), "loss-accuracy": _sum("loss", "accuracy"),
    "four": _sum("synflow", "nwot", "jacov", "loss"), "parameters": _sum("parameters"),
    "one-shot": _sum("one-shot"), "one-shot-jacov-parameters": _sum("one-shot", *SUM),
    **{f"model-{long}-{short}": _model(short, long) for long, short in MIXED},
    "model-top": _model(long=20, top=True),
    "ridge-111": _rival(regressed, short=111, beside=("loss",)),
    "process-111": _rival(processed, short=111),
    "process-111-sum": _rival(processed, short=111, beside=SUM),
    "process-111-hope": _rival(processed, short=111, beside=("hope",)),
    "ridge-20": _rival(regressed, long=20, beside=("loss",)),
    "ridge-20-accuracy": _rival(regressed, long=20, beside=("loss", "accuracy")),
    "ridge-20-corrected": _rival(regressed, long=20, beside=("loss-corrected",)),
    "ridge-20-hope": _rival(regressed, long=20, beside=("hope",)),
    "process-20": _rival(processed, long=20), "process-20-sum": _rival(processed, long=20, beside=SUM),
    "process-20-hope": _rival(processed, long=20, beside=("hope",)),
    "ridge-304": _rival(regressed, short=304, beside=("loss",)),
    "process-304-sum": _rival(processed, short=304, beside=SUM),
    "companions-ridge": Row(partial(companions, model=False), 0, PROBES, 0, True),
    "companions-model": Row(partial(companions, model=True), 0, PROBES, PROBES, True),
    "own": _own(0), "own-20": _own(20), "short": _sum("short"),
    "jacov-parameters-short": _sum(*SUM, "short"), "loss-short": _sum("loss", "short"),
    "hope-short": _sum("hope", "short"),
    "ridge-20-short": _rival(regressed, long=20, beside=("loss", "short")),
}  # fmt: skip
"""Rankings of CIFAR-10 by name."""
WITHOUT_COPY = {
    **{name: ROWS[name] for name in (
        "hope-free", "jacov-parameters", "parameters", "model-20-0", "model-0-111", "model-0-304", "own",
        "own-20", "short", "jacov-parameters-short", "process-20", "process-20-sum", "process-111-sum",
        "process-304-sum",
    )},
    "ridge-20-sum": _rival(regressed, long=20, beside=SUM),
}  # fmt: skip
"""Rankings of CIFAR-100, whose cells were trained on no copy."""


def _shared_seconds(row: Row, known: CellData) -> float:
    """Seconds of training a supernet and of scoring 100 cells by it, if a row uses one."""
    one = known.one_shot if row.one_shot else None
    return 0.0 if one is None else one.train_seconds + CELLS * one.score_seconds


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
    dataset: str,
    data: Path,
    copy: Path,
    before: Sequence[str | Path],
    seeds: Sequence[int],
    out: Path,
    only: Sequence[str] = (),
    supernet: Path | None = None,
) -> None:
    """Rank the judging cells by every row; appends the truth and one record per row and seed to ``out``.

    Args:
        only: Add these rows to a file that has the truth already.
        supernet: Records of `hcdc.experiments.supernet_pool`; without them, rows that need one are left out.
    """
    scored = CellData.read(data, copy, supernet=supernet)
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
    if not only:
        records.append(out, {**told, "label": "truth", "cells": cells, **rounded(percent)})
    rows, sets = (ROWS, known.loss.shape[1]) if dataset == "cifar10" else (WITHOUT_COPY, 0)
    check_names("--rows", only, rows)
    for seed in seeds:
        left_out = seed % max(sets, 1)
        pool = numpy_stream(seed, "cells-rank-probes").permutation(others)
        draw = Draw(known, judges, pool, tuple(k for k in range(sets) if k != left_out), seed)
        each = scored.seconds * len(draw.sets) / scored.loss.shape[1]
        for name, row in rows.items():
            if (only and name not in only) or (row.one_shot and known.one_shot is None):
                continue
            copied = row.copies is not None and bool(sets)
            if seed >= (len(seeds) if row.probes else sets if copied else 1) + min(seeds):
                continue  # it would repeat an earlier one
            records.append(out, rounded({
                **told, "label": name, "seed": seed, "copy": left_out if copied else None,
                "probes": row.probes, "short": row.short, "long": row.long,
                "seconds": row.copy_seconds(each if copied else 0.0) + _shared_seconds(row, known),
                "scores": [float(f"{score:.4g}") for score in row.rank(draw)],
            }))  # fmt: skip


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--dataset", choices=("cifar10", "cifar100"), default="cifar10")
    parser.add_argument("--copy", type=Path, required=True, help="records of hcdc.experiments.copy_pool")
    parser.add_argument("--supernet", type=Path, help="records of hcdc.experiments.supernet_pool")
    parser.add_argument("--before", nargs="+", default=[], help="records of tables that judged other cells")
    parser.add_argument("--seeds", default=",".join(map(str, range(10, 20))))
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    parser.add_argument("--rows", nargs="*", default=[], help="add these rows to --out, which has others")
    given = parser.parse_args()
    folder = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
    seeds = integers("--seeds", given.seeds)
    run(given.dataset, folder, given.copy, given.before, seeds, given.out, given.rows, given.supernet)


if __name__ == "__main__":
    as_command(main)
