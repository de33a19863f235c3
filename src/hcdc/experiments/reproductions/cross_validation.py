"""``cross-validation``: the folds of a cross-validation ranked on condensed sets (tab:cv-image).

Images are split into M = 20 folds; a candidate leaves one out, trains on the others and is scored on it. The
copies have c/n of the images. Random images, gradient matching (SDC-GM) and distribution matching (SDC-DM)
treat every fold on its own, and a fold is ranked by training on the other small folds and validating on its
own. Early stopping trains on all images for c/n of the steps. HCDC takes SDC-GM's folds to train on and
learns one validation set of c/M images for all candidates by aligned hypergradients, at parameters trained
on the copy, so it uses no full training. No ranking shares its initialisation or batches with the truth.

``small`` has softmax regression on CIFAR-10 in 8 x 8 pixels; ``paper`` has ConvNet-3 on CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError
from hcdc.core.progress import timed
from hcdc.core.ranks import calibration, spearman
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.core.settings import setting
from hcdc.datasets import ImageData
from hcdc.experiments._command import rounded
from hcdc.experiments.reproductions._folds import (
    FoldSet,
    FoldTask,
    Matching,
    condensed,
    fold_scores,
    folded,
    learned_val,
    random_folds,
    trained,
)
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
from hcdc.experiments.standing import standing
from hcdc.networks import ConvNet

ROWS = {
    "random": "Random", "gm": "SDC-GM", "dm": "SDC-DM", "early": "Early-Stopping", "hcdc": "HCDC",
    "gm-real": "SDC-GM's training folds, real validation folds",
}  # fmt: skip
PAPER = {
    "2%": {"random": "-0.03", "gm": "0.64", "dm": "0.77", "early": "0.11", "hcdc": "0.91"},
    "4%": {"random": "0.07", "gm": "0.78", "dm": "0.86", "early": "0.24", "hcdc": "0.94"},
}
"""The text says c/n = 1 %, the table 2 and 4 %."""


@register
@dataclass(frozen=True)
class CrossValidation(Reproduction):
    """Spearman's correlation of the folds' validation scores on copies and on all images.

    Attributes:
        datasets: Image data.
        percents: c/n in percent.
        folds: M.
        images: Training images that are split, at most; 0 is all.
        pixels: Height and width of the images, by average pooling; 0 keeps them.
        network: ``linear`` (softmax regression) or ``convnet`` (ConvNet-3).
        steps, batch, lr: Training on all images; batch 0 is all of them at once.
        copy_steps: Training on a copy.
        gm_iterations, dm_iterations: Steps of SDC-GM and SDC-DM.
        lr_images: Learning rate of synthetic images.
        points, val_steps, val_lr: HCDC: lambdas on each trajectory, steps on S_val and their size.
        system: Original images in HCDC's linear systems.
    """

    datasets: tuple[str, ...] = ("cifar10",)
    percents: tuple[int, ...] = (1, 2, 4)
    folds: int = setting(20, least=3)
    images: int = setting(0, least=0)
    pixels: int = setting(0, least=0)
    network: str = setting("convnet", choices=("linear", "convnet"))
    steps: int = setting(50_000, least=1)
    batch: int = setting(256, least=0)
    lr: float = setting(1e-3, above=0)
    copy_steps: int = setting(1000, least=1)
    gm_iterations: int = setting(100, least=1)
    dm_iterations: int = setting(5000, least=1)
    lr_images: float = setting(0.01, above=0)
    points: int = setting(2, least=1)
    val_steps: int = setting(200, least=1)
    val_lr: float = setting(0.01, above=0)
    system: int = setting(2000, least=1)

    name = "cross-validation"
    label = "tab:cv-image"
    title = "the 20 folds of a cross-validation ranked on condensed sets"
    axes = ("datasets",)
    scales: ClassVar = {
        "smoke": Scale(
            {
                "datasets": ("digits",), "percents": (10,), "folds": 4, "images": 400, "network": "linear",
                "steps": 5, "batch": 0, "copy_steps": 5, "gm_iterations": 2, "dm_iterations": 2, "points": 1,
                "val_steps": 2, "system": 50,
            }
        ),
        "small": Scale(
            {
                "images": 20_000, "pixels": 8, "network": "linear", "steps": 200, "batch": 2000, "lr": 0.01,
                "copy_steps": 100, "dm_iterations": 500,
            },
            3,
            "ten minutes on one core",
        ),
        "paper": Scale(seeds=5, takes="a day on a GPU"),
    }  # fmt: skip

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [self.unit(seed, dataset=dataset) for seed in seeds for dataset in self.datasets]

    def problem(self, unit: Unit, work: Work) -> tuple[FoldTask, FoldSet]:
        """The task, and the images in folds."""
        images = cast(ImageData, work.data(unit["dataset"]))
        order = torch.randperm(len(images.train), generator=stream(unit["seed"], self.name))
        order = order[: self.images or len(order)]
        x = images.normalised(images.train.x[order])
        if self.pixels:
            x = F.adaptive_avg_pool2d(x, self.pixels)
        shape = tuple(x.shape[1:])
        net = None
        if self.network == "convnet":
            net = ConvNet(shape[0], images.num_classes, (shape[1], shape[2]))
        data = folded(x, images.train.y[order], self.folds, stream(unit["seed"], self.name, "folds"))
        task = FoldTask(shape, images.num_classes, self.folds, net)
        device = work.device
        assert data.fold is not None
        return task, FoldSet(data.x.to(device), data.y.to(device), data.fold.to(device))

    def each(self, percent: int, data: FoldSet) -> int:
        """Synthetic images of a fold."""
        count = round(percent / 100 * len(data) / self.folds)
        if count < 1:
            raise InputError(f"--set percents={percent}: that is less than one image per fold; give more")
        return count

    def run(self, unit: Unit, work: Work) -> list[Record]:
        """One record per c/n, with the scores of every fold by each method."""
        task, data = self.problem(unit, work)
        lam, seed = torch.eye(self.folds, device=data.y.device), unit["seed"]
        full = Recipe(steps=self.steps, lr=self.lr, batch=self.batch)
        with timed() as spent:
            work.progress.report(f"{self.folds} trainings on all images")
            truth = fold_scores(task, trained(task, lam, data, full, seed, "folds-truth"), lam, data)
        told = {"dataset": unit["dataset"], "seed": seed, "truth": truth, "full_seconds": spent[0]}
        return [
            rounded(
                {**told, "percent": percent, "methods": self.methods(task, data, lam, percent, seed, work)}
            )
            for percent in self.percents
        ]

    def methods(
        self, task: FoldTask, data: FoldSet, lam: Tensor, percent: int, seed: int, work: Work
    ) -> dict[str, Any]:
        """Loss and accuracy of every fold, and seconds, by each method."""
        small, each = Recipe(steps=self.copy_steps, lr=self.lr), self.each(percent, data)
        short = Recipe(steps=max(1, round(self.steps * percent / 100)), lr=self.lr, batch=self.batch)
        found: dict[str, Any] = {}

        def ranked(name: str, train: FoldSet, val: FoldSet, recipe: Recipe, before: float) -> None:
            with timed() as spent:
                scores = fold_scores(task, trained(task, lam, train, recipe, seed), lam, val)
            found[name] = {**scores, "seconds": before + spent[0]}

        work.progress.report(f"c/n {percent} %: {each} images per fold")
        start = random_folds(task, data, each, seed)
        ranked("random", start, start, small, 0.0)
        mixed = torch.randperm(len(data), generator=stream(seed, self.name, "early")).to(data.y.device)
        ranked("early", data.subset(mixed), data, short, 0.0)  # in another order: other batches
        made: dict[str, FoldSet] = {}
        for kind, iterations in (("gm", self.gm_iterations), ("dm", self.dm_iterations)):
            with timed() as spent:
                how = Matching(iterations, self.lr_images)
                made[kind] = condensed(task, data, start, kind, how, seed)
            ranked(kind, made[kind], made[kind], small, spent[0])
        seconds = found["gm"]["seconds"]
        ranked("gm-real", made["gm"], data, small, seconds)
        with timed() as spent:
            first = random_folds(task, data, each, seed + 1).subset(torch.arange(each, device=data.y.device))
            s_val, before, after = learned_val(
                task, data, made["gm"], FoldSet(first.x, first.y), small, seed, points=self.points,
                steps=self.val_steps, lr=self.val_lr, system=min(self.system, len(data)),
            )  # fmt: skip
        ranked("hcdc", made["gm"], s_val, small, seconds + spent[0])
        found["hcdc"] |= {"alignment": [before, after]}
        return found

    def table(self, found: Sequence[Record]) -> Table:
        head = [
            "data", "c/n", "ranked by", "Corr. of losses", "Corr. of accuracies", "paper", "pairs in order",
            "seconds", "HCDC is",
        ]  # fmt: skip
        groups: dict[tuple[str, int], list[Record]] = {}
        for record in found:
            groups.setdefault((record["unit"]["dataset"], record["percent"]), []).append(record)
        rows = []
        for (dataset, percent), records in sorted(groups.items()):
            figures = {name: [agreed(r, name, "loss") for r in records] for name in ROWS}
            for name, words in ROWS.items():
                paper = PAPER.get(f"{percent}%", {}).get(name, "")
                seconds = [r["methods"][name]["seconds"] for r in records]
                pairs = [folds_in_order(r, name) for r in records]
                place = standing({k: v for k, v in figures.items() if k != "gm-real"}, "hcdc", ROWS)
                rows.append([
                    dataset, f"{percent} %", words, mean_text(figures[name]),
                    mean_text([agreed(r, name, "accuracy") for r in records]), paper, mean_text(pairs),
                    mean_text(seconds, 0), place if name == "hcdc" else "",
                ])  # fmt: skip
        notes = [
            "truth: each fold's validation loss (accuracy) after a training on all other images",
            "the paper trains on CIFAR-10 and does not say which network; small has softmax regression on "
            "20,000 of its images in 8 x 8 pixels, in 200 steps",
            "SDC-DM takes 5,000 steps in the paper and 500 at the scale small; SDC-GM at most 100 in both",
        ]
        return Table(head, rows, notes)


def negative(scores: dict[str, Any]) -> list[float]:
    """Minus the losses, so that higher is better."""
    return [-value for value in scores["loss"]]


def folds_in_order(record: Record, name: str) -> float:
    """Share of pairs of folds that a method orders by loss as the truth does, eq. (HC)."""
    return calibration(negative(record["truth"]), negative(record["methods"][name]))


def agreed(record: Record, name: str, figure: str) -> float:
    """Spearman's correlation of the folds by a method with those of the truth."""
    return spearman(record["truth"][figure], record["methods"][name][figure])
