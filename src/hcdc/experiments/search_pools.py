"""Recorded pools of candidates: their scores on every rung, each at a fixed price on one simulated clock.

A training that was not recorded cannot be replayed, so a rung lists its results or asks a surrogate model.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.seeds import numpy_stream
from hcdc.experiments import flights, physics, resnet
from hcdc.experiments.recorded_pool import Recorded
from hcdc.experiments.replay_problem import Pool, RecordedRung, Replay, Scores, SupernetRanking
from hcdc.spaces import NASBench201, NASBenchGraph, Space, operations
from hcdc.truth import GRAPHS, NASBench201Table, NASBenchGraphTable, Surrogate

Array = NDArray[np.float64]

PRICES: Mapping[str, Mapping[str, float]] = {
    "nas201-cifar10": {"free": 0.04, "copy": 0.16, "making": 0.0, "short": 4.7, "full": 76.3},
    "nas201-cifar10-part": {"free": 0.04, "copy": 0.16, "making": 0.0, "short": 4.7, "full": 76.3},
    "nas201-cifar10-five": {"free": 0.04, "copy": 0.146, "making": 0.0, "short": 4.7, "full": 76.3},
    "nas201-cifar100": {"free": 0.04, "copy": 0.16, "making": 0.0, "short": 9.3, "full": 152.5},
    "nas201-cifar100-part": {"free": 0.04, "copy": 0.25, "making": 0.0, "short": 9.3, "full": 152.5},
    "nas201-imagenet16": {"free": 0.04, "copy": 0.16, "making": 0.0, "short": 7.1, "full": 115.7},
    "lcbench": {"full": 60.0},
    "rbv2_xgboost": {"full": 60.0},
    "nasbench-graph": {"full": 60.0},
}
"""Seconds per candidate and rung, and once for ``making`` a copy, by pool.

Cells: measured on one H200 (``benchmarks/records/epochs.json``; the benchmark trains on 25,000 images of
CIFAR-10 and on 50,000 of CIFAR-100). ImageNet16-120 was not timed: its 151,700 images have a quarter of the
pixels, so a training counts as 1.517 of CIFAR-10's. Elsewhere a full training counts as a minute.
"""
COLUMNS: Mapping[str, str] = {"cifar10": "c10", "cifar100": "c100", "imagenet16": "in16"}
"""Data sets of the cells, and their columns in the benchmark's table."""
RECORDED: Mapping[str, Space] = {
    "flights": flights.SPACE,
    "physics": physics.SPACES["gnns"],
    "physics-filters": physics.SPACES["filters"],
    "resnet": resnet.SPACE,
}
"""Spaces of the pools that are one file of records, ``records/pools/NAME.jsonl``."""
FIDELITIES: Mapping[str, tuple[float, ...]] = {
    "lcbench": (2, 6, 17),
    "rbv2_xgboost": (1 / 27, 1 / 9, 1 / 3),
}
"""Short trainings of the surrogates (epochs of 52, shares of the rows): the full one over powers of 3."""
OF_ROWS = ("rbv2_xgboost",)
"""Surrogates whose short trainings see a random share of the rows, not fewer epochs."""
CLIMBED = 2
"""The ladder climbs this many of these short trainings, the longest ones; Hyperband uses all."""
REFERENCE = 2000
"""Random configurations that set the scale of regret on a surrogate."""
FREE = ("jacov", "nwot", "synflow")
"""Training-free scores of the rung ``free``."""
DEVELOPMENT = "copy_losses_cifar10"
"""A file of copy scores for development: its records are marked, since the ladder was tuned on it."""


