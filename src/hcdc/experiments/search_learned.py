"""Protocol ``search-learned``: what a learned copy adds to the ladder, beside real examples and no copy.

    python -m hcdc.experiments.search_learned --pool cells --seeds 700:800 --out F.jsonl
    python -m hcdc.experiments.search_learned --pool filters --seeds 700:720 --out F.jsonl

``cells``: the 512 CIFAR-10 cells that judged the copies of ``records/nas201-cifar10.jsonl``. ``cells100``:
the 312 cells that judged those of CIFAR-100 with 50 images per class. ``filters``: the 120 filters of
``records/pools/physics-filters.jsonl`` with the copies of ``physics_learned``. One rung of the
ladder is the copy in turn, see `Way`; the other rungs and all settings stay as they are. Replays take
condensations and their draws of probes in turn. Equal seeds see the same runs.

A *ready* copy costs its trials. A copy that is *made* in the search also costs its making, full trainings
included, before the first trial. These trainings are not among the candidates: the best of them by validation
is a pick from then on, but the ladder's model does not learn from it. A way whose making takes the whole
budget is not replayed.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hcdc.core import records
from hcdc.core.configs import config_hash
from hcdc.experiments._command import as_command, check_names, integers
from hcdc.experiments.nas201_rankings import kind_of
from hcdc.experiments.physics import SPACES
from hcdc.experiments.physics_learned import PROTOCOL as LEARNED
from hcdc.experiments.recorded_pool import Recorded
from hcdc.experiments.replay_problem import RecordedRung, Replay
from hcdc.experiments.rival_searches import Trace
from hcdc.experiments.search_pools import CLIMBED, Cells
from hcdc.experiments.search_replay import climb, methods

PROTOCOL = "search-learned"
RIVALS = ("parameters-short-full", "hyperband", "random")
log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class Way:
    """What stands in the place of the copy, for one replay.

    Attributes:
        rungs: Its rung; none leaves it out.
        making: Seconds of making it.
        known: Validation and test score of the best full training that making it needs, in percent.
        told: What the record says of it.
    """

    rungs: Sequence[RecordedRung] = ()
    making: float = 0.0
    known: tuple[float, float] | None = None
    told: Mapping[str, Any] | None = None


class LearnedPool(ABC):
    """A recorded pool with several copies.

    Attributes:
        name: Its name.
        ways: The names of its ways, ``"none"`` last.
        budgets: Seconds.
    """

    name: str
    ways: tuple[str, ...]
    budgets: tuple[float, ...]
    pool: Cells | Recorded

    @abstractmethod
    def way(self, name: str, seed: int) -> Way:
        """What a way is in the replay with this seed."""

    def problem(self, way: Way, made: bool, seed: int) -> Replay:
        """The pool with a way's rung instead of its copy; free rungs first, the others by price."""
        found = self.pool.problem("", seed).without("copy")
        for rung in way.rungs:
            rung.once = way.making if made else 0.0
        last = found.rungs[-1]
        found.rungs = [*sorted([*found.rungs[:-1], *way.rungs], key=lambda r: (r.share > 0, r.price)), last]
        return found


