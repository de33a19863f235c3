"""``convnet-accuracy``: test accuracy of ConvNet-3 trained on a condensed set, as published.

300 epochs without augmentation for random, K-Center, Herding, DC and KIP; 1000 epochs with augmentation for
DSA, DM and TM (at its learned step size). The last epoch counts. ``every`` also measures DC, DSA, KIP and TM
on their way. A method may also be a condensed file, whose training images are measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from hcdc.condensers import Plan
from hcdc.core import records
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset, ImageData, Images
from hcdc.experiments._command import kept_file
from hcdc.experiments.nas201_rankings import NAMES
from hcdc.experiments.published_tables import PUBLISHED_CONVNET
from hcdc.experiments.reproductions._frame import (
    Record,
    Reproduction,
    Scale,
    Table,
    Unit,
    Work,
    mean_text,
    register,
)
from hcdc.experiments.reproductions.nas201 import copy_plan
from hcdc.tasks import ImageTask
from hcdc.training import ConvNetRecipe, convnet_accuracy

AUGMENTED = ("dsa", "dm", "tm")
SMOKE = {
    "dm": {"iterations": 2, "batch": 4, "width": 4},
}


@register
@dataclass(frozen=True)
class ConvNetAccuracy(Reproduction):
    """Test accuracy of ConvNets trained on condensed images.

    Attributes:
        datasets: Data of images.
        methods: Ways to condense, or condensed files ``NAME.hcdc``.
        per_class: Training images per class.
        val_per_class: Random validation images per class in the copies that are kept.
        networks: ConvNets per condensed set.
        epochs: Of a ConvNet; 0 takes the published ones.
        every: Iterations between measurements; 0 measures only the last.
        options: Settings by method, ``--set dc.iterations=100``.
    """

    datasets: tuple[str, ...] = ("cifar10",)
    methods: tuple[str, ...] = tuple(PUBLISHED_CONVNET)
    per_class: int = setting(50, least=1)
    val_per_class: int = setting(20, least=1)
    networks: int = setting(20, least=1)
    epochs: int = setting(0, least=0)
    every: int = setting(0, least=0)
    options: dict[str, Any] = field(default_factory=dict)

    name = "convnet-accuracy"
    label = "the methods' tables"
    title = "test accuracy of ConvNet-3 trained on condensed images"
    axes = ("datasets", "methods")
    scales: ClassVar = {
        "smoke": Scale(
            {
                "datasets": ("digits",),
                "methods": ("random", "dm"),
                "per_class": 1,
                "val_per_class": 1,
                "networks": 1,
                "epochs": 1,
                "options": SMOKE,
            }
        ),
        "small": Scale(
            {"methods": ("random", "herding"), "per_class": 10, "networks": 1},
            takes="half an hour on one core",
        ),
        "paper": Scale(seeds=5, takes="days on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [
            self.unit(seed, dataset=dataset, method=method)
            for dataset in self.datasets
            for method in self.methods
            for seed in seeds
        ]

    def planned(self, unit: Unit, task: ImageTask) -> Plan:
        """The plan of the unit's copy."""
        sizes = self.per_class * task.num_classes, self.val_per_class * task.num_classes
        return copy_plan(task, unit["method"], unit["seed"], sizes, self.options.get(unit["method"]))

    def check(self, unit: Unit, work: Work) -> None:
        task = ImageTask(cast(ImageData, work.data(unit["dataset"])))
        _ = self._stored(unit, task) if unit["method"].endswith(".hcdc") else self.planned(unit, task)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        task = ImageTask(cast(ImageData, work.data(unit["dataset"])))
        if unit["method"].endswith(".hcdc"):
            images, what = self._stored(unit, task)
            return [self.measured(task, images, {"dataset": unit["dataset"], **what}, work)]
        return [
            self.measured(task, images, {"dataset": unit["dataset"], **what}, work)
            for images, what in self.iterates(task, self.planned(unit, task), work)
        ]

    def iterates(self, task: ImageTask, planned: Plan, work: Work) -> Iterator[tuple[Images, Record]]:
        """Condense; yields the images and what is known of them, on the way and at the end.

        The final set is kept as a copy. The checkpoint is keyed by data and settings.
        """
        reducer, seconds, begun = planned.reducer, 0.0, time.perf_counter()
        store = Checkpoint(None)
        if work.copies is not None:
            store = Checkpoint(work.copies / f"{planned.key()}.checkpoint", planned.key())
        for now in reducer.iterates(
            task.to(work.device), "train", planned.train_size, planned.seed,
            progress=work.progress, checkpoint=store, every=self.every,
        ):  # fmt: skip
            seconds += time.perf_counter() - begun
            if work.copies is not None and now.iteration is None:
                record = {"condense_seconds": seconds, "phases": {"train": seconds, "val": 0.0}}
                record["environment"] = records.environment(work.device)
                meta = planned.meta | ({"train_learned": dict(now.told)} if now.told else {})
                val = task.sample("val", planned.val_size, planned.seed)
                small = CondensedDataset(now.images.to("cpu"), val, meta, record)
                small.save(kept_file(work.copies, planned))
            what = {"method": reducer.name, "per_class": self.per_class, "seed": planned.seed}
            what |= {"iteration": now.iteration, "settings": reducer.settings(), **now.told}
            yield now.images, {**what, "condense_seconds": seconds}
            begun = time.perf_counter()

    def _stored(self, unit: Unit, task: ImageTask) -> tuple[Images, Record]:
        """The training images of a condensed file."""
        file = Path(unit["method"])
        copy = CondensedDataset.load(file)
        meta = copy.meta
        if meta["data"].get("fingerprint") != task.data.fingerprint():
            raise InputError(f"'{file}' was not made from '{unit['dataset']}'")
        what = {"method": meta["train_method"], "per_class": len(copy.train) // task.num_classes}
        what |= {"seed": meta["seed"], "iteration": None, "settings": meta["settings"]["train"]}
        return cast(Images, copy.train), {**what, **meta.get("train_learned", {})}

    def measured(self, task: ImageTask, small: Images, what: Record, work: Work) -> Record:
        """Train ConvNets on a condensed set, which ``what`` describes."""
        recipe = ConvNetRecipe(lr=what.get("step_size", ConvNetRecipe.lr))
        found = convnet_accuracy(
            small.to(work.device), task.data, self.networks, augment=what["method"] in AUGMENTED,
            epochs=self.epochs or None, seed=what["seed"], recipe=recipe,
        )  # fmt: skip
        return {**what, **found}

    def table(self, found: Sequence[Record]) -> Table:
        head = ["data", "condensed by", "iterations", "test accuracy, %", "published at 50 per class"]
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for r in found:
            done = r["settings"].get("iterations", "") if r["iteration"] is None else r["iteration"]
            groups.setdefault((r["dataset"], r["method"], str(done)), []).append(r)
        rows = []
        for (dataset, method, done), some in groups.items():
            paper = PUBLISHED_CONVNET.get(method) if dataset == "cifar10" else None
            ours = mean_text([100 * r["test_accuracy"] for r in some], 1)
            rows.append(
                [dataset, NAMES.get(method, method), done, ours, "" if paper is None else f"{paper:.1f}"]
            )
        return Table(head, rows, ["TM's published number was chosen on the test set"])