class Cells(Pool):
    """All unique connected cells of NAS-Bench-201, or those of them that a copy has scored.

    A search sees single runs where they are known (CIFAR-10), else the mean over runs; picks are judged by
    the mean test accuracy, in percent.

    Args:
        name: ``"nas201-cifar10"``, ``"nas201-cifar100"`` or ``"nas201-imagenet16"``;
            those that end with ``"-part"`` leave out cells that the files of ``copies`` lack; so does
            ``"nas201-cifar10-five"``, whose copy has five sets.
        data: Folder with nasbench201.csv.gz and nasbench201_free.
        copies: Files with a loss per cell on random real images, one per draw; replays take them in turn.
            Records of `hcdc.experiments.copy_pool`, CSV with the columns ``ops`` and ``loss``, or npz with
            arrays of these names. None leaves the copy out.
        prices: Changes to `PRICES`.
        supernets: Files of `hcdc.experiments.supernet_pool`; replays take them in turn.
        cells: The pool's cells; None takes all, or those that the copies have scored.
    """

    def __init__(
        self,
        name: str,
        data: Path,
        copies: Sequence[str | Path] = (),
        prices: Mapping[str, float] | None = None,
        supernets: Sequence[str | Path] = (),
        cells: Sequence[str] | None = None,
    ):
        super().__init__(name, PRICES[name], prices)
        self.space, self._some = NASBench201(), name.endswith(("-part", "-five"))
        self._cells = [str(config["cell"]) for config in self.space.candidates()]
        if cells is not None:
            self._cells, self._some = list(cells), True
        elif self._some:
            if not copies:
                raise InputError(f"pool '{name}' is made of the cells that a copy has scored; give --copies")
            known = [_rows(Path(file), ("loss",)) for file in copies]
            self._cells = [cell for cell in self._cells if all(operation_key(cell) in rows for rows in known)]
        self._place = {cell: i for i, cell in enumerate(self._cells)}
        keys = [operation_key(cell) for cell in self._cells]
        table = NASBench201Table(data / "nasbench201.csv.gz")
        prefix = COLUMNS[name.split("-")[1]]
        short, mean, test = (
            np.array([table.lookup(cell, f"{prefix}_{column}") for cell in self._cells])
            for column in ("valid_12", "valid_200", "test_200")
        )
        self._short, self._test, self._runs = short, test, [[value] for value in mean.tolist()]
        if prefix == "c10":
            places = [table.index(cell) for cell in self._cells]
            self._runs = single_runs(data / "nasbench201_free" / "runs_c10_valid_200.npz", places)
        free = columns_of(data / "nasbench201_free" / "zero_cost_cifar10.csv.gz", keys, FREE)
        self._free = dict(zip(FREE, free.T))
        self._copies = [columns_of(Path(file), keys, ("loss",))[:, 0] for file in copies]
        self._every = [{"cell": cell} for cell in self._cells]
        self._features = np.array([self._described(config) for config in self._every])
        self._size = self._features[:, -1]
        self._supernets = [_supernet(Path(file)) for file in supernets]
        self.notes = {"copies": [Path(file).name for file in copies]}
        if supernets:
            self.notes = {**self.notes, "supernets": [Path(file).name for file in supernets]}
        if any(Path(file).name.startswith(DEVELOPMENT) for file in copies):
            self.notes = {**self.notes, "development": True}

    def _described(self, config: Config) -> list[float]:
        """What a ladder on images knows of a cell before any rung."""
        size = math.log(self.space.parameter_count(config, 3, 10))
        return [*self.space.features(config), *self.space.structure(config).values(), size]

    def problem(self, table: str, seed: int) -> Replay:
        order = numpy_stream(seed, "replay-runs").random((len(self._cells), 3)).argsort(1)
        heard: list[list[int]] = [[] for _ in self._cells]

        def full(configs: Sequence[Config], seed: int) -> list[float]:
            """A fresh seed returns another run of the cell, as long as there is one."""
            found = []
            for i in self._places(configs):
                if seed not in heard[i]:
                    heard[i].append(seed)
                runs = [run for run in order[i].tolist() if run < len(self._runs[i])]
                found.append(self._runs[i][runs[heard[i].index(seed) % len(runs)]])
            return found

        price = self.prices
        first, *others = FREE
        values = {name: self._looked_up(self._free[name]) for name in others}
        rungs = [RecordedRung("free", price["free"], price["full"], self._listed(self._free[first]), values)]
        rungs += self.copy_rungs(table, seed)
        rungs.append(RecordedRung("short", price["short"], price["full"], self._listed(self._short)))
        rungs.append(RecordedRung("full", price["full"], price["full"], full))
        return Replay(
            self.space, rungs, self._looked_up(self._test), float(self._test.max()),
            float(np.median(self._test)), self._features, self._looked_up(self._size), {"pool": self.name},
            self._every if self._some else None,
            self._supernets[seed % len(self._supernets)] if self._supernets else None,
        )  # fmt: skip

    def validation(self, config: Config) -> float:
        """The mean validation accuracy of a cell's full trainings."""
        return float(np.mean(self._runs[self._places([config])[0]]))

    def copy_rungs(self, table: str, seed: int) -> list[RecordedRung]:
        """The rung of a copy, if there is one."""
        if not self._copies:
            return []
        loss = self._copies[seed % len(self._copies)]
        return [self.copy_rung(loss, self.prices["copy"], self.prices["making"], subset=True)]

    def copy_rung(self, loss: Array, price: float, once: float, *, subset: bool = False) -> RecordedRung:
        """A copy that gives the pool's cells these losses ``[n]``: seconds of a trial, and of making it."""
        full = self.prices["full"]
        return RecordedRung("copy", price, full, self._listed(-loss), once=once, subset=subset)

    def _places(self, configs: Sequence[Config]) -> list[int]:
        return [self._place[str(config["cell"])] for config in configs]

    def _looked_up(self, column: Array) -> Callable[[Config], float]:
        return lambda config: float(column[self._place[str(config["cell"])]])

    def _listed(self, column: Array) -> Scores:
        return lambda configs, seed: column[self._places(configs)].tolist()


