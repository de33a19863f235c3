"""Protocol ``trust-calibration``: do the intervals and verdicts of `hcdc.evaluation.trust` keep their word?

Candidates whose truth is known are probed again and again: 8, 16, 24 or 60 of them, drawn uniformly, or
top-heavy as a search draws them (a third uniformly, the others from the top of the stand-in's ranking, with
noise of .6 standard deviations). Each resample asks whether the interval holds the true agreement, and if the
verdict was right. Two controls: truth *shuffled* among the candidates; stand-in *shifted* by two standard
deviations for a random half of them.

    python -m hcdc.experiments.trust_calibration --benchmarks filters,lcbench --out FILE
"""

from __future__ import annotations

import argparse
import csv
import functools
import gzip
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hcdc.core import ranks, records
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.evaluation.trust import LEVEL, DimensionTrust, Trust, agreement, columns, dimension_agreement
from hcdc.experiments._command import as_command, check_names, integers, rounded
from hcdc.truth import Surrogate

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PROTOCOL = "trust-calibration"
HIGH = 0.9
"""True agreement at which "trust" should be said."""
SIZE = 1000
"""Configurations per table of a surrogate."""
FIDELITIES = {"lcbench": (3, 6, 12, 25), "rbv2_xgboost": (0.05, 0.1, 0.25, 0.5)}
DESIGNS = ("uniform", "chosen", "dimensions")
"""How probes are drawn; the last is uniform too and asks for every dimension."""
AUDITS = (24, 60, 120)
"""Probes of the design ``dimensions``."""


@dataclass(frozen=True)
class Pool:
    """Candidates with both scores, and their true agreement overall and among the better half."""

    name: str
    stand_in: Array
    truth: Array

    def agreement(self) -> tuple[float, float]:
        top = (stats.rankdata(self.stand_in) - 0.5) / len(self.stand_in) > 0.5
        inner = ranks.spearman(self.truth[top], self.stand_in[top])
        return ranks.spearman(self.truth, self.stand_in), inner


