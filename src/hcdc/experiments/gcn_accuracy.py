"""Protocol ``gcn-accuracy``: test accuracy of a GCN trained on a condensed graph, as published for GCond.

    python -m hcdc.experiments.gcn_accuracy --dataset cora --sizes 35,70 --methods gcond --out FILE

Two layers, 256 hidden units, dropout .5, 600 Adam steps, lr .01 divided by ten halfway. Tests the step with
the best accuracy on the original validation nodes, and the last step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hcdc.condensers import condense
from hcdc.core import records
from hcdc.datasets import data
from hcdc.experiments._command import as_command, integers, protocol_parser
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask
from hcdc.training import gcn_accuracy

PROTOCOL = "gcn-accuracy"


def run(
    dataset: str,
    sizes: Sequence[int],
    seeds: Sequence[int],
    methods: Sequence[str],
    out: str,
    *,
    networks: int = 5,
    preset: str | None = None,
    device: str = "cpu",
) -> None:
    """Condense and test; appends one record per method, size and seed to ``out``."""
    graph: Any = data(dataset)
    for method in methods:
        for size in sizes:
            for seed in seeds:
                task, space = GraphTask(graph), PolynomialFilter()
                small = condense(
                    task, space, method, train_size=size, seed=seed, val_method="real", preset=preset,
                    device=device,
                )  # fmt: skip
                found = gcn_accuracy(small.train, graph, networks)  # type: ignore[arg-type]
                record = {"protocol": PROTOCOL, "dataset": dataset, "method": method, "train_size": size}
                percent = {key: 100 * found[key] for key in found if "accuracy" in key or key == "test_std"}
                record |= {"seed": seed, "networks": networks, "preset": preset, **found, **percent}
                kept = ("condense_seconds", "environment")
                records.append(out, record | {key: small.record[key] for key in kept})
                logging.getLogger("hcdc").info("%s", record)


def main() -> None:
    parser = protocol_parser(__doc__, "cora")
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--methods", default="gcond")
    parser.add_argument("--preset")
    parser.add_argument("--networks", type=int, default=5)
    given = parser.parse_args()
    run(
        given.dataset, integers("--sizes", given.sizes), integers("--seeds", given.seeds),
        given.methods.split(","), given.out, networks=given.networks, preset=given.preset,
        device=given.device,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