class LearnedCells(LearnedPool):
    """The cells that judged the copies of CIFAR-10, see `hcdc.experiments.reproductions.nas201`.

    Args:
        data: Folder with nasbench201.csv.gz and nasbench201_free.
        file: Records of ``nas201``. Copies with 16 initialisations are used and, for hypergradients alone,
            one with 8, since there are only two.

    Attributes:
        of: The pool that the cells are part of.
        sizes, kind: Which copies: training and validation images, see `KINDS`.
    """

    name, budgets = "cells", (450.0, 900.0, 1800.0)
    of, sizes, kind = "nas201-cifar10", (500, 200), ""
    labels: Mapping[str, str] = {
        "probes": "hcdc-probes", "weighted": "hcdc-weighted", "real": "real-val", "aligned": "hcdc-aligned",
        "random": "random-val",
    }  # fmt: skip

    def __init__(self, data: Path, file: str | Path):
        self.ways = (*self.labels, "none")
        lines = [r for r in records.read(file) if (r["train_size"], r["val_size"]) == self.sizes]
        truth = next(r for r in lines if r["label"] == "truth")
        self.pool: Cells = Cells(self.of, data, cells=truth["cells"])
        self._copies: dict[str, list[list[Mapping[str, Any]]]] = {}
        for way, label in self.labels.items():
            some = [r for r in lines if r["label"] == label and len(r["loss"]) == len(truth["cells"])]
            own = [r for r in some if kind_of(r) == self.kind or way == "aligned"]
            seeds = sorted({r["seed"] for r in own})
            self._copies[way] = [
                sorted((r for r in own if r["seed"] == seed), key=lambda r: r["draw"] or 0) for seed in seeds
            ]

    def way(self, name: str, seed: int) -> Way:
        if name == "none":
            return Way()
        condensations = self._copies[name]
        draws = condensations[seed % len(condensations)]
        r = draws[seed // len(condensations) % len(draws)]
        price = r["judge_seconds"] / len(r["loss"])
        rung = self.pool.copy_rung(np.asarray(r["loss"], float), price, 0.0)
        told = {"condensation": r["seed"], "draw": r["draw"]}
        if "probes" not in r:
            return Way([rung], r["condense_seconds"], None, told)
        best = int(np.argmax(r["probe_scores"]))
        making = r["condense_seconds"] + len(r["probes"]) * self.pool.prices["full"]
        return Way([rung], making, (100 * r["probe_scores"][best], 100 * r["probe_tests"][best]), told)


class LearnedCells100(LearnedCells):
    """The cells that judged the copies of CIFAR-100 with 50 images per class, 4 initialisations."""

    name, budgets = "cells100", (900.0, 1800.0, 3600.0)
    of, sizes, kind = "nas201-cifar100", (5000, 1000), "-steps"
    labels: Mapping[str, str] = {
        "probes": "hcdc-probes", "weighted": "hcdc-weighted", "real": "real-val", "random": "random-val",
    }  # fmt: skip


class LearnedFilters(LearnedPool):
    """The filters on Coauthor Physics.

    Args:
        file: The pool.
        copies: Records of `hcdc.experiments.physics_learned`, one file per copy. Those of one seed have the
            same full trainings, so the Gaussian process is that of the first.
    """

    name, budgets = "filters", (30.0, 61.0, 122.0)

    def __init__(self, file: str | Path, copies: Sequence[str | Path]):
        self.pool: Recorded = Recorded("physics-filters", SPACES["filters"], file)
        every = {r["number"]: r["config"] for r in records.read(file) if r["seed"] == 0}
        self._learned: dict[str, tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]] = {}
        for path in copies:
            made, *lines = (r for r in records.read(path) if r["protocol"] == LEARNED)
            by_hash: dict[str, Mapping[str, Any]] = {
                config_hash(every[r["number"]]): r for r in lines if "number" in r
            }
            told: Mapping[str, Any] = {
                **made,
                "best_probe": next(r["best_probe"] for r in lines if "best_probe" in r),
            }
            self._learned[f"learned-{made['train_size']}"] = told, by_hash
        self.ways = (*self._learned, "process", "random", "none")

    def way(self, name: str, seed: int) -> Way:
        if name == "none":
            return Way()
        full = self.pool.prices["full"]
        if name == "random":
            return Way([rung for rung in self.pool.problem("", seed).rungs if rung.name == "copy"])
        made, lines = self._learned[next(iter(self._learned)) if name == "process" else name]
        spent, best = made["seconds"], made["best_probe"]
        known, told = (100 * best["val"], 100 * best["test"]), {"condensation": made["seed"]}
        if name == "process":
            rung = RecordedRung(
                "copy",
                INSTANT,
                full,
                lambda configs, seed: [-lines[config_hash(c)]["expected"] for c in configs],
            )
            return Way([rung], spent["full"], known, told)
        rung = RecordedRung(
            "copy", float(np.mean([r["seconds"] for r in lines.values()])), full,
            lambda configs, seed: [lines[config_hash(c)]["score"] for c in configs],
            seconds=lambda config, seed: float(lines[config_hash(config)]["seconds"]),
        )  # fmt: skip
        return Way([rung], spent["making"], known, told)


CELLS: Mapping[str, type[LearnedCells]] = {one.name: one for one in (LearnedCells, LearnedCells100)}
"""Pools of cells by name."""
INSTANT = 1e-3
"""Seconds to ask the Gaussian process for one candidate."""