def nasbench201(root: Path) -> list[Pool]:
    """All different connected cells: a 500-image copy, 12 epochs, 200 epochs."""
    with gzip.open(root / "nasbench201.csv.gz", "rt") as file:
        table = {row["ops"]: row for row in csv.DictReader(file)}
    with gzip.open(root / "nasbench201_free" / "copy_losses_cifar10.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    copy = -np.array([float(row["loss"]) for row in rows])
    short, full = (np.array([float(table[row["ops"]][f"c10_valid_{n}"]) for row in rows]) for n in (12, 200))
    return [
        Pool("copy -> short", copy, short),
        Pool("copy -> full", copy, full),
        Pool("short -> full", short, full),
    ]


def nasbench_graph(root: Path) -> list[Pool]:
    """3,000 architectures per graph; stand-ins: another graph's table, parameters, latency."""
    table = np.load(root / "nasbench_graph.npz")
    graphs = sorted(name.removesuffix("_valid_perf") for name in table if name.endswith("_valid_perf"))
    some = numpy_stream(0, PROTOCOL, "graph").choice(len(table["arch"]), 3000, replace=False)
    scores = {name: table[name][some].astype(np.float64) for name in table if name != "arch"}
    pools = []
    for graph in graphs:
        others = [f"{other}_valid_perf" for other in graphs if other != graph]
        for stand_in in (*others, f"{graph}_para", f"{graph}_latency"):
            pools.append(Pool(f"{stand_in} -> {graph}", scores[stand_in], scores[f"{graph}_valid_perf"]))
    return pools


def filters(root: Path) -> list[Pool]:
    """80 graph filters per record of protocol ``filters-80``; every method is a stand-in."""
    pools = []
    for record in records.read("records/filters-80.jsonl"):
        if len(record["proxy"]) == 80 and all(v is not None for v in record["proxy"]):
            name = f"{record['dataset']} {record['label']}"
            pools.append(Pool(name, np.array(record["proxy"]), np.array(record["truth"])))
    return pools


def surrogate(name: str) -> Callable[[Path], list[Pool]]:
    """Every table of a surrogate benchmark at four fidelities."""

    def pools(root: Path) -> list[Pool]:
        benchmark = Surrogate(root / "surrogates" / name)
        configs = benchmark.space.sample(SIZE, numpy_stream(0, PROTOCOL, name))
        found = []
        for table in benchmark.tables:
            truth = benchmark.score(table, configs)
            for fidelity in FIDELITIES[name]:
                stand_in = benchmark.score(table, configs, fidelity)
                found.append(Pool(f"{table} at {fidelity:g}", stand_in, truth))
        return found

    return pools


BENCHMARKS: dict[str, Callable[[Path], list[Pool]]] = {
    "nasbench201": nasbench201,
    "nasbench-graph": nasbench_graph,
    "filters": filters,
    "lcbench": surrogate("lcbench"),
    "rbv2_xgboost": surrogate("rbv2_xgboost"),
}


def controlled(pool: Pool, control: str, rng: np.random.Generator) -> Pool:
    """The pool itself, or a control made from it."""
    if control == "shuffled":
        return Pool(pool.name, pool.stand_in, rng.permutation(pool.truth))
    if control == "shifted":
        half = rng.random(len(pool.truth)) < 0.5
        return Pool(pool.name, pool.stand_in + 2 * pool.stand_in.std() * half, pool.truth)
    return pool


def probed(stand_in: Array, count: int, uniform: bool, rng: np.random.Generator) -> Index:
    """Indices of the probes."""
    drawn = rng.permutation(len(stand_in))[: count if uniform else max(4, count // 3)]
    if uniform:
        return drawn
    places = (stats.rankdata(stand_in) - 0.5) / len(stand_in)
    noisy = stats.norm.ppf(places) + 0.6 * rng.standard_normal(len(places))
    noisy[drawn] = -np.inf
    return np.concatenate([drawn, np.argsort(-noisy, kind="stable")[: count - len(drawn)]])


def fisher(x: Array, y: Array) -> tuple[float, float]:
    """A rival interval: Fisher's z with the variance of Bonett and Wright (2000)."""
    rho, n = ranks.spearman(y, x), len(x)
    if math.isnan(rho):
        return (-1.0, 1.0)
    z, width = math.atanh(max(-0.999, min(0.999, rho))), 1.6449 * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return (math.tanh(z - width), math.tanh(z + width))


def bootstrap(x: Array, y: Array, rng: np.random.Generator) -> tuple[float, float]:
    """A rival interval: percentiles of 200 resamples."""
    index = rng.integers(0, len(x), (200, len(x)))
    a, b = (stats.rankdata(v[index], axis=1) for v in (x, y))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    spread = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    if not spread.any():
        return (-1.0, 1.0)
    low, high = np.quantile((a * b).sum(1)[spread > 0] / spread[spread > 0], [0.05, 0.95])
    return float(low), float(high)


def measure(
    pools: Sequence[Pool], count: int, uniform: bool, control: str, resamples: int, seed: int
) -> dict[str, Any]:
    """Probe the pools in turn; coverage, widths and verdicts."""
    rng = numpy_stream(seed, PROTOCOL, count, uniform, control)
    known = [pool.agreement() for pool in pools] if control == "none" else []
    rows, verdicts = [], []
    for k in range(resamples):
        pool = controlled(pools[k % len(pools)], control, rng)
        true, inner = known[k % len(pools)] if known else pool.agreement()
        index = probed(pool.stand_in, count, uniform, rng)
        found = agreement(pool.stand_in, index, pool.truth[index], uniform=uniform, finite=True)
        x, y = pool.stand_in[index], pool.truth[index]
        rivals = [*fisher(x, y), *bootstrap(x, y, rng)]
        rows.append([true, *found.interval, inner, *found.survivors.interval, *rivals])
        verdicts.append(found)
    table = np.array(rows, np.float64)
    truths = table[:, 0]
    return {
        "resamples": resamples,
        "spearman": _coverage(truths, table[:, 1:3]),
        "survivors": _coverage(table[:, 3], table[:, 4:6]),
        "fisher": _coverage(truths, table[:, 6:8]),
        "bootstrap": _coverage(truths, table[:, 8:10]),
        **_verdicts(truths, verdicts),
    }


def _coverage(true: Array, bounds: Array) -> dict[str, float]:
    defined = np.isfinite(true)
    low, high = bounds[defined].T
    held = (low <= true[defined]) & (true[defined] <= high)
    return {
        "coverage": float(held.mean()),
        "too_high": float((low > true[defined]).mean()),
        "width": float(np.median(high - low)),
    }


def _verdicts(true: Array, found: Sequence[Trust]) -> dict[str, Any]:
    """How often each verdict was said, and "trust" in three kinds of cases."""
    said = np.array([trust.verdict for trust in found])
    trusted, high, bad = said == "trust", true >= HIGH, true < LEVEL
    return {
        "verdicts": {name: float((said == name).mean()) for name in ("trust", "keep open", "no", "unknown")},
        "trust_wrong": float(bad[trusted].mean()) if trusted.any() else None,
        "trust_if_bad": float(trusted[bad].mean()) if bad.any() else None,
        "trust_if_high": float(trusted[high].mean()) if high.any() else None,
        "cases": {"trusted": int(trusted.sum()), "high": int(high.sum()), "bad": int(bad.sum())},
    }


def measure_dimensions(root: Path, name: str, count: int, resamples: int, seed: int) -> dict[str, Any]:
    """Per dimension: how often the interval of tau holds the value that all candidates give."""
    benchmark, rng = Surrogate(root / "surrogates" / name), numpy_stream(seed, PROTOCOL, "dimensions", count)
    configs = benchmark.space.sample(SIZE, numpy_stream(0, PROTOCOL, name))
    described = columns(configs, benchmark.space.dimensions())
    groups = {}
    if name == "lcbench":
        step = [c["learning_rate"] / c["batch_size"] / (1 - c["momentum"]) for c in configs]
        groups = {"learning_rate / batch_size / (1 - momentum)": np.log(step)}

    @functools.cache
    def known(table: str, fidelity: float) -> tuple[Array, Array, list[DimensionTrust]]:
        """Stand-in, truth and the agreement that all candidates give."""
        stand_in, truth = benchmark.score(table, configs, fidelity), benchmark.score(table, configs)
        whole = dimension_agreement(described, stand_in, np.arange(SIZE), truth, groups=groups)
        return stand_in, truth, whole

    rows = []
    for k in range(resamples):
        table = benchmark.tables[k % len(benchmark.tables)]
        stand_in, truth, whole = known(table, rng.choice(FIDELITIES[name]))
        index = rng.permutation(SIZE)[:count]
        few = dimension_agreement(described, stand_in, index, truth[index], groups=groups)
        for all_, found in zip(whole, few):
            verdicts = [found.verdict == verdict for verdict in ("choose here", "keep open")]
            rows.append([all_.tau, *found.interval, all_.importance, *verdicts])
    values = np.array(rows, np.float64)
    matter = values[:, 3] > 0.02
    true, chosen = values[:, 0], values[:, 4] > 0
    return {
        "resamples": resamples,
        "tau": _coverage(true, values[:, 1:3]),
        "tau_of_importance_above_.02": _coverage(true[matter], values[matter, 1:3]),
        "choose_here": float(chosen.mean()),
        "choose_here_wrong": float((true[chosen] < LEVEL).mean()) if chosen.any() else None,
        "choose_here_if_high": float(chosen[matter & (true >= HIGH)].mean()),
        "keep_open": float(values[:, 5].mean()),
    }


def run(
    names: Sequence[str],
    out: str | Path,
    *,
    designs: Sequence[str] = DESIGNS,
    probes: Sequence[int] = (8, 16, 24, 60),
    resamples: int = 1000,
    seed: int = 100,
    root: str | Path | None = None,
) -> None:
    """One record per benchmark, number of probes, design and control is appended to ``out``."""
    check_names("--benchmarks", names, BENCHMARKS)
    check_names("--designs", designs, DESIGNS)
    place = root or os.environ.get("HCDC_DATA")
    if place is None:
        raise InputError("the benchmarks are read from the folder HCDC_DATA, which is not set")
    for name in names:
        pools = BENCHMARKS[name](Path(place))
        common = {"protocol": PROTOCOL, "case": name, "pools": len(pools), "seed": seed}
        common["environment"] = records.environment()
        ways = [design for design in designs if design != "dimensions"]
        cases = [(count, way, "none") for count in probes for way in ways]
        cases += [(24, way, control) for control in ("shuffled", "shifted") for way in ways]
        for count, design, control in cases:
            found = measure(pools, count, design == "uniform", control, resamples, seed)
            told = {"probes": count, "design": design, "control": control}
            records.append(out, {**common, **told, **rounded(found)})
            logging.getLogger("hcdc").info("%s %s %s", name, told, json.dumps(found["spearman"]))
        for count in AUDITS if name in FIDELITIES and "dimensions" in designs else ():
            found = measure_dimensions(Path(place), name, count, resamples, seed)
            records.append(out, {**common, "probes": count, "design": "dimensions", **rounded(found)})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--benchmarks", default=",".join(BENCHMARKS))
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--probes", default="8,16,24,60")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--out", required=True, help="the file to which records are appended")
    given = parser.parse_args()
    run(
        given.benchmarks.split(","), given.out, designs=given.designs.split(","),
        probes=integers("--probes", given.probes), resamples=given.resamples, seed=given.seed,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
