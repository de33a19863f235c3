"""The tables of protocol ``nas201``, from its records: resampled draws of 100 cells, intervals, costs.

    python -m hcdc.experiments.nas201_tables records/nas201-cifar10.jsonl docs/results.md

Every record holds scores of the same judging cells, so that all rows are judged on the same draws.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.files import write_atomic
from hcdc.core.ranks import spearman
from hcdc.core.seeds import numpy_stream
from hcdc.evaluation._ridge import ridge_predictions
from hcdc.experiments.tables import table_text
from hcdc.spaces import NASBench201

Array = NDArray[np.float64]
Record = dict[str, Any]
DRAWS, CELLS, TOP, PROMOTED = 20, 100, 30, 5

LABELS = {
    "hcdc-probes": "**HCDC (b)**: 200 images learned from 20 probes",
    "hcdc-weighted": "**HCDC (d)**: 200 weighted real images from 20 probes",
    "random-val": "random copy, 200 random validation images, by loss",
    "real-val": "random S_train, the real validation set, by loss",
}


def row(truth: Array, test: Array, proxy: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Figures of one ranking over draws of 100 cells, ``[DRAWS]`` each."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(DRAWS):
        some = rng.permutation(len(truth))[: min(CELLS, len(truth))]
        t, p, s = truth[some], proxy[some], test[some]
        found["spearman"].append(spearman(t, p))
        best = np.argsort(-t, kind="stable")[:TOP]
        found["top"].append(spearman(t[best], p[best]))
        order = np.argsort(-p, kind="stable")
        found["regret"].append(100 * float(s.max() - s[order[0]]))
        chosen = order[:PROMOTED][np.argmax(t[order[:PROMOTED]])]
        found["promoted"].append(100 * float(s.max() - s[chosen]))
    return {name: np.asarray(values) for name, values in found.items()}


def rankings(found: Sequence[Record]) -> tuple[Record, dict[str, list[tuple[Array, float]]]]:
    """The truth's record, and for each row its rankings with the seconds that each took in all."""
    base = next(r for r in found if r["label"] == "truth")
    rows: dict[str, list[tuple[Array, float]]] = defaultdict(list)
    rows["number of parameters"].append((np.asarray(base["parameters"], float), 0.0))
    twelve = float(np.sum(base["seconds"])) * 12 / 200
    rows["12 epochs on the full data (table)"].append((np.asarray(base["val12"]), twelve))
    features = np.asarray(base["features"], float)
    seen: set[tuple[str, ...]] = set()
    for r in found:
        if r["label"] == "truth":
            continue
        spent = r.get("judge_seconds", 0.0) + r.get("condense_seconds", 0.0) + r.get("probe_seconds", 0.0)
        spent += (r.get("making") or {}).get("condense_seconds", 0.0)
        if r["label"] in LABELS:
            rows[LABELS[r["label"]]].append((-np.asarray(r["loss"]), spent))
        else:
            name = f"{r['label']}, {r['recipe_name']} recipe, by"
            rows[f"{name} accuracy"].append((np.asarray(r["val.score"]), spent))
            rows[f"{name} loss"].append((-np.asarray(r["val.loss"]), spent))
        if r["label"] in ("hcdc-probes", "hcdc-weighted"):
            at = np.asarray([_features(cell) for cell in r["probes"]])
            value = np.asarray(r["probe_scores"])
            cost = r["probe_seconds"]
            key = tuple(r["probes"])
            if key not in seen:
                seen.add(key)
                rows["ridge on operation counts and parameters, 20 probes"].append(
                    (ridge_predictions(at, value, features), cost)
                )
    return base, rows


def _features(cell: str) -> list[float]:
    return NASBench201().features({"cell": cell})


def agreement(found: Sequence[Record]) -> str:
    """One row a method: rank agreement, top 30, regret of the pick alone and after promotion, seconds."""
    base, rows = rankings(found)
    truth, test = np.asarray(base["val"]), np.asarray(base["test"])
    lines = []
    for name, ranked in rows.items():
        each = [row(truth, test, proxy, numpy_stream(0, "nas201-draws")) for proxy, _ in ranked]
        joined = {k: np.concatenate([e[k] for e in each]) for k in each[0]}
        mean = {k: float(v.mean()) for k, v in joined.items()}
        low, high = np.quantile(joined["spearman"], [0.05, 0.95])
        seconds = float(np.mean([s for _, s in ranked]))
        whole = float(np.mean([spearman(truth, proxy) for proxy, _ in ranked]))
        lines.append(
            (
                mean["spearman"],
                [
                    name,
                    f"{len(ranked)}",
                    f"{mean['spearman']:.3f} [{low:.2f}, {high:.2f}]",
                    f"{whole:.3f}",
                    f"{mean['top']:.2f}",
                    f"{mean['regret']:.2f}",
                    f"{mean['promoted']:.2f}",
                    f"{seconds:,.0f}",
                ],
            )
        )
    head = [
        "ranked by",
        "runs",
        f"Spearman, {DRAWS} draws of {CELLS}: mean [5 %, 95 %]",
        f"all {len(truth)}",
        f"top {TOP}",
        "regret of the pick, points",
        f"best of {PROMOTED} promoted",
        "seconds in all",
    ]
    return table_text(head, [line for _, line in sorted(lines, key=lambda pair: -pair[0])])


def main(arguments: Sequence[str]) -> None:
    *files, document = arguments
    found = [r for file in files for r in records.read(file)]
    text = Path(document).read_text()
    for benchmark in ("cifar10", "cifar100"):
        start, end = f"<!-- nas201-{benchmark} -->\n", f"<!-- /nas201-{benchmark} -->"
        mine = [r for r in found if r["dataset"] == benchmark]
        if start in text and mine:
            before, _, rest = text.partition(start)
            text = f"{before}{start}{agreement(mine)}\n{end}{rest.partition(end)[2]}"
    write_atomic(document, text)


if __name__ == "__main__":
    main(sys.argv[1:])