def replayed(
    pool: LearnedPool, name: str, made: bool, method: str, budget: float, seed: int
) -> dict[str, Any] | None:
    """One replay as a record; None if making the copy takes the whole budget."""
    way = pool.way(name, seed)
    if made and way.making >= budget:
        return None
    problem, begun = pool.problem(way, made, seed), time.perf_counter()
    if method == "ladder":
        problem = problem.without(*[rung.name for rung in problem.fidelities[:-1]][:-CLIMBED])
        trace = climb(problem, budget, seed)
    else:
        trace = methods(problem)[method](problem, budget, seed)
    thinking = time.perf_counter() - begun
    picks = judged(pool, problem, trace, way, made)
    curve, validation = [[at, test] for at, _, test in picks], [[at, val] for at, val, _ in picks]
    top = max(pool.pool.validation(config) for config in problem.candidates() or ())
    score = curve[-1][1] if curve else None
    best, median = round(problem.best, 6), round(problem.median, 6)
    return {
        "protocol": PROTOCOL, "pool": pool.name, "way": name, "made": made, "method": method,
        "budget": budget, "seed": seed, "curve": curve, "score": score, "best": best, "median": median,
        "validation": validation, "best_validation": round(top, 6),
        "regret": None if score is None else round(best - score, 6), "seconds": round(trace.seconds, 3),
        "making": round(way.making if made else 0.0, 3), "trainings": trace.trainings,
        "thinking_seconds": round(thinking, 3), **(way.told or {}),
    }  # fmt: skip


def judged(
    pool: LearnedPool, problem: Replay, trace: Trace, way: Way, made: bool
) -> list[tuple[float, float, float]]:
    """Seconds, validation and test score of each pick; one that the search saw below the best full training
    behind the copy does not count."""
    known = way.known if made else None
    heard: dict[str, float] = {}
    for rung, outcome in problem.heard:
        if rung is problem.rungs[-1]:
            heard.setdefault(config_hash(outcome.config), outcome.score)
    found = [] if known is None else [(way.making, *known)]
    for seconds, config in trace.curve:
        if known is None or heard[config_hash(config)] > known[0]:
            found.append((seconds, pool.pool.validation(config), problem.judge(config)))
    return [(round(at, 3), round(val, 6), round(test, 6)) for at, val, test in found]


def units(pool: LearnedPool, seeds: Sequence[int]) -> list[tuple[str, bool, str, float, int]]:
    """All replays: ways ready and made, then rivals, seed by seed."""
    ways = [(name, made, "ladder") for name in pool.ways for made in (False, True)]
    ways = [way for way in ways if not (way[1] and way[0] in ("random", "real", "none"))]
    rivals = methods(pool.pool.problem("", 0))
    ways += [("none", False, name) for name in RIVALS if name in rivals]
    return [(*way, budget, seed) for seed in seeds for way in ways for budget in pool.budgets]


def run(pool: LearnedPool, seeds: Sequence[int], out: str | Path) -> None:
    """Replay what ``out`` lacks; appends one record per replay."""
    done = set()
    if Path(out).exists():
        found = (r for r in records.read(out) if r.get("protocol") == PROTOCOL and r["pool"] == pool.name)
        done = {(r["way"], r["made"], r["method"], r["budget"], r["seed"]) for r in found}
    where = {"environment": records.environment()}
    for unit in units(pool, seeds):
        if unit in done or (record := replayed(pool, *unit)) is None:
            continue
        records.append(out, {**record, **where})
        log.info("%s, made %s, %s, %g s, seed %d: %s", *unit, record["regret"])


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--pool", required=True, help="cells, cells100 or filters")
    parser.add_argument("--seeds", default="700:720", help="such as 700,701 or 700:720")
    parser.add_argument("--records", default="records", help="folder of the records")
    parser.add_argument("--out", required=True, help="file to append records to")
    given = parser.parse_args()
    check_names("--pool", [given.pool], (*CELLS, "filters"))
    torch.set_num_threads(1)
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last)) if last else integers("--seeds", first)
    folder, pools = Path(given.records), Path(given.records, "pools")
    pool: LearnedPool
    if given.pool in CELLS:
        data = Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
        pool = CELLS[given.pool](data, folder / f"{CELLS[given.pool].of}.jsonl")
    else:
        copies = sorted(pools.glob("physics-filters-learned-*.jsonl"))
        pool = LearnedFilters(pools / "physics-filters.jsonl", copies)
    run(pool, seeds, given.out)


if __name__ == "__main__":
    as_command(main)