class Surrogates(Pool):
    """The tables of a surrogate benchmark; picks are judged by the full score that the search sees.

    Args:
        name: ``"lcbench"`` or ``"rbv2_xgboost"``.
        data: Folder with ``surrogates``.
        prices: Changes to `PRICES`.
    """

    def __init__(self, name: str, data: Path, prices: Mapping[str, float] | None = None):
        super().__init__(name, PRICES[name], prices)
        self._surrogate = Surrogate(data / "surrogates" / name)
        self.tables = self._surrogate.tables

    def problem(self, table: str, seed: int) -> Replay:
        known, price = self._surrogate, self.prices["full"]

        def at(fidelity: float | None) -> Scores:
            return lambda configs, seed: known.score(table, configs, fidelity).tolist()

        short = [
            RecordedRung(f"short:{f:.3g}", price * known.share(f), price, at(f), subset=self.name in OF_ROWS)
            for f in FIDELITIES[self.name]
        ]
        reference = known.score(table, known.space.sample(REFERENCE, numpy_stream(0, "replay-reference")))
        return Replay(
            known.space, [*short, RecordedRung("full", price, price, at(None))],
            lambda config: float(known.score(table, [config])[0]), float(reference.max()),
            float(np.median(reference)), spec={"pool": self.name, "table": table},
        )  # fmt: skip


class GraphNetworks(Pool):
    """The architectures of NAS-Bench-Graph on eight graphs: full trainings only, one run each.

    A search sees validation accuracy, and picks are judged by test accuracy, both in percent. Parameters and
    the latency of a forward pass are free features; the table has no training times.

    Args:
        name: ``"nasbench-graph"``.
        data: Folder with nasbench_graph.npz.
        prices: Changes to `PRICES`.
    """

    def __init__(self, name: str, data: Path, prices: Mapping[str, float] | None = None):
        super().__init__(name, PRICES[name], prices)
        self._table, self.tables = NASBenchGraphTable(data / "nasbench_graph.npz"), tuple(GRAPHS)
        self.space = NASBenchGraph()
        self._every = self.space.candidates()
        self._place = {config_hash(config): i for i, config in enumerate(self._every)}
        self._described = np.array([self.space.features(config) for config in self._every])
        self._read: dict[str, Array] = {}

    def _columns(self, table: str) -> Array:
        """Log of parameters, log of latency, validation and test accuracy in percent ``[4, n]``."""
        if table not in self._read:
            names = ("para", "latency", "valid_perf", "perf")
            found = [[self._table.lookup(config, table, name) for config in self._every] for name in names]
            self._read[table] = np.concatenate([np.log(found[:2]), 100 * np.array(found[2:])])
        return self._read[table]

    def problem(self, table: str, seed: int) -> Replay:
        (size, latency, valid, test), price = self._columns(table), self.prices["full"]

        def listed(configs: Sequence[Config], seed: int) -> list[float]:
            return [float(valid[self._place[config_hash(config)]]) for config in configs]

        return Replay(
            self.space, [RecordedRung("full", price, price, listed)],
            lambda config: float(test[self._place[config_hash(config)]]), float(test.max()),
            float(np.median(test)), np.column_stack([self._described, size, latency]),
            lambda config: float(size[self._place[config_hash(config)]]), {"pool": self.name, "table": table},
        )  # fmt: skip


