"""``nas201``: rank at least 500 held-out NAS-Bench-201 cells on copies of CIFAR.

Each copy has 500 training and 200 validation images (CIFAR-10). The judging cells are trained on it by the
published protocol (50 epochs, lr .025, one initialisation) or by the calibrated recipe, and their results are
recorded per cell and initialisation. From these, `hcdc.experiments.nas201_tables` computes draws of 100
cells, intervals, regrets and costs. The first 1,512 cells in the order of the space were used to choose
settings and judge nothing. Probes, companions and trajectories come from the cells after the judges. Probes
see the table's validation accuracy, never test accuracy. Initialisations of the judges and the 2,000 real
validation images are new draws for each seed.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import numpy as np
import torch

from hcdc.condensers import VALIDATIONS, Plan, Validation, plan
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.ranks import calibration, spearman
from hcdc.core.recipe import Recipe
from hcdc.core.results import Evaluation, Ranking, Rival
from hcdc.core.seeds import derive, stream
from hcdc.core.settings import setting
from hcdc.datasets import CondensedDataset, ImageData
from hcdc.evaluation import evaluate
from hcdc.experiments._command import check_names, rounded
from hcdc.experiments.nas201_model import Model
from hcdc.experiments.nas201_rankings import METRICS, NAMES, scores_of
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
from hcdc.experiments.standing import standings
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask, Task
from hcdc.truth import NASBench201Table, TableTruth, TrainedTruth, Truth

PROTOCOL = "nas201"
TUNING = 1512
"""Cells used to choose settings; 512 of them judged an earlier version."""
RECIPES = ("calibrated", "published")
MODES = ("probes", "weighted", "aligned", "both")
"""HCDC's validation sets: (b), (d), (a) and (c)."""
CHANGES: dict[str, dict[str, Any]] = {
    "model": {"target": "model"}, "top": {"objective": "top"}, "many": {"companions": 240},
    "long": {"probe_steps": 60},
}  # fmt: skip
"""Settings that a mode may change, by a word behind it: ``probes+model+top``."""
MAKING = ("condense_seconds", "phases", "probe_seconds", "full_trainings", "history")
"""What a record keeps about the making of a copy."""
TABLE = "nasbench201.csv.gz"
TRAINED = "-trained"
"""Ends the name of a truth that is trained here, by the paper's recipe, instead of looked up."""
OWN = {"epochs": 50, "seeds": 5}
"""Settings of that truth."""
ROWS = ("random", "kcenter", "herding", "dc", "dsa", "dm", "kip", "tm", "hcdc")
PAPER = {
    "cifar10": (
        "-0.12 ± 0.07|91.3 ± 0.2", "0.19 ± 0.12|91.4 ± 0.3", "-0.05 ± 0.08|90.2 ± 0.9",
        "-0.21 ± 0.15|89.2 ± 3.3", "-0.33 ± 0.09|73.5 ± 7.2", "-0.10 ± 0.15|92.2 ± 0.4",
        "-0.27 ± 0.15|91.8 ± 0.2", "-0.07 ± 0.04|75.2 ± 4.3", "0.74 ± 0.21|92.9 ± 0.7",
    ),
    "cifar100": (
        "-0.05 ± 0.03|71.1 ± 1.4", "-0.07 ± 0.05|69.5 ± 2.8", "0.08 ± 0.11|67.9 ± 1.8",
        "-0.13 ± 0.02|64.9 ± 2.2", "-0.28 ± 0.05|59.0 ± 4.1", "-0.15 ± 0.07|70.1 ± 0.6",
        "-0.08 ± 0.04|68.8 ± 0.6", "-0.09 ± 0.03|51.3 ± 6.1", "0.63 ± 0.13|72.4 ± 1.7",
    ),
}  # fmt: skip
"""Corr. and Perf. of tab:images, in the order of `ROWS`."""
OPTIMAL = {"cifar10": "93.5", "cifar100": "72.9"}


def default_table() -> str:
    """The benchmark's table in the folder of the data."""
    return str(Path(os.environ.get("HCDC_DATA") or Path.home() / ".cache" / "hcdc") / TABLE)


