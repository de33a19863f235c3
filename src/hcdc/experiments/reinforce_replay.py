"""REINFORCE for ``nas``: replayed from the records of ``nas201``; nothing is trained.

As in the paper, the space is 100 cells, here drawn from the judging cells of ``nas201``, and each cell is
trained alone. REINFORCE asks 100 times. Its reward is the recorded score of the cell on a copy or, for the
original data, the table's validation accuracy after 12 or 200 epochs. The best cell that it has seen counts.
Asking again for a cell costs nothing; all else costs the recorded seconds. Replays take the condensations in
turn, and the draws of probes of each.

With 8 initialisations, copies of DC are recorded too, but on 120 cells alone, so all copies are searched
there. With 16 initialisations, random and HCDC's copies are searched on all 512 cells.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.experiments.nas201_rankings import CELLS, METRICS, Array, Record, kind_of, scores_of
from hcdc.experiments.search_pools import PRICES
from hcdc.search.searchers import searcher
from hcdc.spaces import Finite

PROTOCOL = "nas-search"
ASKS = 100
REPLAYS = 100
KINDS = ("-eight", "")
"""Kinds of records, see `hcdc.experiments.nas201_rankings.KINDS`."""
SHARED = {"random-val": "random", "hcdc-probes": "hcdc"}
"""Labels of records whose S_train is random; by the calibrated recipe."""
FULL = {12: PRICES["nas201-cifar10"]["short"], 200: PRICES["nas201-cifar10"]["full"]}
"""Seconds on the original data by epochs."""


@dataclass(frozen=True)
class Scored:
    """One copy, or the original data, as a search sees it.

    Attributes:
        scores: Rewards of the (first) judging cells ``[n]``.
        trial: Seconds per cell.
        making: Seconds for making the copy, without probes.
        probes: Full trainings that the copy was made from.
        known: Test accuracy of the best of them by validation, if there are any.
        seed, draw: The condensation and its draw of probes.
    """

    scores: Array
    trial: float
    making: float = 0.0
    probes: int = 0
    known: float | None = None
    seed: int = 0
    draw: int = 0


def scored(found: Sequence[Record]) -> dict[tuple[str, str], list[Scored]]:
    """Everything that can be searched, by data and recipe (original data: epochs), on the same cells."""
    (truth, *_) = (r for r in found if r["label"] == "truth")
    rows: dict[tuple[str, str], list[Scored]] = {}
    for r in found:
        if r["label"] in SHARED and r.get("train_method", "random") == "random":
            scores, made, key = -np.asarray(r["loss"], float), r, (SHARED[r["label"]], "calibrated")
        elif r["label"] == "dc" or (r["label"] == "random" and r["recipe_name"] == "published"):
            scores, made = scores_of(r, METRICS[r["recipe_name"]]), r["making"]
            key = r["label"], r["recipe_name"]
        else:
            continue
        tests = dict(zip(r.get("probe_scores", ()), r.get("probe_tests", ())))
        one = Scored(
            scores, r["judge_seconds"] / len(scores), made["condense_seconds"], len(r.get("probes", ())),
            tests[max(tests)] if tests else None, r["seed"], r.get("draw") or 0,
        )  # fmt: skip
        rows.setdefault(key, []).append(one)
    for epochs, column in ((12, "val12"), (200, "val")):
        rows["original", f"{epochs} epochs"] = [Scored(np.asarray(truth[column]), FULL[epochs])]
    return rows


def in_turn(copies: Sequence[Scored], replay: int) -> Scored:
    """The copy of a replay: condensations in turn, and the draws of each."""
    seeds = sorted({one.seed for one in copies})
    own = [one for one in copies if one.seed == seeds[replay % len(seeds)]]
    return sorted(own, key=lambda one: one.draw)[replay // len(seeds) % len(own)]


@functools.cache
def drawn(cells: int, replay: int) -> list[int]:
    """The 100 cells of a replay, the same for all data."""
    found: list[int] = numpy_stream(replay, PROTOCOL, "cells").permutation(cells)[:CELLS].tolist()
    return found


def searched(rewards: Mapping[int, float], seed: int) -> tuple[int, int]:
    """The best cell that REINFORCE sees in 100 asks, and how many it has seen."""
    asking = searcher("reinforce", Finite("cell", list(rewards)), seed)
    for _ in range(ASKS):
        config = asking.ask()
        asking.tell(config, rewards[config["cell"]])
    best = asking.best
    assert best is not None, "no reward is missing"
    return int(best["cell"]), len({config["cell"] for config, _ in asking.history})


def replayed(copies: Sequence[Scored], test: Array, replays: int) -> dict[str, Any]:
    """Figures of every replay: test accuracy of the pick, that of the best drawn cell, and seconds."""
    found: dict[str, list[Any]] = {}
    for replay in range(replays):
        copy, cells = in_turn(copies, replay), drawn(len(test), replay)
        rewards = {i: float(copy.scores[i]) for i in cells}
        pick, trained = searched(rewards, replay)
        figures = {
            "test_accuracy": test[pick], "best": test[cells].max(), "trained": trained,
            "search_seconds": trained * copy.trial, "making_seconds": copy.making, "probes": copy.probes,
            "best_probe": copy.known,
        }  # fmt: skip
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
    return found


def replays(file: str | os.PathLike[str], count: int = REPLAYS) -> list[Record]:
    """One record per kind of data and recipe, from a file of protocol ``nas201``."""
    if not os.path.exists(file):
        raise InputError(
            f"'{file}' does not exist; it holds the records of 'hcdc reproduce nas201' that REINFORCE "
            "replays: name it with --set nas201=FILE"
        )
    every, found = list(records.read(file)), []
    for kind in KINDS:
        own = [r for r in every if kind_of(r) == kind]
        if not own:
            continue
        rows = scored(own)
        cells = min(len(one.scores) for copies in rows.values() for one in copies)
        test = np.asarray(next(r for r in own if r["label"] == "truth")["test"])[:cells]
        found += [
            {
                "searcher": "reinforce", "data": data, "recipe": recipe, "cells": cells, "asks": ASKS,
                "replays": count, "condensations": len({one.seed for one in copies}),
                **replayed(copies, test, count),
            }
            for (data, recipe), copies in rows.items()
        ]  # fmt: skip
    return found
