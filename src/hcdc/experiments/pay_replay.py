"""Protocol ``graphs-pay-picks``: what the seconds of a search on a copy buy elsewhere, from records.

    python -m hcdc.experiments.pay_replay --pool records/pools/physics.jsonl --out FILE
    python -m hcdc.experiments.pay_replay --dataset amazon_computers --ranked records/graphs-cost.jsonl \\
        --known records/filters-80.jsonl --prices records/graphs-pay.jsonl --out FILE

Every candidate is tried on the copy, the best is trained in full. As many seconds, those of making the copy
included, go to other trainings of candidates in random order, the best of which is trained in full. Picks are
made by validation and judged by test accuracy.

``--pool`` has random copies of 5 % of the training nodes, scored on the real validation nodes (protocol
``physics-pool``). ``--ranked`` has learned copies (``graphs-cost``); the results of full trainings are
those of three seeds there, at the price of one, which favours full trainings.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.seeds import numpy_stream
from hcdc.experiments._command import as_command, rounded
from hcdc.experiments.graph_cost import known_record

PROTOCOL = "graphs-pay-picks"
DRAWS = 1000
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Way:
    """A way to try n candidates.

    Attributes:
        scores: Validation scores ``[n]``, higher is better.
        seconds: Seconds of each trial ``[n]``.
        once: Seconds before the first trial.
    """

    scores: Array
    seconds: Array
    once: float = 0.0


def picked(way: Way, order: NDArray[np.int64], budget: float) -> tuple[int, int]:
    """The best candidate of those whose trials fit in the budget, in this order, and their number."""
    count = max(1, int((way.once + way.seconds[order].cumsum() <= budget).sum()))
    some = order[:count]
    return int(some[way.scores[some].argmax()]), count


def compared(copies: Sequence[Way], others: dict[str, Way], test: Array) -> dict[str, Any]:
    """Test accuracy of the pick of each way, over random orders; all have a copy's seconds for all trials."""
    full, found = others["full"], {name: [] for name in ("copy", *others)}  # type: ignore[var-annotated]
    last = float(full.seconds.mean())  # the winner's training
    budgets = [copy.once + float(copy.seconds.sum()) for copy in copies]
    for draw in range(DRAWS):
        copy, budget = copies[draw % len(copies)], budgets[draw % len(copies)]
        order = numpy_stream(draw, "pays-order").permutation(len(test))
        for name, way in {"copy": copy, **others}.items():
            best, count = picked(way, order, budget + (last if name == "full" else 0) + 1e-9)
            found[name].append((test[best], count))
    ways = {}
    for name, drawn in found.items():
        accuracy, counts = np.array(drawn).T
        low, high = np.quantile(accuracy, [0.05, 0.95])
        ways[name] = {"test": accuracy.mean(), "low": low, "high": high, "trials": counts.mean()}
    return {"trials": len(test), "seconds": float(np.mean(budgets)) + last, "best": test.max(), "ways": ways}


def from_pool(path: str) -> dict[str, Any]:
    """Random copies of a recorded pool against its shorter and its full trainings."""
    pool = [r for r in records.read(path) if r["protocol"] == "physics-pool" and r["seed"] == 0]

    def way(rung: str) -> Way:
        return Way(np.array([r["val"][rung] for r in pool]), np.array([r["seconds"][rung] for r in pool]))

    rungs = list(pool[0]["val"])
    others = {rung: way(rung) for rung in rungs if not rung.startswith("copy")}
    copies = [way(rung) for rung in rungs if rung.startswith("copy")]
    told = {"dataset": "coauthor_physics", "space": pool[0]["space"], "copy": "random"}
    return {**told, **compared(copies, others, np.array([r["test"] for r in pool]))}


def from_ranking(ranked: str, known: str, prices: str, dataset: str) -> dict[str, Any]:
    """A learned copy of ``graphs-cost`` against full trainings."""
    made = [r for r in records.read(ranked) if r["dataset"] == dataset and r["objective"] == "landscape"][-1]
    priced = [r for r in records.read(prices) if r["dataset"] == dataset and r["space"] == "filters"]
    price = next(r for r in priced if r["split"] == "own")
    truth = known_record(known, dataset, made["judge_seed"])
    each = np.ones(made["candidates"])
    copy = Way(
        np.array(made["proxy"]), price["copies"]["landscape"]["trial"] * each, once=made["cpu_seconds"]
    )
    others = {"full": Way(np.array(truth["truth"]), price["full"] * each)}
    told = {"dataset": dataset, "space": "filters", "copy": "landscape", "trainings": made["trainings"]}
    return {**told, **compared([copy], others, np.array(truth["test"]))}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    for name, words in (
        ("--pool", "a pool of physics"), ("--ranked", "records of graphs-cost"),
        ("--known", "records of filters-80"), ("--prices", "records of graphs-pay"),
    ):  # fmt: skip
        parser.add_argument(name, help=words)
    parser.add_argument("--dataset", default="amazon_computers", help="of --ranked")
    parser.add_argument("--out", required=True, help="file to append records to")
    given = parser.parse_args()
    if given.pool:
        found = from_pool(given.pool)
    else:
        found = from_ranking(given.ranked, given.known, given.prices, given.dataset)
    records.append(given.out, {"protocol": PROTOCOL, **rounded(found), "environment": records.environment()})
    logging.getLogger("hcdc").info("%s: %s", found["dataset"], rounded(found["ways"]))


if __name__ == "__main__":
    as_command(main)