def published_recipe(train_size: int) -> dict[str, Any]:
    """How the paper trains candidates on copies: 50 epochs, one initialisation."""
    return Recipe(
        steps=50 * math.ceil(train_size / 64), lr=0.025, weight_decay=3e-4, seeds=1, optimizer="sgd",
        batch=64, lr_end=0.001, clip=5.0,
    ).as_dict()  # fmt: skip


def judging_cells(count: int) -> list[Config]:
    """The cells that judge; none of them was used to choose settings."""
    return NASBench201(skip=TUNING).candidates()[:count]


def copy_plan(
    task: Task, method: str, seed: int, sizes: tuple[int, int], options: Mapping[str, Any] | None = None
) -> Plan:
    """The plan of a copy with random validation images, to hold an S_train."""
    return plan(
        task, NASBench201(), method, train_size=sizes[0], val_size=sizes[1], seed=seed, val_method="random",
        options=options,
    )  # fmt: skip


def split(small: CondensedDataset, val_size: int, seed: int) -> CondensedDataset:
    """Split a copy's training images, class by class, into training and validation images."""
    whole, classes = small.train, small.num_classes or 1
    order = torch.randperm(len(whole), generator=stream(seed, "nas201-split"))
    members = [order[whole.y.cpu()[order] == label] for label in range(classes)]
    share = val_size // classes
    train, val = torch.cat([m[share:] for m in members]), torch.cat([m[:share] for m in members])
    return dataclasses.replace(small, train=whole.subset(train), val=whole.subset(val))


def scored(found: Ranking, metric: str | None) -> dict[str, Any]:
    """Loss and accuracy per cell, and per initialisation; diverged cells rank last."""
    means = {what: np.asarray(some, float).mean(1) for what, some in found.repeats.items()}
    proxy = np.asarray(found.proxy, float)
    means |= {"loss": -proxy} if metric == "loss" else {"score": proxy}
    lists: dict[str, Any] = {what: some.tolist() for what, some in means.items()}
    return dict(rounded({**lists, "repeats": found.repeats}))


QUICK: dict[str, Any] = {
    "methods": ("random", "hcdc"), "recipes": ("calibrated",), "modes": ("probes",), "draws": 1, "judges": 3,
    "per_class": 1, "val_per_class": 1, "steps": 1, "initialisations": 1,
    "options": {"hcdc": {"probes": 4, "companions": 0, "probe_steps": 2, "pool": 20}},
}  # fmt: skip
"""Settings of ``smoke``: they run the code and show nothing."""
SMALL: dict[str, Any] = {
    "recipes": ("calibrated",), "modes": ("probes",), "draws": 1, "cells": 24, "initialisations": 2,
    "per_class": 10, "val_per_class": 4,
    "options": {
        "hcdc": {"companions": 12},
        "kcenter": {"steps": 240, "hidden": 32},
        "herding": {"steps": 240, "hidden": 32},
        "dc": {"iterations": 10, "outer": 10, "width": 32, "batch_real": 64},
        "dsa": {"iterations": 10, "outer": 10, "width": 32, "batch_real": 64},
        "dm": {"iterations": 100, "width": 32},
        "kip": {"steps": 100, "width": 32, "batch": 500},
        "tm": {
            "iterations": 50, "student_steps": 10, "target_epochs": 1, "start_epochs": 2, "experts": 2,
            "width": 32, "precision": "tf32",
        },
    },
}  # fmt: skip
"""Settings of ``small``: fewer images, cells, initialisations and steps, narrower networks than the paper."""


