"""``nas``: the paper's table of architecture search on copies of CIFAR-10 (tab:nas).

DARTS-PT searches the cells of NAS-Bench-201 on 500 training and 200 validation images (random ones, images
condensed by DC, or random training images with HCDC's validation images from 20 probes) or on the original
training and validation images. The cell it finds is looked up in the table. A record holds the seconds of
the search, those of making the copy, and the number of probes, whose trainings are looked up too. A short
search that is not recorded comes first, so that none is charged for starting the device.

REINFORCE is replayed from records of ``nas201`` (`hcdc.experiments.reinforce_replay`); nothing is trained.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from hcdc.condensers import plan
from hcdc.core import records
from hcdc.core.seeds import derive
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset, ImageData
from hcdc.experiments._command import check_names, rounded
from hcdc.experiments.nas_search_tables import DATA as TITLES
from hcdc.experiments.nas_search_tables import PAPER, Found, place
from hcdc.experiments.reinforce_replay import REPLAYS, replays
from hcdc.experiments.reproductions._frame import Record, Reproduction, Scale, Table, Unit, Work, register
from hcdc.experiments.reproductions.nas201 import TUNING, copy_plan, default_table
from hcdc.search.searchers import searcher
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.truth import NASBench201Table, TableTruth

SEARCHERS = ("darts-pt-small", "darts-pt", "reinforce")
ROWS = {"darts-pt-small": "DARTS-PT", "darts-pt": "DARTS-PT", "reinforce": "REINFORCE"}
"""Searchers and the paper's rows."""
DATA = ("random", "dc", "hcdc", "original")
JUDGES = 512
"""Judging cells of ``nas201``; no probe is one of them, here either."""
ITERATIONS = 20
"""Of DC: about half a minute on an H200."""