def open_pool(
    name: str,
    data: str | Path | None = None,
    copies: Sequence[str | Path] = (),
    prices: Mapping[str, float] | None = None,
    supernets: Sequence[str | Path] = (),
) -> Pool:
    """A pool by its name, one of `PRICES` or `RECORDED`.

    Args:
        name: Its name.
        data: The folder of the tables, default ``$HCDC_DATA``; for one of `RECORDED` its file, default
            ``records/pools/NAME.jsonl``.
        copies: Files of copy scores, for cells.
        prices: Changed seconds per rung.
        supernets: Files of supernet scores, for cells.
    """
    if name not in (known := (*PRICES, *RECORDED)):
        raise unknown_name("pool", name, known)
    if copies and not name.startswith("nas201"):
        raise InputError(f"pool '{name}' has no copy rung; leave --copies out")
    if supernets and not name.startswith("nas201"):
        raise InputError(f"pool '{name}' has no supernet; leave --supernet out")
    if name in RECORDED:
        if prices:
            raise InputError(f"pool '{name}' has recorded seconds for every training; leave --price out")
        return Recorded(name, RECORDED[name], data or Path("records", "pools", f"{name}.jsonl"))
    folder = Path(data or os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc")
    if name.startswith("nas201"):
        return Cells(name, folder, copies, prices, supernets)
    return (GraphNetworks if name == "nasbench-graph" else Surrogates)(name, folder, prices)


def single_runs(file: Path, places: Sequence[int]) -> list[list[float]]:
    """Validation accuracies of single runs by cell, from arrays ``index [r]`` and ``c10_valid [r]``."""
    with np.load(file) as found:
        index, values = found["index"].tolist(), found["c10_valid"].tolist()
    by_cell: dict[int, list[float]] = {}
    for place, value in zip(index, values):
        by_cell.setdefault(place, []).append(value)
    return [by_cell[place] for place in places]


def _supernet(file: Path) -> SupernetRanking:
    """The records of one supernet; a cell that diverged ranks last."""
    told, *cells = records.read(file)
    try:
        scores = {line["cell"]: -math.inf if line["loss"] is None else line["score"] for line in cells}
        seconds = told["charged_seconds"]
    except KeyError as error:
        raise InputError(f"'{file}' has no {error}; give a file of hcdc.experiments.supernet_pool") from error
    return SupernetRanking(seconds, lambda config: scores[config["cell"]])


def _mean_losses(line: Mapping[str, Any]) -> dict[str, Any]:
    """A record of the protocol ``copy-pool`` as a row; a cell that diverged has no loss."""
    losses = [math.nan if loss is None else loss for loss in line["loss"]]
    return {"ops": operation_key(line["cell"]), "loss": float(np.mean(losses))}


def operation_key(cell: str) -> str:
    return "-".join(map(str, operations(cell)))


def columns_of(file: Path, keys: Sequence[str], names: Sequence[str]) -> Array:
    """Columns ``[n, names]`` of a file by the cells' operation numbers."""
    found = _rows(file, names)
    for key in keys:
        if key not in found:
            raise InputError(f"'{file}' has no cell '{key}'")
    return np.array([found[key] for key in keys])


def _rows(file: Path, names: Sequence[str]) -> dict[str, list[float]]:
    """The columns of a file by the cells' operation numbers."""
    rows: list[dict[str, Any]]
    try:
        if file.suffix == ".jsonl":
            rows = [_mean_losses(line) for line in records.read(file)]
        elif file.suffix == ".npz":
            with np.load(file) as arrays:
                rows = [dict(zip(("ops", *names), row)) for row in zip(*(arrays[k] for k in ("ops", *names)))]
        else:
            with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as text:
                rows = list(csv.DictReader(text))
        return {str(row["ops"]): [float(row[name]) for name in names] for row in rows}
    except KeyError as error:
        raise InputError(f"'{file}' has no column {error}; it needs ops and {names[0]}") from error
