"""Surrogate benchmarks: models that predict what a configuration would score on a table, as ONNX files.

The files are those of YAHPO Gym (Pfisterer et al., 2022), read without its package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, require, unknown_name
from hcdc.spaces import Box, Finite, Product, Space

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Layout:
    """What the files of a benchmark do not say.

    Attributes:
        numbers, names: Order of the inputs ``x_cont`` and ``x_cat``.
        table: The input that names the table.
        fidelity: The input that shortens a training; `full` is its greatest value.
        score, seconds: Positions of the validation accuracy and the training time among the outputs.
        unit: The accuracy of a perfect model: 1, or 100 for percent.
        fixed: Inputs that are not searched.
    """

    numbers: tuple[str, ...]
    names: tuple[str, ...]
    table: str
    fidelity: str
    full: float
    score: int
    seconds: int
    unit: float
    fixed: Mapping[str, float]


LAYOUTS: Mapping[str, _Layout] = {
    "lcbench": _Layout(
        ("epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units",
         "max_dropout"),
        ("OpenML_task_id",),
        "OpenML_task_id", "epoch", 52, 1, 0, 100, {},
    ),
    "rbv2_xgboost": _Layout(
        ("nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth", "min_child_weight",
         "colsample_bytree", "colsample_bylevel", "rate_drop", "skip_drop", "trainsize", "repl"),
        ("task_id", "booster", "num.impute.selected.cpo"),
        "task_id", "trainsize", 1, 0, 6, 1, {"repl": 10},
    ),
}  # fmt: skip


class Surrogate:
    """A surrogate benchmark: many tables, one search space, trainings of any length.

    Whole-number hyperparameters are rounded, and those without effect (``eta`` of a linear booster) ignored,
    so any point of `space` may be scored.

    Args:
        path: A folder named ``lcbench`` (networks, 34 tables, by epochs) or ``rbv2_xgboost`` (boosted trees,
            119 tables, by the share of the rows) with config_space.json, encoding.json and model.onnx.

    Attributes:
        tables: Names of the tables.
        space: What is searched, the same for all tables.
        full: The fidelity of a whole training.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        if path.name not in LAYOUTS:
            raise unknown_name("surrogate benchmark", path.name, LAYOUTS)
        self._layout = LAYOUTS[path.name]
        for file in ("config_space.json", "encoding.json", "model.onnx"):
            if not (path / file).is_file():
                raise InputError(f"the surrogate benchmark '{path}' has no file {file}")
        described = json.loads((path / "config_space.json").read_text())
        self._hyperparameters = {h["name"]: h for h in described["hyperparameters"]}
        self._conditions = described["conditions"]
        self._codes = json.loads((path / "encoding.json").read_text())
        runtime = require("onnxruntime", "surrogates")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = runtime.InferenceSession(str(path / "model.onnx"), options)
        self.tables: tuple[str, ...] = tuple(self._hyperparameters[self._layout.table]["choices"])
        self.full = float(self._layout.full)
        self.space = self._space()

    def _space(self) -> Space:
        """The hyperparameters that are searched: a box of numbers, times the choices."""
        layout = self._layout
        hidden = {layout.table, layout.fidelity, *layout.fixed}
        own = [h for name, h in self._hyperparameters.items() if name not in hidden]
        numbers = [h for h in own if h["type"] != "categorical"]
        box = Box(
            [h["name"] for h in numbers],
            [h["lower"] for h in numbers],
            [h["upper"] for h in numbers],
            ["log" if h["log"] else "linear" for h in numbers],
        )
        choices = [Finite(h["name"], h["choices"]) for h in own if h["type"] == "categorical"]
        return Product(box, *choices) if choices else box

    def share(self, fidelity: float) -> float:
        """Price of a training of this fidelity, as a share of a whole one."""
        h = self._hyperparameters[self._layout.fidelity]
        if not h["lower"] <= fidelity <= h["upper"]:
            raise InputError(f"{h['name']} {fidelity:g} lies outside [{h['lower']:g}, {h['upper']:g}]")
        return fidelity / self.full

    def score(self, table: str, configs: Sequence[Config], fidelity: float | None = None) -> Array:
        """Validation accuracy in [0, 1], ``[n]``.

        Args:
            table: One of `tables`.
            configs: Points of `space`.
            fidelity: Epochs or share of the rows; None means a whole training.
        """
        return np.clip(self._run(table, configs, fidelity)[:, self._layout.score] / self._layout.unit, 0, 1)

    def seconds(self, table: str, configs: Sequence[Config]) -> Array:
        """Seconds of whole trainings ``[n]``; a shorter one takes its `share` of them."""
        return np.maximum(self._run(table, configs, None)[:, self._layout.seconds], 1e-3)

    def _run(self, table: str, configs: Sequence[Config], fidelity: float | None) -> Array:
        """All outputs of the model ``[n, outputs]``."""
        layout = self._layout
        if table not in self.tables:
            raise unknown_name("table", table, self.tables)
        fidelity = self.full if fidelity is None else fidelity
        self.share(fidelity)
        given = {**layout.fixed, layout.table: table, layout.fidelity: fidelity}
        rows = [self._active({**config, **given}) for config in configs]
        inputs = {
            "x_cont": np.array([[self._number(row, n) for n in layout.numbers] for row in rows], np.float32),
            "x_cat": np.array([[self._codes[n][row[n]] for n in layout.names] for row in rows], np.int32),
        }
        found: Array = self._session.run(None, inputs)[0].astype(np.float64)
        return found

    def _active(self, config: Config) -> Config:
        """The configuration without the hyperparameters that its choices switch off."""
        off = [
            c["child"]
            for c in self._conditions
            if config[c["parent"]] not in (c["values"] if c["type"] == "IN" else [c["value"]])
        ]
        return {name: value for name, value in config.items() if name not in off}

    def _number(self, config: Mapping[str, Any], name: str) -> float:
        """A number as the model expects it; 0 where it is switched off."""
        if name not in config:
            return 0.0
        whole = self._hyperparameters[name]["type"] == "uniform_int"
        return float(math.floor(config[name] + 0.5) if whole else config[name])
