"""Protocol ``filters-80``: rank 80 new graph filters on condensed copies of a graph.

Powers of P, k = 0..3, lambda uniform in [-1, 1]^4, 2 layers, width 64, 200 Adam steps, lr .01, wd 5e-4; truth
is the mean last-step validation accuracy of 3 seeds. Settings were tuned on seeds 0-2; records use seeds
100-104.

    python -m hcdc.experiments.filters80 --dataset cora --sizes 35,70 --seeds 100 --methods hcdc --out FILE
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcdc.condensers import plan
from hcdc.core import records
from hcdc.datasets import data
from hcdc.evaluation import evaluate
from hcdc.experiments._command import as_command, check_names, integers, made_copy, protocol_parser, rounded
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask

PROTOCOL = "filters-80"
METHODS: dict[str, dict[str, Any]] = {
    "hcdc": {"method": "hcdc"},
    "hcdc-aligned": {"method": "hcdc", "val_method": "aligned"},
    "hcdc-gcond": {"method": "hcdc", "train_method": "gcond"},
    "random": {"method": "random"},
    "reach": {"method": "reach"},
    "kcenter": {"method": "kcenter"},
    "herding": {"method": "herding"},
    "gcondx": {"method": "gcondx", "val_method": "random"},
    "gcond": {"method": "gcond", "val_method": "random"},
}


def run(
    dataset: str,
    sizes: Sequence[int],
    seeds: Sequence[int],
    methods: Sequence[str],
    out: str | Path,
    *,
    device: str = "cpu",
    candidates: int = 80,
    cache: str | None = None,
    copies: str | Path | None = None,
    options: dict[str, Any] | None = None,
) -> None:
    """Condense and judge; appends one record per size, seed and method to ``out``.

    Args:
        copies: A folder of stored copies, which are reused.
        options: Changes to HCDC's settings, for tests of the protocol only.
    """
    check_names("--methods", methods, METHODS)
    task = GraphTask(data(dataset))  # type: ignore[arg-type]
    for seed in seeds:
        for size in sizes:
            for name in methods:
                own = options if name.startswith("hcdc") else None
                planned = plan(
                    task, PolynomialFilter(), train_size=size, seed=seed, options=own, **METHODS[name]
                )
                small = made_copy(planned, copies, device)
                found = evaluate(
                    small, candidates=candidates, seed=seed, task=task, device=device, cache=cache,
                    rivals=name == "hcdc",
                ).to_json()  # fmt: skip
                records.append(
                    out, {"protocol": PROTOCOL, "label": name, **short(found), "making": small.record}
                )
                logging.getLogger("hcdc").info(
                    "%s %s %d seed %d: spearman %.3f, pick %.3f", dataset, name, size, seed,
                    found["spearman"] or float("nan"), found["selected_test_accuracy"] or float("nan"),
                )  # fmt: skip


def short(found: dict[str, Any]) -> dict[str, Any]:
    """The record, rounded, without what follows from the seed."""
    return {key: rounded(value) for key, value in found.items() if key not in ("configs", "note")}


def main() -> None:
    parser = protocol_parser(__doc__, "cora")
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--methods", default="hcdc")
    parser.add_argument("--candidates", type=int, default=80)
    parser.add_argument("--cache")
    parser.add_argument("--copies", help="folder of stored copies, which are reused")
    parser.add_argument("--options", default="{}", help="changes to HCDC's settings, as JSON; for tests")
    given = parser.parse_args()
    run(
        given.dataset, integers("--sizes", given.sizes), integers("--seeds", given.seeds),
        given.methods.split(","), given.out, device=given.device, candidates=given.candidates,
        cache=given.cache, copies=given.copies, options=json.loads(given.options) or None,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
