"""Protocol ``nas201``: rank at least 500 held-out NAS-Bench-201 cells on copies of CIFAR.

Each copy has 500 training and 200 validation images (CIFAR-10). The judging cells are trained on it by the
published protocol (50 epochs, lr .025, one initialisation) or by the calibrated recipe, and their results are
recorded per cell and initialisation. From these, `hcdc.experiments.nas201_tables` computes draws of 100
cells, intervals, regrets and costs. The first 1,512 cells in the order of the space were used to choose
settings and judge nothing. Probes, companions and trajectories come from the cells after the judges. Probes
see the table's validation accuracy, never test accuracy. Initialisations of the judges and the 2,000 real
validation images are new draws for each seed. ``--cells`` judges with only the first of the judging cells.

``--total`` counts as the paper does: ``--per-class`` images in total, split into training and validation
images in the original ratio. Copies of other methods are split too, so their validation images are condensed
ones.

    python -m hcdc.experiments.nas201 --dataset cifar10 --table T.csv.gz --rows hcdc --seeds 100 --out F.jsonl
"""

from __future__ import annotations

import dataclasses
import logging
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hcdc.condensers import REDUCERS, VALIDATIONS, Plan, plan
from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.core.results import Evaluation, Ranking, Rival
from hcdc.core.seeds import derive, stream
from hcdc.datasets import CondensedDataset, data
from hcdc.evaluation import evaluate
from hcdc.experiments._command import (
    as_command,
    check_names,
    integers,
    made_copy,
    protocol_parser,
    rounded,
    settings_by_method,
)
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask, Task
from hcdc.truth import NASBench201Table, TableTruth

PROTOCOL = "nas201"
TUNING = 1512
"""Cells used to choose settings; 512 of them judged an earlier version."""
RECIPES = ("calibrated", "published")
MODES = ("probes", "weighted", "aligned", "both")
"""HCDC's validation sets: (b), (d), (a) and (c)."""
MAKING = ("condense_seconds", "phases", "probe_seconds", "full_trainings", "history")
"""What a record keeps about the making of a copy."""
log = logging.getLogger("hcdc")


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


class Protocol:
    """One data set, its judges and the file for records; ``given`` are the arguments of `parser`."""

    def __init__(self, given: Namespace):
        self.task = ImageTask(data(given.dataset))  # type: ignore[arg-type]
        self.truth = TableTruth(NASBench201Table(given.table), given.benchmark)
        self.out, self.keep, self.device = given.out, given.keep, given.device
        self.space, self.total = NASBench201(skip=TUNING + given.judges), given.total
        self.cells = judging_cells(given.judges)
        self.judging = self.cells[: given.cells]
        self.options = settings_by_method("--set", given.set)
        recipe = {"metric": "loss", "steps": given.steps, "seeds": given.initialisations}
        self.recipe = {name: value for name, value in recipe.items() if value is not None}
        classes, per_class = self.task.num_classes, given.per_class
        self.copied = per_class * classes, given.val_per_class * classes  # sizes for other methods
        self.sizes = self.copied
        if given.total:
            share = len(self.task.val) / (len(self.task.train) + len(self.task.val))
            held = max(1, round(per_class * share))
            if held >= per_class:
                raise InputError(f"--total --per-class {per_class}: at least 2 are needed for a split")
            self.sizes = (per_class - held) * classes, held * classes
        made = plan(self.task, self.space, train_size=self.sizes[0], val_method="real", recipe=self.recipe)
        self.shared = {
            "protocol": PROTOCOL, "dataset": given.benchmark, "data": made.meta["data"]["fingerprint"],
            "train_size": self.sizes[0], "val_size": self.sizes[1], "total": given.total,
            "judges": given.judges, "steps": given.steps, "initialisations": made.calibrated.seeds,
        }  # fmt: skip

    # --- copies -------------------------------------------------------------------------------------------

    def s_train(self, method: str, seed: int, sizes: tuple[int, int]) -> CondensedDataset:
        """A copy that holds an S_train."""
        planned = copy_plan(self.task, method, seed, sizes, self.options.get(method))
        return made_copy(planned, self.keep, self.device)

    def way(self, mode: str, seed: int, **s_train: Any) -> Plan:
        """The plan for one of HCDC's validation sets."""
        given = self.options.get("hcdc", {})
        others = {name for way in MODES for name in VALIDATIONS[way].names()} - {*VALIDATIONS[mode].names()}
        options = {name: value for name, value in given.items() if name not in others}
        return plan(
            self.task, self.space, val_method=mode, val_size=self.sizes[1], seed=seed, options=options,
            truth=None if mode == "aligned" else self.truth, recipe=self.recipe, **s_train,
        )  # fmt: skip

    def plain(
        self, s_train: CondensedDataset, mode: str, seed: int, recipe: Mapping[str, Any] | None = None
    ) -> CondensedDataset:
        """A copy with random validation images, or with up to 2,000 real ones."""
        size = self.sizes[1] if mode == "random" else None
        return plan(
            self.task, self.space, s_train=s_train, val_method=mode, seed=seed, val_size=size,
            recipe=recipe or self.recipe,
        ).run(device=self.device)  # fmt: skip

    # --- judging ------------------------------------------------------------------------------------------

    def judge(
        self, small: CondensedDataset, beside: dict[str, CondensedDataset], cells: list[Config], seed: int
    ) -> Evaluation:
        """Evaluate cells on a copy and on those beside it."""
        return evaluate(
            small, candidates=cells, seed=seed, task=self.task, truth=self.truth, rivals=False, beside=beside,
            cache=self.keep, device=self.device,
        )  # fmt: skip

    def write(self, label: str, **found: Any) -> None:
        """Append a record."""
        told = {**self.shared, "label": label, **found, "environment": records.environment(self.device)}
        records.append(self.out, told)

    def write_truth(self) -> None:
        """Record the table's results for the judging cells, their sizes and features."""
        cells, truth, classes = self.cells, self.truth, self.task.num_classes
        self.write(
            "truth",
            cells=[c["cell"] for c in cells],
            val=truth.scores(cells, "val"),
            test=truth.scores(cells, "test"),
            val12=[truth.score(c, "val", 12) for c in cells],
            seconds=[truth.seconds(c) for c in cells],
            parameters=[self.space.parameter_count(c, 3, classes) for c in cells],
            features=[self.space.features(c) for c in cells],
        )

    def hcdc(self, seed: int, train_method: str, draws: int, modes: Sequence[str]) -> None:
        """Judge HCDC's validation sets for one S_train, beside random and real ones."""
        base = self.s_train(train_method, seed, self.sizes)
        copies = {mode: self.plain(base, mode, seed) for mode in ("random", "real")}
        for mode in modes:
            for draw in [None] if mode == "aligned" else range(draws):
                name, drawn = (mode, seed) if draw is None else (f"{mode}-{draw}", derive(seed, "draw", draw))
                copies[name] = made_copy(self.way(mode, drawn, s_train=base), self.keep, self.device)
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
        for (name, copy), one in zip(copies.items(), ranked):
            label, _, of_draw = name.partition("-")
            told = {key: copy.record[key] for key in MAKING if key in copy.record}
            if cells := asked[name]:
                told["probes"] = [c["cell"] for c in cells]
                told["probe_scores"] = copy.meta["probes"]["score"]
                told["probe_tests"] = self.truth.scores(cells, "test")
                told["probe_losses"] = {at: [by[c["cell"]] for c in cells] for at, by in losses.items()}
            self.write(
                f"{label}-val" if label in ("random", "real") else f"hcdc-{label}",
                train_method=train_method, seed=seed, draw=int(of_draw) if of_draw else None,
                recipe=copy.meta["calibrated_recipe"], settings=copy.meta["settings"]["val"],
                judge_seconds=(one.cost.each or 0.0) * found.candidates, **scored(one, "loss"), **told,
            )  # fmt: skip
        log.info("seed %d judged on %d cells in %.1f s", seed, found.candidates, found.proxy_seconds)

    def copies(self, methods: Sequence[str], seed: int, recipes: Sequence[str]) -> None:
        """Judge copies of other methods, with the same random validation images or, with ``--total``, their
        own."""
        for method in methods:
            made = self.s_train(method, seed, self.copied)
            base = split(made, self.sizes[1], seed) if self.total else made
            for name in recipes:
                recipe = published_recipe(len(base.train)) if name == "published" else None
                small, real = (self.plain(base, mode, seed, recipe) for mode in ("random", "real"))
                if self.total:
                    small = dataclasses.replace(small, val=base.val)
                found = self.judge(small, {"real": real}, self.judging, seed)
                parts = {"val": scored(found, found.metric), "real": scored(found.rivals[0], found.metric)}
                self.write(
                    method, seed=seed, recipe_name=name, recipe=small.meta["calibrated_recipe"],
                    judge_seconds=found.proxy_seconds, making=made.record,
                    **{f"{part}.{what}": values for part in parts for what, values in parts[part].items()},
                )  # fmt: skip
                log.info("%s, %s recipe, seed %d: %.1f s", method, name, seed, found.proxy_seconds)


