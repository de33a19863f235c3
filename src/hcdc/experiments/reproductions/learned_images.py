"""``learned-images``: the validation images that HCDC learns, beside the real ones they start from
(fig:visualization).

S_val is learned from probes; cells of NAS-Bench-201 are trained on a few images of each class. The copy's
file is kept beside the records, and the figure is drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from hcdc.condensers import Plan, plan
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset, ImageData
from hcdc.experiments._command import kept_file
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
from hcdc.reporting import draw_images
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask


@register
@dataclass(frozen=True)
class LearnedImages(Reproduction):
    """A grid of learned images.

    Attributes:
        datasets: Image data.
        per_class, val_per_class: Training and validation images of each class.
        channels: Width of the cells' networks.
        truth_epochs: Epochs of the probes' trainings on all images.
        options: Changes to HCDC's settings.
        recipe: Changes to the training on the copy.
    """

    datasets: tuple[str, ...] = ("cifar10",)
    per_class: int = setting(50, least=1)
    val_per_class: int = setting(20, least=1)
    channels: int = setting(16, least=1)
    truth_epochs: int = setting(20, least=1)
    options: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)

    name = "learned-images"
    label = "fig:visualization"
    title = "learned validation images beside the real ones they start from"
    axes = ("datasets",)
    scales: ClassVar = {
        "smoke": Scale(
            {
                "datasets": ("digits",), "per_class": 2, "val_per_class": 2, "channels": 2, "truth_epochs": 1,
                "options": {"probes": 4, "companions": 0, "probe_steps": 2},
                "recipe": {"steps": 2, "seeds": 1},
            }
        ),
        "small": Scale(
            {
                "datasets": ("digits",), "per_class": 10, "val_per_class": 5, "channels": 4,
                "truth_epochs": 3, "options": {"probes": 10, "companions": 0}, "recipe": {"seeds": 2},
            },
            takes="minutes on one core",
        ),
        "paper": Scale(takes="an hour on a GPU"),
    }  # fmt: skip

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [self.unit(seed, dataset=dataset) for seed in seeds for dataset in self.datasets]

    def planned(self, unit: Unit, work: Work) -> Plan:
        """The plan of the copy."""
        task = ImageTask(cast(ImageData, work.data(unit["dataset"])))
        return plan(
            task, NASBench201(channels=self.channels), "hcdc", val_method="probes", seed=unit["seed"],
            train_size=self.per_class * task.num_classes, val_size=self.val_per_class * task.num_classes,
            truth_epochs=self.truth_epochs, options=self.options or None, recipe=self.recipe or None,
        )  # fmt: skip

    def check(self, unit: Unit, work: Work) -> None:
        self.planned(unit, work)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        planned = self.planned(unit, work)
        small = work.copy(planned)
        start = planned.task.sample("val", planned.val_size, planned.seed)
        assert small.val is not None, "probes make a validation set"
        moved = float((small.val.x - start.x).abs().mean())  # type: ignore[attr-defined]
        file = None if work.copies is None else str(kept_file(work.copies, planned))
        told = {"dataset": unit["dataset"], "seed": unit["seed"], "val_size": len(small.val), "moved": moved}
        return [{**told, "file": file, "condense_seconds": small.record["condense_seconds"]}]

    def table(self, found: Sequence[Record]) -> Table:
        head = ["data", "validation images", "mean change of a pixel, standard deviations", "paper"]
        groups: dict[str, list[Record]] = {}
        for record in found:
            groups.setdefault(record["dataset"], []).append(record)
        rows = [
            [name, str(own[0]["val_size"]), mean_text([r["moved"] for r in own], 3), "a figure"]
            for name, own in groups.items()
        ]
        return Table(head, rows)

    def draw(self, found: Sequence[Record]) -> Any:
        """The first copy whose file is there, beside the images it starts from; else nothing."""
        for record in found:
            if record["file"] and Path(record["file"]).exists():
                small = CondensedDataset.load(record["file"])
                work = Work()
                start = self.planned(record["unit"], work).task.sample(
                    "val", record["val_size"], record["seed"]
                )
                return draw_images(small, start, per_class=8)
        return None
