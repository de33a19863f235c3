"""Protocol ``cells-edges``: finite hypergradients, the differences between cells that differ in one edge.

An estimator that does not agree with itself cannot be aligned, and one that agrees with itself may still be
wrong. So each estimator is compared with a second estimate of its own, where one is recorded, and with the
truth, 200 epochs on the full data. Pairs are all neighbours among the cells that the copy has scored; cosines
are those of the differences between one cell and all its neighbours, a finite gradient, mean over cells.

    python -m hcdc.experiments.cell_edges --copy records/pools/copy-cifar10-five.jsonl \\
        --supernet records/pools/supernet-cifar10.jsonl --out F
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.posterior import Results, corrected, expected_scores
from hcdc.core.ranks import spearman
from hcdc.core.seeds import numpy_stream
from hcdc.experiments._command import as_command, check_names, rounded
from hcdc.experiments.cell_data import CellData
from hcdc.spaces import NASBench201

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PROTOCOL = "cells-edges"
FEWEST = 5
"""Fewest neighbours of a cell for a cosine."""
SHORT = 111
"""Trainings of 12 epochs of the model, as in protocol ``cells-rank``."""
COMPANIONS = 256


@dataclass(frozen=True)
class Estimator:
    """Scores of all cells ``[n]`` whose differences are judged.

    Attributes:
        words: What it is.
        best: The estimate that is compared with the truth.
        pair: Two separate estimates, if there are any.
        truth: Validation accuracy that shares no run with ``best``; None means the mean over all runs.
    """

    words: str
    best: Array
    pair: tuple[Array, Array] | None = None
    truth: Array | None = None


def neighbours(cells: list[str]) -> Index:
    """Pairs of positions of cells that differ in one edge, in both orders ``[m, 2]``, sorted.

    A cell has several strings that compute the same, so one of two neighbours may not list the other.
    """
    space, place = NASBench201(), {cell: k for k, cell in enumerate(cells)}
    listed = {
        (k, place[other["cell"]])
        for cell, k in place.items()
        for other in space.neighbours({"cell": cell})
        if other["cell"] in place
    }
    return np.array(sorted(listed | {(b, a) for a, b in listed}), np.int64)


def estimators(data: CellData, rows: Index) -> dict[str, Estimator]:
    """The estimators by name, at some rows of the data."""
    sets = -data.loss[rows]
    companions = numpy_stream(0, PROTOCOL).permutation(len(rows))[:COMPANIONS]
    halves = sets[:, :2].mean(1), sets[:, 2:4].mean(1)

    def smooth(values: Array) -> Array:
        return corrected(data.structure[rows], values, companions)

    runs = data.runs[rows]
    rest = np.nanmean(runs[:, 1:], axis=1)
    brief = [_modelled(data, rows, seed) for seed in range(2)]
    shared = {}
    if (one := data.one_shot) is not None:
        shared["supernet"] = Estimator("loss with the weights of one supernet", -one.loss[rows])
        shared["supernet-accuracy"] = Estimator("accuracy with these weights", one.accuracy[rows])
    return {
        "parameters": Estimator("number of parameters", data.size[rows]),
        "jacov": Estimator("jacov", data.free["jacov"][rows]),
        "one-set": Estimator(
            "loss on one set of 500 images, one network", sets[:, 0], (sets[:, 0], sets[:, 1])
        ),
        "sets": Estimator("loss, five sets (two estimates: two sets each)", sets.mean(1), halves),
        "corrected": Estimator(
            "the same, corrected for noise", smooth(sets.mean(1)), (smooth(halves[0]), smooth(halves[1]))
        ),
        **shared,
        "short": Estimator(
            "12 epochs (second estimate: trained on all images, test accuracy)", data.short[rows],
            (data.short[rows], data.short_test[rows]),
        ),
        "model": Estimator(
            f"model from {SHORT} trainings of 12 epochs of other cells", brief[0], (brief[0], brief[1])
        ),
        "run": Estimator(
            "200 epochs, one run (truth: the other runs)", runs[:, 0], (runs[:, 0], runs[:, 1]), rest
        ),
    }  # fmt: skip


def _modelled(data: CellData, rows: Index, seed: int) -> Array:
    """The model of `cells-rank` from short trainings; each seed has other probes, sets and companions."""
    order = numpy_stream(seed, "cells-edges-model").permutation(len(rows))
    probes, companions = order[:SHORT], order[-COMPANIONS:]
    some = slice(2 * seed, 2 * seed + 2)
    copied = {"loss": -data.loss[rows][:, some].mean(1), "accuracy": data.accuracy[rows][:, some].mean(1)}
    known: Mapping[str, Array] = {"parameters": data.size, **data.promises, **data.free}
    figures = {name: values[rows] for name, values in known.items()}
    figures |= {name: corrected(data.structure[rows], values, companions) for name, values in copied.items()}
    short = Results(probes, data.short[rows[probes]])
    return expected_scores(np.c_[data.structure[rows], data.encoded[rows]], figures, [short])


def cosine(pairs: Index, a: Array, b: Array) -> float:
    """Mean cosine over cells between two gradients, each the differences to all neighbours ``[m]``."""
    counts = np.unique(pairs[:, 0], return_counts=True)[1]
    ends = counts.cumsum()
    found = [
        float(a[end - count : end] @ b[end - count : end])
        / max(float(np.linalg.norm(a[end - count : end]) * np.linalg.norm(b[end - count : end])), 1e-12)
        for end, count in zip(ends, counts)
        if count >= FEWEST
    ]
    return float(np.mean(found))


def judged(one: Estimator, pairs: Index, val: Array, test: Array) -> dict[str, Any]:
    """Agreement of an estimator with itself and with the truth."""

    def steps(values: Array) -> Array:
        found: Array = values[pairs[:, 1]] - values[pairs[:, 0]]
        return found

    once = pairs[:, 0] < pairs[:, 1]  # the other order is the same difference
    mine, found = steps(one.best), {}
    truths = {"val": val if one.truth is None else one.truth, "test": test}
    for name, truth in truths.items():
        found[f"{name}_spearman"] = spearman(steps(truth)[once], mine[once])
        found[f"{name}_cosine"] = cosine(pairs, mine, steps(truth))
    right = np.sign(mine) == np.sign(steps(truths["val"]))
    both = None if one.pair is None else tuple(map(steps, one.pair))
    return {
        **found, "sign": float(right[once].mean()), "pairs": int(once.sum()),
        "self_spearman": both and spearman(both[0][once], both[1][once]),
        "self_cosine": both and cosine(pairs, *both),
    }  # fmt: skip


def run(data: Path, copy: Path, out: Path, supernet: Path | None = None, only: Sequence[str] = ()) -> None:
    """Judge every estimator, or ``only`` some; appends one record each to ``out``."""
    known = CellData.read(data, copy, supernet=supernet)
    rows = np.flatnonzero(known.copied)
    pairs = neighbours([known.cells[row] for row in rows.tolist()])
    environment = records.environment("cpu")
    each = estimators(known, rows)
    check_names("--estimators", only, each)
    for name, one in each.items():
        if only and name not in only:
            continue
        found = judged(one, pairs, known.val[rows], known.test[rows])
        told = {"protocol": PROTOCOL, "estimator": name, "words": one.words, "cells": len(rows)}
        records.append(out, rounded({**told, **found, "environment": environment}))


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--copy", type=Path, required=True, help="records of hcdc.experiments.copy_pool")
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    parser.add_argument("--supernet", type=Path, help="records of hcdc.experiments.supernet_pool")
    parser.add_argument("--estimators", nargs="*", default=[], help="judge these alone")
    given = parser.parse_args()
    data = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
    run(data, given.copy, given.out, given.supernet, given.estimators)


if __name__ == "__main__":
    as_command(main)