def parser() -> ArgumentParser:
    """The arguments of the command."""
    parser = protocol_parser(__doc__, "cifar10", "100")
    parser.add_argument("--benchmark", default="cifar10", help="columns of the table: cifar10 or cifar100")
    parser.add_argument("--table", required=True)
    parser.add_argument("--rows", default="hcdc", help=f"hcdc, or some of {','.join(REDUCERS)}")
    parser.add_argument("--modes", default="probes,weighted")
    parser.add_argument("--recipes", default="calibrated,published")
    parser.add_argument("--train-method", default="random")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--judges", type=int, default=512, help="judging cells, never used to make copies")
    parser.add_argument("--cells", type=int, help="judge with only the first so many; default: all")
    parser.add_argument("--keep", help="folder of stored copies, which are reused")
    parser.add_argument("--set", action="append", default=[], help="METHOD.SETTING=NUMBER")
    parser.add_argument("--steps", type=int, help="steps of the calibrated recipe; default: 10 epochs")
    parser.add_argument("--initialisations", type=int, help="of the calibrated recipe; default: 16")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--val-per-class", type=int, default=20)
    parser.add_argument("--total", action="store_true", help="--per-class counts S_train and S_val together")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    rows, modes, recipes = (text.split(",") for text in (given.rows, given.modes, given.recipes))
    check_names("--rows", rows, ("hcdc", *REDUCERS))
    check_names("--modes", modes, MODES)
    check_names("--recipes", recipes, RECIPES)
    seeds, others = integers("--seeds", given.seeds), [row for row in rows if row != "hcdc"]
    protocol = Protocol(given)
    check_names("method of --set", protocol.options, ("hcdc", *REDUCERS))
    for mode in modes if "hcdc" in rows else ():  # fail before anything is written
        protocol.way(mode, 0, train_size=protocol.sizes[0])
    for row in others:
        copy_plan(protocol.task, row, 0, protocol.copied, protocol.options.get(row))
    protocol.write_truth()
    for seed in seeds:
        if "hcdc" in rows:
            protocol.hcdc(seed, given.train_method, given.draws, modes)
        protocol.copies(others, seed, recipes)


if __name__ == "__main__":
    as_command(main)