@register
@dataclass(frozen=True)
class NAS201(Reproduction):
    """Scores of the judging cells on copies, one record per copy and recipe.

    Attributes:
        datasets: Data and, if the file has another name, the columns of the table: ``FILE.npz:cifar100``.
            ``cifar10:cifar10-trained`` trains judges and probes as the paper does, 50 epochs and five seeds.
        methods: Copies to judge.
        recipes: How cells are trained on copies of other methods than HCDC.
        modes: HCDC's validation sets, and words of `CHANGES` behind them: ``probes+model+top``. Modes share
            S_train, the draws of probes and the networks trained on S_train. With such words, the model
            itself is judged too.
        train_method: What makes HCDC's S_train.
        draws: Draws of probes per condensation.
        judges: Judging cells, never used to make copies.
        cells: How many of the cells judge, from the first on; 0 takes all.
        steps, initialisations: Of the calibrated recipe; 0 takes 10 epochs, and 16.
        per_class, val_per_class: Training and validation images per class.
        total: ``per_class`` counts both together, as in the paper: they are split in the original ratio.
            Copies of other methods are split too, so their validation images are condensed ones.
        table_file: File of the benchmark's results; empty takes the one in the folder of the data.
        options: Settings by method, ``--set dc.iterations=100``; of a truth that is trained, ``truth.epochs``
            and ``truth.seeds``.
    """

    datasets: tuple[str, ...] = ("cifar10",)
    methods: tuple[str, ...] = ("hcdc",)
    recipes: tuple[str, ...] = RECIPES
    modes: tuple[str, ...] = ("probes", "weighted")
    train_method: str = "random"
    draws: int = setting(5, least=1)
    judges: int = setting(512, least=3)
    cells: int = setting(0, least=0)
    steps: int = setting(0, least=0)
    initialisations: int = setting(0, least=0)
    per_class: int = setting(50, least=1)
    val_per_class: int = setting(20, least=1)
    total: bool = False
    table_file: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    name = PROTOCOL
    label = "tab:images, Corr."
    title = "512 cells ranked on copies of CIFAR, for intervals"
    axes = ("datasets", "methods", "recipes")
    scales: ClassVar = {
        "smoke": Scale(QUICK),
        "small": Scale({**SMALL, "methods": ("random", "hcdc")}, takes="an hour on one core"),
        "paper": Scale({"methods": ROWS}, 5, "days on a GPU"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        check_names("--set methods", self.methods, ROWS)
        for mode in self.modes:
            way, *changes = mode.split("+")
            check_names("--set modes", [way], MODES)
            check_names("change of --set modes", changes, CHANGES)
            for change in changes:
                _check_change(mode, VALIDATIONS[way], change)
        check_names("--set recipes", self.recipes, RECIPES)
        check_names("method of --set", self.options, (*ROWS, "truth"))
        check_names("--set truth", self.options.get("truth", {}), OWN)
        found = []
        for name in self.datasets:
            dataset, _, benchmark = name.partition(":")
            where = {"dataset": dataset, "benchmark": benchmark or dataset}
            found.append(self.unit(0, **where, method="truth"))
            for seed in seeds:
                for method in self.methods:
                    recipes = ["calibrated"] if method == "hcdc" else self.recipes
                    found += [self.unit(seed, **where, method=method, recipe=one) for one in recipes]
        return found

    def check(self, unit: Unit, work: Work) -> None:
        if unit["method"] == "truth":  # the first of the units
            Protocol(self, unit, work).check(self)

    def run(self, unit: Unit, work: Work) -> list[Record]:
        protocol, method, seed = Protocol(self, unit, work), unit["method"], unit["seed"]
        if method == "truth":
            return [protocol.truth_record()]
        if method == "hcdc":
            return protocol.hcdc(seed, self.train_method, self.draws, self.modes)
        return [protocol.other(method, seed, unit["recipe"])]

    def table(self, found: Sequence[Record]) -> Table:
        """Corr. and Perf. over all judging cells of each copy, beside the paper's over 100."""
        head = [
            "data", "copy", "recipe", "Corr.", "paper", "pairs in order", "Perf., %", "paper", "HCDC is",
        ]  # fmt: skip
        rows = []
        for benchmark in dict.fromkeys(r["dataset"] for r in found):
            own = [r for r in found if r["dataset"] == benchmark]
            truth = next((r for r in own if r["label"] == "truth"), None)
            if truth is not None:
                rows += _rows(benchmark, truth, [r for r in own if r["label"] != "truth"])
        told = ["Corr. and Perf. are against the table's 200 epochs"]
        if any(str(r["dataset"]).endswith(TRAINED) for r in found):
            told = [
                f"{told[0]}; '{TRAINED}': against networks trained here, as many epochs and seeds as asked"
            ]
        return Table(head, rows, told)


def _check_change(mode: str, way: type[Validation], change: str) -> None:
    """Refuse a change of settings that a way does not have."""
    if lacking := [name for name in CHANGES[change] if name not in way.names()]:
        raise InputError(
            f"--set modes '{mode}': change '{change}' sets {' and '.join(lacking)}, which {way.owner()} does "
            "not have; leave it out"
        )


def _rows(benchmark: str, truth: Record, found: Sequence[Record]) -> list[list[str]]:
    """One row per kind of copy and recipe, and the best cell's."""
    ranked: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for r in found:
        shared = "recipe_name" not in r
        recipe = "calibrated" if shared else r["recipe_name"]
        scores = -np.asarray(r["loss"], float) if shared else scores_of(r, METRICS[recipe])
        val, test = (np.asarray(truth[part][: len(scores)]) for part in ("val", "test"))
        pick = 100 * float(test[int(np.argmax(scores))])
        ranked.setdefault((r["label"], recipe), []).append(
            (spearman(val, scores), calibration(val, scores), pick)
        )
    corrs, _, picks = (
        {f"{label}, {recipe}": [one[k] for one in some] for (label, recipe), some in ranked.items()}
        for k in range(3)
    )
    name = benchmark.removesuffix(TRAINED)
    printed = dict(zip(ROWS, (text.split("|") for text in PAPER.get(name, ()))))
    rows = []
    for (label, recipe), some in ranked.items():
        corr, perf = printed.get("hcdc" if label == "hcdc-probes" else label, ("", ""))
        place = standings(corrs, picks, f"{label}, {recipe}") if label.startswith("hcdc") else ""
        ranks, pairs, tests = ([one[k] for one in some] for k in range(3))
        ours = [mean_text(ranks), corr, mean_text(pairs), mean_text(tests, 1), perf, place]
        rows.append([benchmark, NAMES.get(label, label), recipe, *ours])
    judged = max((len(r["loss"] if "loss" in r else r["val.loss"]) for r in found), default=0)
    if judged:
        best = 100 * truth["test"][int(np.argmax(truth["val"][:judged]))]
        told = [f"{best:.1f}", OPTIMAL.get(name, "")]
        rows.append([benchmark, f"best of {judged} by validation", *[""] * 4, *told, ""])
    return rows


class Protocol:
    """One data set and its judges, by the settings of a reproduction."""

    def __init__(self, given: NAS201, unit: Unit, work: Work):
        self.task = ImageTask(cast(ImageData, work.data(unit["dataset"])))
        self.work = work
        self.truth = self._truth(given, unit["benchmark"])
        self.space, self.total = NASBench201(skip=TUNING + given.judges), given.total
        self.cells = judging_cells(given.judges)
        self.judging = self.cells[: given.cells or None]
        self.options = given.options
        recipe = {"metric": "loss", "steps": given.steps, "seeds": given.initialisations}
        self.recipe = {name: value for name, value in recipe.items() if value}
        classes, per_class = self.task.num_classes, given.per_class
        self.copied = per_class * classes, given.val_per_class * classes  # sizes for other methods
        self.sizes = self.copied
        if given.total:
            share = len(self.task.val) / (len(self.task.train) + len(self.task.val))
            held = max(1, round(per_class * share))
            if held >= per_class:
                raise InputError(f"--set per_class={per_class}: at least 2 are needed for a split")
            self.sizes = (per_class - held) * classes, held * classes
        made = plan(self.task, self.space, train_size=self.sizes[0], val_method="real", recipe=self.recipe)
        self.shared = {
            "dataset": unit["benchmark"], "data": made.meta["data"]["fingerprint"],
            "train_size": self.sizes[0], "val_size": self.sizes[1], "total": given.total,
            "judges": given.judges, "steps": given.steps or None, "initialisations": made.calibrated.seeds,
        }  # fmt: skip
        if changed := [mode for mode in given.modes if "+" in mode]:
            self.shared["changes"] = changed

    def _truth(self, given: NAS201, benchmark: str) -> Truth:
        """The table, or trainings on all training images that 10,000 validation images judge."""
        if not benchmark.endswith(TRAINED):
            return TableTruth(NASBench201Table(given.table_file or default_table()), benchmark)
        own, space = {**OWN, **given.options.get("truth", {})}, NASBench201()
        classes = self.task.num_classes
        made = plan(
            self.task, space, train_size=classes, val_method="real", truth_epochs=own["epochs"],
            full_recipe={"seeds": own["seeds"]},
        )  # fmt: skip
        return TrainedTruth(
            self.task, space, made.full, device=self.work.device, progress=self.work.progress,
            fingerprint=made.meta["data"]["fingerprint"],
        )  # fmt: skip

    # --- copies -------------------------------------------------------------------------------------------

    def s_train(self, method: str, seed: int, sizes: tuple[int, int]) -> CondensedDataset:
        """A copy that holds an S_train."""
        planned = copy_plan(self.task, method, seed, sizes, self.options.get(method))
        return self.work.copy(planned)

    def way(self, mode: str, seed: int, **s_train: Any) -> Plan:
        """The plan for one of HCDC's validation sets."""
        way, *changes = mode.split("+")
        given = self.options.get("hcdc", {})
        others = {name for other in MODES for name in VALIDATIONS[other].names()} - {
            *VALIDATIONS[way].names()
        }
        options = {name: value for name, value in given.items() if name not in others}
        for change in changes:
            options |= CHANGES[change]
        return plan(
            self.task, self.space, val_method=way, val_size=self.sizes[1], seed=seed, options=options,
            truth=None if way == "aligned" else self.truth, recipe=self.recipe, **s_train,
        )  # fmt: skip

    def plain(
        self, s_train: CondensedDataset, mode: str, seed: int, recipe: Mapping[str, Any] | None = None
    ) -> CondensedDataset:
        """A copy with random validation images, or with up to 2,000 real ones."""
        size = self.sizes[1] if mode == "random" else None
        return plan(
            self.task, self.space, s_train=s_train, val_method=mode, seed=seed, val_size=size,
            recipe=recipe or self.recipe,
        ).run(device=self.work.device, progress=self.work.progress)  # fmt: skip

    # --- judging ------------------------------------------------------------------------------------------

    def judge(
        self, small: CondensedDataset, beside: dict[str, CondensedDataset], cells: list[Config], seed: int
    ) -> Evaluation:
        """Evaluate cells on a copy and on those beside it."""
        return evaluate(
            small, candidates=cells, seed=seed, task=self.task, truth=self.truth, rivals=False, beside=beside,
            cache=self.work.copies, device=self.work.device, progress=self.work.progress,
        )  # fmt: skip

    def truth_record(self) -> Record:
        """The full results of the judging cells, their sizes and features."""
        truth, classes = self.truth, self.task.num_classes
        cells = self.cells if isinstance(truth, TableTruth) else self.judging
        return {
            **self.shared,
            "label": "truth",
            "cells": [c["cell"] for c in cells],
            "val": truth.scores(cells, "val"),
            "test": truth.scores(cells, "test"),
            **({"val12": [truth.score(c, "val", 12) for c in cells]} if 12 in truth.fidelities else {}),
            "table_seconds": [truth.seconds(c) for c in cells],
            "parameters": [self.space.parameter_count(c, 3, classes) for c in cells],
            "features": [self.space.features(c) for c in cells],
        }

    def check(self, given: NAS201) -> None:
        """Refuse settings that a plan refuses, before anything is made."""
        for mode in given.modes if "hcdc" in given.methods else ():
            self.way(mode, 0, train_size=self.sizes[0])
        for method in given.methods:
            if method != "hcdc":
                copy_plan(self.task, method, 0, self.copied, self.options.get(method))

    def hcdc(self, seed: int, train_method: str, draws: int, modes: Sequence[str]) -> list[Record]:
        """Judge HCDC's validation sets for one S_train, beside random and real ones."""
        base = self.s_train(train_method, seed, self.sizes)
        copies = {mode: self.plain(base, mode, seed) for mode in ("random", "real")}
        copies |= self.learned(base, seed, draws, modes)
        beside = {name: copy for name, copy in copies.items() if name != "random"}
        found = self.judge(copies["random"], beside, self.judging, seed)
        asked = {name: (copy.meta.get("probes") or {}).get("configs", []) for name, copy in copies.items()}
        probes = {c["cell"]: c for some in asked.values() for c in some}
        losses = {}
        if probes:
            known = self.judge(copies["random"], {"real": beside["real"]}, list(probes.values()), seed)
            for part, own in (("random", known), ("real", known.rivals[0])):
                losses[part] = dict(zip(probes, scored(own, "loss")["loss"]))
        ranked: list[Evaluation | Rival] = [found, *found.rivals]
        written = []
        for (name, copy), one in zip(copies.items(), ranked):
            label, _, of_draw = name.partition("-")
            told = {key: copy.record[key] for key in MAKING if key in copy.record}
            if cells := asked[name]:
                told["probes"] = [c["cell"] for c in cells]
                told["probe_scores"] = copy.meta["probes"]["score"]
                told["probe_tests"] = self.truth.scores(cells, "test")
                told["probe_losses"] = {at: [by[c["cell"]] for c in cells] for at, by in losses.items()}
            written.append({
                **self.shared, "label": f"{label}-val" if label in ("random", "real") else f"hcdc-{label}",
                "train_method": train_method, "seed": seed, "draw": int(of_draw) if of_draw else None,
                "recipe": copy.meta["calibrated_recipe"], "settings": copy.meta["settings"]["val"],
                "judge_seconds": (one.cost.each or 0.0) * found.candidates, **scored(one, "loss"), **told,
            })  # fmt: skip
        if "changes" in self.shared:
            task = self.task.to(self.work.device)
            given = (list(probes.values()), known.rivals[0], seed)
            model = Model(task, self.space, self.judging, found.rivals[0], *given)
            by_draw = {r["draw"]: r for r in written if "probes" in r}
            written += [{**self.shared, **model.record(r, written[1])} for r in by_draw.values()]
        return written

    def learned(
        self, base: CondensedDataset, seed: int, draws: int, modes: Sequence[str]
    ) -> dict[str, CondensedDataset]:
        """HCDC's copies by name; those of one draw of probes share the networks trained on S_train."""
        alone = [mode for mode in modes if mode == "aligned"]
        copies = {mode: self.work.copy(self.way(mode, seed, s_train=base)) for mode in alone}
        for draw in range(draws):
            drawn = derive(seed, "draw", draw)
            with TemporaryDirectory() as folder:
                for mode in modes:
                    if mode not in alone:
                        made = self.work.copy(self.way(mode, drawn, s_train=base), Path(folder) / "trained")
                        copies[f"{mode}-{draw}"] = made
        return copies

    def other(self, method: str, seed: int, name: str) -> Record:
        """Judge a copy of another method, with the same random validation images or, if the sizes are totals,
        its own."""
        made = self.s_train(method, seed, self.copied)
        base = split(made, self.sizes[1], seed) if self.total else made
        recipe = published_recipe(len(base.train)) if name == "published" else None
        small, real = (self.plain(base, mode, seed, recipe) for mode in ("random", "real"))
        if self.total:
            small = dataclasses.replace(small, val=base.val)
        found = self.judge(small, {"real": real}, self.judging, seed)
        parts = {"val": scored(found, found.metric), "real": scored(found.rivals[0], found.metric)}
        return {
            **self.shared, "label": method, "seed": seed, "recipe_name": name,
            "recipe": small.meta["calibrated_recipe"], "judge_seconds": found.proxy_seconds,
            "making": made.record,
            **{f"{part}.{what}": values for part in parts for what, values in parts[part].items()},
        }  # fmt: skip
