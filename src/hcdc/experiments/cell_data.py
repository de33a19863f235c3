"""What is recorded about the cells of NAS-Bench-201: figures that cost little, and results by length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.experiments.search_pools import columns_of, operation_key, single_runs
from hcdc.spaces import NASBench201
from hcdc.truth import NASBench201Table

Array = NDArray[np.float64]
FREE = ("jacov", "synflow", "nwot")
"""Training-free scores."""
PREFIX = {"cifar10": "c10", "cifar100": "c100"}


@dataclass(frozen=True)
class OneShot:
    """How cells score with the weights of one supernet.

    Attributes:
        loss, accuracy: On validation images ``[n]``; NaN where a cell was not scored.
        train_seconds: Seconds of training the supernet.
        score_seconds: Seconds of scoring one cell.
    """

    loss: Array
    accuracy: Array
    train_seconds: float
    score_seconds: float

    @classmethod
    def read(cls, cells: Sequence[str], file: Path) -> OneShot:
        """Read the records of `hcdc.experiments.supernet_pool`."""
        told, *lines = records.read(file)
        by_cell = {line["cell"]: (line["loss"], line["score"]) for line in lines}
        scored = np.array([by_cell.get(cell, (math.nan, math.nan)) for cell in cells], np.float64)
        return cls(scored[:, 0], scored[:, 1], told["train_seconds"], told["score_seconds"] / len(lines))


@dataclass(frozen=True)
class CellData:
    """Cells and what is known of them, row by row.

    Attributes:
        cells: Their strings.
        features: Operation counts and the log of the number of parameters ``[n, 6]``.
        structure: Structural features, promises and the log of the number of parameters ``[n, f]``.
        encoded: The operation of each edge, one-hot ``[n, 30]``.
        promises: Figures of the structure of which more promises more, by name ``[n]`` each.
        size: Log of the number of parameters ``[n]``.
        free: Training-free scores by name ``[n]`` each, of CIFAR-10.
        loss, accuracy: On the sets of the copy ``[n, sets]``; NaN where a cell was not trained.
        short: Validation accuracy after 12 epochs ``[n]``.
        short_test: Test accuracy after 12 epochs, of a training on all images ``[n]``.
        val, test: Accuracy after 200 epochs, mean over runs ``[n]``.
        runs: Validation accuracy of single runs of 200 epochs ``[n, 3]``; NaN where there is none.
        seconds: Seconds of a cell on the copy, all sets.
        one_shot: Scores by a supernet, if one was read.
    """

    cells: Sequence[str]
    features: Array
    structure: Array
    encoded: Array
    promises: dict[str, Array]
    size: Array
    free: dict[str, Array]
    loss: Array
    accuracy: Array
    short: Array
    short_test: Array
    val: Array
    test: Array
    runs: Array
    seconds: float
    one_shot: OneShot | None = None

    @classmethod
    def read(
        cls, data: Path, copy: Path | None, dataset: str = "cifar10", supernet: Path | None = None
    ) -> CellData:
        """Read all unique connected cells.

        Args:
            data: Folder with nasbench201.csv.gz and nasbench201_free.
            copy: Records of `hcdc.experiments.copy_pool`, or None.
            dataset: ``"cifar10"`` or ``"cifar100"``.
            supernet: Records of `hcdc.experiments.supernet_pool`, or None.
        """
        space, table = NASBench201(), NASBench201Table(data / "nasbench201.csv.gz")
        configs = space.candidates()
        cells = [str(config["cell"]) for config in configs]
        size = np.array([math.log(space.parameter_count(config, 3, 10)) for config in configs])
        each = [space.promises(config) for config in configs]
        promises = {name: np.array([one[name] for one in each]) for name in each[0]}
        encoded = np.array([space.encode(config).tolist() for config in configs])
        features = np.array([space.features(config) for config in configs])
        structure = np.array([list(space.structure(config).values()) for config in configs])
        keys = [operation_key(cell) for cell in cells]
        free = columns_of(data / "nasbench201_free" / "zero_cost_cifar10.csv.gz", keys, FREE)
        short, short_test, val, test = (
            np.array([table.lookup(cell, f"{PREFIX[dataset]}_{column}") for cell in cells])
            for column in ("valid_12", "test_12", "valid_200", "test_200")
        )
        runs = val[:, None]
        if dataset == "cifar10":
            single = single_runs(
                data / "nasbench201_free" / "runs_c10_valid_200.npz", list(map(table.index, cells))
            )
            runs = np.array([[*some, *[np.nan] * (3 - len(some))] for some in single])
        loss, accuracy, seconds = _copies(cells, copy)
        structure = np.c_[structure, *promises.values(), size]
        return cls(
            cells, features, structure, encoded, promises, size, dict(zip(FREE, free.T)), loss, accuracy,
            short, short_test, val, test, runs, seconds,
            None if supernet is None else OneShot.read(cells, supernet),
        )  # fmt: skip

    @property
    def copied(self) -> NDArray[np.bool_]:
        """Whether a cell was trained on the copy, without diverging ``[n]``."""
        found: NDArray[np.bool_] = np.all(np.isfinite(self.loss), axis=1)
        return found

    def one_run(self, rows: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """A random single run of 200 epochs of each of some rows."""
        known = np.isfinite(self.runs[rows]).sum(1)
        found: Array = self.runs[rows, (rng.random(len(rows)) * known).astype(int)]
        return found


def _copies(cells: Sequence[str], file: Path | None) -> tuple[Array, Array, float]:
    """Losses and accuracies ``[n, sets]`` of one file, NaN where a cell is missing, and mean seconds."""
    if file is None:
        nothing = np.full((len(cells), 1), np.nan)
        return nothing, nothing, 0.0
    lines: dict[str, dict[str, Any]] = {line["cell"]: line for line in records.read(file)}
    sets = len(next(iter(lines.values()))["loss"])
    none = {"loss": [None] * sets, "score": [None] * sets}
    loss, accuracy = (
        np.array([lines.get(cell, none)[what] for cell in cells], np.float64) for what in ("loss", "score")
    )
    return loss, accuracy, float(np.mean([line["seconds"] for line in lines.values()]))
