"""Protocol ``nas-search``: the paper's table of architecture search on copies of CIFAR-10.

DARTS-PT searches the cells of NAS-Bench-201 on 500 training and 200 validation images (random ones, images
condensed by DC, or random training images with HCDC's validation images from 20 probes) or on the original
training and validation images. The cell it finds is looked up in the table. A record holds the seconds of
the search, those of making the copy, and the number of probes, whose trainings are looked up too. A short
search that is not recorded comes first, so that none is charged for starting the device.

    python -m hcdc.experiments.nas_search --table T.csv.gz --data random,dc,hcdc --seeds 300,301 --out F.jsonl

The same command continues: searches that ``--out`` has with the same settings are not run again.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcdc.condensers import plan
from hcdc.core import records
from hcdc.core.seeds import derive
from hcdc.datasets import CondensedDataset, data
from hcdc.experiments._command import (
    as_command,
    check_names,
    integers,
    made_copy,
    protocol_parser,
    rounded,
    settings_by_method,
)
from hcdc.experiments.nas201 import TUNING, copy_plan
from hcdc.search.searchers import SEARCHERS, searcher
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.truth import NASBench201Table, TableTruth

PROTOCOL = "nas-search"
NAMES = ("darts-pt-small", "darts-pt")
DATA = ("random", "dc", "hcdc", "original")
JUDGES = 512
"""Judging cells of protocol ``nas201``; no probe is one of them, here either."""
ITERATIONS = 20
"""Of DC: about half a minute on an H200."""
log = logging.getLogger("hcdc")


class Protocol:
    """One data set, its table and the file for records; ``given`` are the arguments of `parser`."""

    def __init__(self, given: Namespace):
        self.task = ImageTask(data(given.dataset))  # type: ignore[arg-type]
        self.truth = TableTruth(NASBench201Table(given.table), "cifar10")
        self.name, self.out, self.keep, self.device = given.searcher, given.out, given.keep, given.device
        classes = self.task.num_classes
        self.sizes = given.per_class * classes, given.val_per_class * classes
        self.options = settings_by_method("--set", given.set)
        self.options["dc"] = {"iterations": ITERATIONS, **self.options.get("dc", {})}
        check_names("method of --set", self.options, DATA[:-1])
        chosen = {"epochs": given.epochs, "tune_epochs": given.tune_epochs, "batch": given.batch}
        self.settings = {name: value for name, value in chosen.items() if value is not None}
        self.there = self.task.to(self.device)

    def copies(self, kind: str, seed: int) -> list[CondensedDataset]:
        """A copy, after the one that it was made from, if any; none is the original data."""
        if kind == "original":
            return []
        method = "random" if kind == "hcdc" else kind
        made = copy_plan(self.task, method, seed, self.sizes, self.options.get(method))
        base = made_copy(made, self.keep, self.device)
        if kind != "hcdc":
            return [base]
        learned = plan(
            self.task, NASBench201(skip=TUNING + JUDGES), val_method="probes", val_size=self.sizes[1],
            seed=derive(seed, "draw", 0), s_train=base, truth=self.truth, recipe={"metric": "loss"},
            options=self.options.get("hcdc"),
        )  # fmt: skip
        return [base, made_copy(learned, self.keep, self.device)]

    def searched(self, copies: Sequence[CondensedDataset], seed: int, **settings: Any) -> dict[str, Any]:
        """Search on the last copy, or on the original data: the cell, its settings and the seconds."""
        sets = {}
        if copies:
            sets = {part: getattr(copies[-1], part).to(self.device) for part in ("train", "val")}
        chosen = {**sets, **self.settings, **settings}
        made = searcher(self.name, NASBench201(), seed, task=self.there, **chosen)
        begun = time.perf_counter()
        cell = made.ask()["cell"]  # reads the cell back, so the device has finished
        seconds = time.perf_counter() - begun
        return {"cell": cell, "search_seconds": seconds, "settings": dataclasses.asdict(made.settings)}

    def run(self, kind: str, seed: int) -> None:
        """Make the copy, search on it and append the record."""
        copies = self.copies(kind, seed)
        found = self.searched(copies, seed)
        config = {"cell": found["cell"]}
        made = copies[-1].record if copies else {}
        probes = (copies[-1].meta.get("probes") if copies else None) or {"configs": [], "score": []}
        ranked = sorted(zip(probes["score"], probes["configs"]), key=lambda pair: -pair[0])
        records.append(
            self.out,
            rounded({
                "protocol": PROTOCOL, "searcher": self.name, "dataset": self.task.name, "data": kind,
                "seed": seed, "train_size": self.sizes[0] if copies else len(self.task.train),
                "val_size": self.sizes[1] if copies else len(self.task.val), **found,
                "making_seconds": sum(copy.record["condense_seconds"] for copy in copies),
                "making": self.options.get(kind, {}),
                "probes": len(ranked), "probe_seconds": made.get("probe_seconds"),
                "best_probe": self.truth.score(ranked[0][1], "test") if ranked else None,
                "val_accuracy": self.truth.score(config, "val"),
                "test_accuracy": self.truth.score(config, "test"),
                "environment": records.environment(self.device),
            }),
        )  # fmt: skip
        log.info("%s on %s, seed %d: %s in %.1f s", self.name, kind, seed, *list(found.values())[:2])

    def finished(self) -> set[tuple[str, int]]:
        """Data and seed of the searches that the file has, with the same settings, sizes and copies."""
        if not Path(self.out).exists():
            return set()
        settings = SEARCHERS[self.name].Settings.from_preset(overrides=self.settings)
        own = self.name, self.task.name, rounded(dataclasses.asdict(settings))
        return {
            (r["data"], r["seed"])
            for r in records.read(self.out)
            if r.get("protocol") == PROTOCOL
            and (r["searcher"], r["dataset"], r["settings"]) == own
            and (r["data"] == "original" or (r["train_size"], r["val_size"]) == self.sizes)
            and r["making"] == self.options.get(r["data"], {})
        }


def parser() -> ArgumentParser:
    """The arguments of the command."""
    parser = protocol_parser(__doc__, "cifar10", "300")
    parser.add_argument("--table", required=True)
    parser.add_argument("--searcher", default="darts-pt-small", choices=NAMES)
    parser.add_argument("--data", default=",".join(DATA), help="separated by commas")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--val-per-class", type=int, default=20)
    parser.add_argument("--epochs", type=int, help="of the supernet; default: the searcher's")
    parser.add_argument("--tune-epochs", type=int, help="after each choice; default: the searcher's")
    parser.add_argument("--batch", type=int, help="images per step; default: the searcher's")
    parser.add_argument("--set", action="append", default=[], help="METHOD.SETTING=NUMBER, dc or hcdc")
    parser.add_argument("--keep", help="folder of stored copies, which are reused")
    parser.add_argument("--limit", type=float, default=math.inf, help="start no search after so many seconds")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    kinds, seeds = given.data.split(","), integers("--seeds", given.seeds)
    check_names("--data", kinds, DATA)
    begun, protocol = time.monotonic(), Protocol(given)
    done = protocol.finished()
    units = [(kind, seed) for seed in seeds for kind in kinds if (kind, seed) not in done]
    if units:
        protocol.searched(protocol.copies("random", units[0][1]), 0, epochs=1, tune_epochs=0)
    for kind, seed in units:
        if time.monotonic() - begun > given.limit:
            break
        protocol.run(kind, seed)


if __name__ == "__main__":
    as_command(main)