@register
@dataclass(frozen=True)
class NAS(Reproduction):
    """Search seconds and test accuracy of the cell found, by searcher and data.

    Attributes:
        searchers: Any of `SEARCHERS`.
        data: What is searched on.
        dataset: The images.
        per_class, val_per_class: Images per class in a copy.
        epochs, tune_epochs, batch: Of the supernet; -1 (batch: 0) takes the searcher's.
        nas201: Records of ``nas201`` that REINFORCE replays.
        replays: How many replays.
        table_file: File of the benchmark's results; empty takes the one in the folder of the data.
        options: Settings of ``dc`` and ``hcdc``, ``--set dc.iterations=20``.
    """

    searchers: tuple[str, ...] = ("darts-pt-small", "reinforce")
    data: tuple[str, ...] = DATA
    dataset: str = "cifar10"
    per_class: int = setting(50, least=1)
    val_per_class: int = setting(20, least=1)
    epochs: int = setting(-1, least=-1)
    tune_epochs: int = setting(-1, least=-1)
    batch: int = setting(0, least=0)
    nas201: str = "records/nas201-cifar10.jsonl"
    replays: int = setting(REPLAYS, least=1)
    table_file: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    name, protocol = "nas", "nas-search"
    label = "tab:nas"
    title = "DARTS-PT and REINFORCE on copies of CIFAR-10"
    axes = ("searchers", "data")
    scales: ClassVar = {
        "smoke": Scale(
            {
                "searchers": ("darts-pt-small",),
                "data": ("random",),
                "per_class": 1,
                "val_per_class": 1,
                "epochs": 1,
                "tune_epochs": 0,
                "batch": 20,
            }
        ),
        "small": Scale({"searchers": ("reinforce",)}, takes="half a minute, from records of nas201"),
        "paper": Scale(seeds=5, takes="an hour on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set searchers", self.searchers, SEARCHERS)
        check_names("--set data", self.data, DATA)
        check_names("method of --set", self.options, DATA[:-1])
        found = []
        for name in self.searchers:
            if name == "reinforce":  # its replays are over the records' own seeds
                found.append(self.unit(0, searcher=name))
                continue
            found += [
                self.unit(seed, dataset=self.dataset, searcher=name, data=kind)
                for seed in seeds
                for kind in self.data
            ]
        return found

    def run(self, unit: Unit, work: Work) -> list[Record]:
        if unit["searcher"] == "reinforce":
            return [rounded(records.jsonable(found)) for found in replays(self.nas201, self.replays)]
        return [rounded(Search(self, unit, work).record())]

    def table(self, found: Sequence[Record]) -> Table:
        head = [
            "searcher",
            "data",
            "recipe",
            "seconds: search / with all",
            "paper",
            "Perf., %",
            "paper",
            "HCDC is",
        ]
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for r in found:
            groups.setdefault((r["searcher"], r["data"], r.get("recipe", "")), []).append(r)
        every, rows = {key: Found.of(some) for key, some in groups.items()}, []
        for (name, kind, recipe), own in every.items():
            at = 2 * DATA.index(kind)
            seconds, accuracy = PAPER[ROWS[name]][at : at + 2]
            rows.append([name, TITLES[kind], recipe, own.seconds(), seconds, own.accuracy(), accuracy])
            beside = {k: f for (n, k, r), f in every.items() if (n, r) == (name, recipe)}
            rows[-1].append(place(beside) if kind == "hcdc" else "")
        return Table(head, rows, ["the paper's seconds leave out the making of the copy and the probes"])


class Search:
    """One DARTS-PT search: its copy, its cell and its figures."""

    def __init__(self, given: NAS, unit: Unit, work: Work):
        self.task = ImageTask(cast(ImageData, work.data(unit["dataset"])))
        self.truth = TableTruth(NASBench201Table(given.table_file or default_table()), "cifar10")
        self.name, self.kind, self.seed, self.work = unit["searcher"], unit["data"], unit["seed"], work
        classes = self.task.num_classes
        self.sizes = given.per_class * classes, given.val_per_class * classes
        self.options = {**given.options, "dc": {"iterations": ITERATIONS, **given.options.get("dc", {})}}
        chosen = {"epochs": given.epochs, "tune_epochs": given.tune_epochs, "batch": given.batch or -1}
        self.settings = {name: value for name, value in chosen.items() if value >= 0}
        self.there = self.task.to(work.device)

    def copies(self, kind: str) -> list[CondensedDataset]:
        """A copy, after the one that it was made from, if any; none is the original data."""
        if kind == "original":
            return []
        method = "random" if kind == "hcdc" else kind
        made = copy_plan(self.task, method, self.seed, self.sizes, self.options.get(method))
        base = self.work.copy(made)
        if kind != "hcdc":
            return [base]
        learned = plan(
            self.task, NASBench201(skip=TUNING + JUDGES), val_method="probes", val_size=self.sizes[1],
            seed=derive(self.seed, "draw", 0), s_train=base, truth=self.truth, recipe={"metric": "loss"},
            options=self.options.get("hcdc"),
        )  # fmt: skip
        return [base, self.work.copy(learned)]

    def searched(self, copies: Sequence[CondensedDataset], seed: int, **settings: Any) -> dict[str, Any]:
        """Search on the last copy, or on the original data: the cell, its settings and the seconds."""
        sets = {}
        if copies:
            sets = {part: getattr(copies[-1], part).to(self.work.device) for part in ("train", "val")}
        chosen = {**sets, **self.settings, **settings}
        made = searcher(self.name, NASBench201(), seed, task=self.there, **chosen)
        begun = time.perf_counter()
        cell = made.ask()["cell"]  # reads the cell back, so the device has finished
        seconds = time.perf_counter() - begun
        return {"cell": cell, "search_seconds": seconds, "settings": dataclasses.asdict(made.settings)}

    def record(self) -> Record:
        """Make the copy and search on it."""
        if self.name not in self.work.started:
            self.work.started.add(self.name)
            self.searched(self.copies("random"), 0, epochs=1, tune_epochs=0)
        copies = self.copies(self.kind)
        found = self.searched(copies, self.seed)
        config = {"cell": found["cell"]}
        made = copies[-1].record if copies else {}
        probes = (copies[-1].meta.get("probes") if copies else None) or {"configs": [], "score": []}
        ranked = sorted(zip(probes["score"], probes["configs"]), key=lambda pair: -pair[0])
        return {
            "searcher": self.name, "dataset": self.task.name, "data": self.kind, "seed": self.seed,
            "train_size": self.sizes[0] if copies else len(self.task.train),
            "val_size": self.sizes[1] if copies else len(self.task.val), **found,
            "making_seconds": sum(copy.record["condense_seconds"] for copy in copies),
            "making": self.options.get(self.kind, {}),
            "probes": len(ranked), "probe_seconds": made.get("probe_seconds"),
            "best_probe": self.truth.score(ranked[0][1], "test") if ranked else None,
            "val_accuracy": self.truth.score(config, "val"),
            "test_accuracy": self.truth.score(config, "test"),
        }  # fmt: skip
