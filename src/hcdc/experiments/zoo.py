"""Protocol ``gnn-zoo``: rank the held-out half of the paper's 40 graph networks on condensed copies.

The space is finite: by seed, one half is used for condensing and the other half judges. HCDC relaxes the
choice of the filter at a fixed width and depth. The truth uses the seeds and steps of the full recipe.

    python -m hcdc.experiments.zoo --dataset cora --size 35 --seeds 0 --methods hcdc,random --out FILE
"""

from __future__ import annotations

import logging

from hcdc.condensers import condense
from hcdc.core import records
from hcdc.datasets import data
from hcdc.evaluation import evaluate
from hcdc.experiments._command import as_command, check_names, integers, protocol_parser
from hcdc.experiments.filters80 import METHODS, short
from hcdc.spaces import GNNZoo
from hcdc.tasks import GraphTask

PROTOCOL = "gnn-zoo"
OPTIONS = {"trajectories": 20, "points": 1, "holdout": 6, "steps": 100, "batch": 10, "check": 10}
"""Shorter than the default, because the relaxed network holds all ten filters at once."""


def run(
    dataset: str, size: int, seed: int, methods: list[str], out: str, device: str, cache: str | None = None
) -> None:
    """Condense and judge; appends one record per method to ``out``."""
    check_names("--methods", methods, METHODS)
    task = GraphTask(data(dataset))  # type: ignore[arg-type]
    for name in methods:
        options = OPTIONS if name.startswith("hcdc") else None
        small = condense(
            task, GNNZoo(), train_size=size, seed=seed, device=device, options=options, **METHODS[name]
        )
        found = evaluate(
            small, candidates=40, seed=seed, task=task, device=device, cache=cache, rivals=name == "hcdc"
        ).to_json()
        record = {"protocol": PROTOCOL, "label": name, **short(found), "making": small.record}
        records.append(out, {**record, "configs": found["configs"]})
        logging.getLogger("hcdc").info("%s %s %d seed %d: %s", dataset, name, size, seed, found["spearman"])


def main() -> None:
    parser = protocol_parser(__doc__, "cora")
    parser.add_argument("--size", type=int, default=35)
    parser.add_argument("--methods", default="hcdc,random,reach")
    parser.add_argument("--cache")
    given = parser.parse_args()
    for seed in integers("--seeds", given.seeds):
        run(given.dataset, given.size, seed, given.methods.split(","), given.out, given.device, given.cache)


if __name__ == "__main__":
    as_command(main)
