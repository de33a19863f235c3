"""Protocol ``gcn-accuracy``: test accuracy of a GCN trained on a condensed graph, as GCond publishes it.

    python -m hcdc.experiments.gcn_accuracy --dataset cora --sizes 35,70 --methods gcond --out FILE

Two layers, 256 hidden units, dropout .5, Adam lr .01 with a cut to a tenth halfway, 600 steps; the step with
the best accuracy on the original validation nodes is tested. The last step is reported beside it.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

from hcdc.condensers import condense
from hcdc.core import records
from hcdc.datasets import GraphData, Nodes, data
from hcdc.experiments._command import as_command, integers
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
) -> None:
    """Condense and test; one record a (method, size, seed) is appended to ``out``."""
    graph = data(dataset)
    assert isinstance(graph, GraphData)
    for method in methods:
        for size in sizes:
            for seed in seeds:
                task, space = GraphTask(graph), PolynomialFilter()
                small = condense(
                    task, space, method, train_size=size, seed=seed, val_method="real", preset=preset
                )
                assert isinstance(small.train, Nodes)
                found = gcn_accuracy(small.train, graph, networks)
                record = {"protocol": PROTOCOL, "dataset": dataset, "method": method, "train_size": size}
                percent = {key: 100 * found[key] for key in found if "accuracy" in key or key == "test_std"}
                record |= {"seed": seed, "networks": networks, "preset": preset, **found, **percent}
                kept = ("condense_seconds", "environment")
                records.append(out, record | {key: small.record[key] for key in kept})
                logging.getLogger("hcdc").info("%s", record)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--methods", default="gcond")
    parser.add_argument("--preset")
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run(
        given.dataset,
        integers("--sizes", given.sizes),
        integers("--seeds", given.seeds),
        given.methods.split(","),
        given.out,
        networks=given.networks,
        preset=given.preset,
    )


if __name__ == "__main__":
    as_command(main)
