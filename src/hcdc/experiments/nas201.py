"""Protocol ``nas201``: rank at least 500 held-out NAS-Bench-201 cells on copies of CIFAR.

Each copy has 500 training and 200 validation images (CIFAR-10). The judging cells are trained once on it, by
the published protocol (50 epochs, lr .025, one initialisation) or by the calibrated recipe, and their scores
are recorded cell by cell; draws of 100 cells, intervals, regrets and costs are made of these by
`hcdc.experiments.nas201_tables`. The first 1,512 cells of the space's order were used to choose settings and
judge nothing; probes and companions come from the cells after the judges. Probes see the table's validation
accuracy, never test accuracy. The real validation set is a seeded draw of 2,000 of its images. Copies may be
judged on the first of the judging cells alone.

``--total`` is the paper's way to count: ``--per-class`` images in all, split as the original is into training
and validation images; copies of other methods are split themselves, so that their validation images are
condensed ones.

    python -m hcdc.experiments.nas201 --dataset cifar10 --table T.csv.gz --rows hcdc --seeds 100 --out F.jsonl
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hcdc.condensers import (
    METHODS,
    REDUCERS,
    VALIDATIONS,
    Alignment,
    Plan,
    Probing,
    Slopes,
    condense,
    expectations,
    learn_examples,
    learn_validation,
    make_companions,
    mean_loss,
    plan,
    validation_presets,
    weigh_examples,
)
from hcdc.core import records
from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import derive, numpy_stream, stream
from hcdc.datasets import CondensedDataset, Images, data
from hcdc.experiments._command import as_command, integers
from hcdc.spaces import NASBench201
from hcdc.tasks import ImageTask
from hcdc.training import Job, predictors, score
from hcdc.truth import NASBench201Table, TableTruth

PROTOCOL = "nas201"
TUNING, APART, REAL = 1512, 1000, 2000
"""Cells that chose settings (512 of them judged an earlier version), cells at the end from which companions
are drawn, real validation images."""
RECIPES = ("calibrated", "published")
MODES = ("probes", "weighted", "aligned", "both")
"""HCDC's validation sets: (b), (d), (a) and (c)."""
log = logging.getLogger("hcdc")


@dataclass(frozen=True)
class Unjudged(NASBench201):
    """The space without the cells that chose settings or judge: where alignment takes its trajectories."""

    judges: int = 0

    def candidates(self) -> list[Config]:
        return super().candidates()[TUNING + self.judges :]


def check_names(argument: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a name that is not among the known ones."""
    for name in given:
        if name not in known:
            raise unknown_name(argument, name, known)


def published_recipe(train_size: int) -> Recipe:
    """50 epochs, one initialisation: how the paper's candidates are trained on copies."""
    return Recipe(
        steps=50 * math.ceil(train_size / 64), lr=0.025, weight_decay=3e-4, seeds=1, optimizer="sgd",
        batch=64, lr_end=0.001, clip=5.0,
    )  # fmt: skip


def judging_cells(count: int) -> list[Config]:
    """The cells that judge: none of them chose a setting."""
    return NASBench201().candidates()[TUNING : TUNING + count]


def probe_cells(draw: int, count: int, judges: int) -> list[Config]:
    """One draw of probes, from the cells that neither judge nor chose a setting."""
    rest = NASBench201().candidates()[TUNING + judges : -APART]
    return [rest[i] for i in numpy_stream(draw, "nas201-probes").permutation(len(rest))[:count]]


def copy_arguments(
    task: ImageTask, method: str, seed: int, train_size: int, val_size: int, options: dict[str, Any]
) -> dict[str, Any]:
    """What `condense` and `plan` need for a copy with random validation images."""
    return {
        "task": task, "space": NASBench201(), "method": method, "seed": seed, "val_method": "random",
        "train_size": train_size, "val_size": val_size, "options": options,
    }  # fmt: skip


def packed(parts: dict[str, Images]) -> dict[str, Tensor]:
    """Labelled sets as tensors ``"NAME/FIELD"``."""
    fields = {name: {"x": part.x, "y": part.y, "weight": part.weight} for name, part in parts.items()}
    return {f"{name}/{key}": v for name, some in fields.items() for key, v in some.items() if v is not None}


def split_within(images: Images, val_size: int, seed: int) -> tuple[Images, Images]:
    """A set's own training and validation images, both with equally many a class."""
    order = torch.randperm(len(images), generator=stream(seed, "nas201-split"))
    y = images.y.cpu()
    members = [order[y[order] == label] for label in range(int(y.max()) + 1)]
    share = val_size // len(members)
    parts = ([m[share:] for m in members], [m[:share] for m in members])
    first, second = (torch.cat(some).to(images.y.device) for some in parts)
    return Images(images.x[first], images.y[first]), Images(images.x[second], images.y[second])


def kept_name(made: Plan, method: str, seed: int) -> str:
    """The file of a copy."""
    return f"{method}-{seed}-{made.key()[:12]}.hcdc"


def probing_settings(**options: Any) -> Probing:
    """Settings of learning from probes for images; options may hold those of alignment too."""
    known = [*Probing.names(), *Alignment.names()]
    for name in options:
        if name not in known:
            raise unknown_name("setting of method 'hcdc'", name, known)
    settings = {**validation_presets()["images"]["settings"], **options}
    return Probing(**{name: value for name, value in settings.items() if name in Probing.names()})


def companion_cells(seed: int, count: int) -> list[Config]:
    """Companions, from cells that are never judges or probes."""
    rest = NASBench201().candidates()[-APART:]
    return [rest[i] for i in numpy_stream(seed, "nas201-companions").permutation(len(rest))[:count]]


class Protocol:
    """One data set, its judges and where records go.

    Args:
        dataset: A name or path for `hcdc.data`.
        table: The benchmark's table.
        benchmark: ``"cifar10"`` or ``"cifar100"``, the table's columns.
        per_class, val_per_class: Images a class of S_train and S_val.
        judges: Number of judging cells.
        some: How many of them judge copies of other methods.
        out: The record file.
        total: ``per_class`` counts training and validation images together.
        recipe: Settings of the calibrated recipe that differ from the library's.
    """

    def __init__(
        self,
        dataset: str,
        table: str,
        benchmark: str,
        per_class: int,
        val_per_class: int,
        judges: int,
        some: int,
        out: str | Path,
        device: str,
        total: bool = False,
        recipe: dict[str, Any] | None = None,
    ):
        images = data(dataset)
        self.task = ImageTask(images).to(device)  # type: ignore[arg-type]
        self.space, self.device, self.out = NASBench201(), device, out
        self.truth = TableTruth(NASBench201Table(table), benchmark)
        self.cells, self.some = judging_cells(judges), min(some, judges)
        self.probing, self.alignment = probing_settings(), dict[str, Any]()
        self.options: dict[str, dict[str, Any]] = {}
        picked = torch.randperm(len(self.task.val), generator=stream(0, "nas201-real"))[:REAL].sort().values
        self.real = self.task.chosen("val", picked)
        classes = self.task.num_classes
        self.copied = per_class * classes, val_per_class * classes  # sizes of copies of other methods
        self.train_size, self.val_size = self.copied
        self.total = total
        if total:
            share = len(self.task.val) / (len(self.task.train) + len(self.task.val))
            held = max(1, round(per_class * share))
            if held >= per_class:
                raise InputError(f"--total --per-class {per_class}: at least 2 are needed to split them")
            self.train_size, self.val_size = (per_class - held) * classes, held * classes
        self.recipe = recipe
        made = plan(
            self.task, self.space, "hcdc", train_size=self.train_size, val_method="probes", recipe=recipe
        )
        self.calibrated = made.calibrated
        self.shared = {
            "protocol": PROTOCOL, "dataset": benchmark, "data": made.meta["data"]["fingerprint"],
            "train_size": self.train_size, "val_size": self.val_size, "total": total, "judges": judges,
            "steps": (recipe or {}).get("steps"), "initialisations": made.calibrated.seeds,
        }  # fmt: skip

    def write(self, label: str, **found: Any) -> None:
        """Append a record; what it says is what was run."""
        records.append(
            self.out,
            {**self.shared, "label": label, **found, "environment": records.environment(self.device)},
        )

    def write_truth(self) -> None:
        """What the table says of the judging cells, and what is free to know."""
        cells = self.cells
        classes = self.task.num_classes
        self.write(
            "truth",
            cells=[c["cell"] for c in cells],
            val=[self.truth.score(c, "val") for c in cells],
            test=[self.truth.score(c, "test") for c in cells],
            val12=[self.truth.score(c, "val", 12) for c in cells],
            seconds=[self.truth.seconds(c) for c in cells],
            parameters=[self.space.parameter_count(c, 3, classes) for c in cells],
            features=[self.space.features(c) for c in cells],
        )

    def judge(
        self,
        trains: Sequence[Images],
        parts: Sequence[dict[str, Images]],
        recipe: Recipe,
        cells: Sequence[Config],
    ) -> tuple[list[dict[str, Any]], float]:
        """Scores of judging cells on every part of each training set, and the seconds that a set took."""
        begun = time.perf_counter()
        results = score(
            Job(self.task, self.space, cells, trains, recipe, parts, role="judge", device=self.device)
        )
        names = [f"{part}.{what}" for part in parts[0] for what in ("loss", "score")]
        tables = [{name: [round(r.values[name], 5) for r in own] for name in names} for own in results]
        return tables, (time.perf_counter() - begun) / len(trains)

    def hcdc(
        self,
        seed: int,
        train_method: str,
        draws: Sequence[int],
        modes: Sequence[str],
        whole: bool,
        keep: Path | None = None,
        judge: bool = True,
    ) -> None:
        """HCDC's validation sets for one S_train, with random and real ones beside them.

        Args:
            keep: A folder in which the validation sets are kept; those that lie there are not made again.
            judge: Whether cells are judged on them.
        """
        check_names("--modes", modes, MODES)
        made = self.made(train_method, seed, keep, (self.train_size, self.val_size))
        settings = {"draws": list(draws), "modes": list(modes), "probing": self.probing.settings()}
        store = self.store(keep, f"hcdc-{train_method}-{seed}", settings)
        if (saved := store.load()) is not None:
            kept, notes = self.unpacked(saved[0]), saved[1]
            parts = {name: kept[name] for name in notes}  # in the order in which they were made
        else:
            parts, notes = self.learned(made, seed, draws, modes, keep)
            store.save(packed(parts), notes)
        if not judge:
            return
        parts["real"] = self.real
        notes["real"] = notes["random"]
        judged = self.cells if whole else self.cells[: self.some]
        (table,), seconds = self.judge([made.train], [parts], self.calibrated, judged)  # type: ignore[list-item]
        for part in parts:
            label, _, draw = part.partition("-")
            named = {what: table[f"{part}.{what}"] for what in ("loss", "score")}
            self.write(
                f"{label}-val" if label in ("random", "real") else f"hcdc-{label}",
                train_method=train_method, seed=seed, draw=int(draw) if draw else None,
                recipe=self.calibrated.as_dict(), settings=self.probing.settings(),
                judge_seconds=seconds, **named, **notes[part],
            )  # fmt: skip
        log.info("seed %d judged on %d cells in %.1f s", seed, len(judged), seconds)

    def learned(
        self,
        made: CondensedDataset,
        seed: int,
        draws: Sequence[int],
        modes: Sequence[str],
        keep: Path | None,
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Validation sets by name and how each was made; ``"random"`` is where they start."""
        task, device, probing = self.task, self.device, self.probing
        train_seconds = made.record["condense_seconds"]
        s_train: Any = made.train
        start: Any = made.val
        parts: dict[str, Any] = {"random": start}
        notes: dict[str, dict[str, Any]] = {"random": {"condense_seconds": train_seconds}}
        alignment = 0.0
        if "aligned" in modes or "both" in modes:
            parts["aligned"], notes["aligned"] = self.aligned(made, seed, keep)
            alignment = notes["aligned"]["condense_seconds"]
            notes["aligned"]["condense_seconds"] += train_seconds
        if set(modes) == {"aligned"}:
            return parts, notes
        chosen = [probe_cells(derive(seed, "draw", draw), probing.probes, len(self.cells)) for draw in draws]
        beside = companion_cells(seed, probing.companions)
        begun = time.perf_counter()
        cells = [cell for each in chosen for cell in each] + beside
        networks = predictors(
            task, self.space, cells, s_train, self.calibrated, seed=seed, role="probe", device=device
        )
        count = len(cells) - len(beside)
        shared = (time.perf_counter() - begun) * (probing.probes + len(beside)) / len(cells)
        log.info("seed %d: %d probes and companions trained, %.1f s each draw", seed, len(cells), shared)
        slopes = None
        if "probes" in modes or "both" in modes:
            begun = time.perf_counter()
            blank = task.replace(start, {"x": start.x.clone()})
            slopes = Slopes(task, networks, blank, torch.device(device))
            shared += (time.perf_counter() - begun) * (probing.probes + len(beside)) / len(cells)
        for k, (draw, probes) in enumerate(zip(draws, chosen)):
            scores = [self.truth.score(c, "val") for c in probes]
            own = networks[k * probing.probes : (k + 1) * probing.probes]
            with torch.no_grad():
                seen = {
                    name: [float(mean_loss(task, p, s_val)) for p in own]
                    for name, s_val in (("random", start), ("real", self.real))
                }
            begun = time.perf_counter()
            expected = expectations(self.space, probes, scores, beside)
            companions = make_companions(task, networks[count:], expected, seed, probing)
            common = time.perf_counter() - begun + shared + train_seconds
            for mode in (m for m in modes if m != "aligned"):
                begun = time.perf_counter()
                if mode == "weighted":
                    s_val, history = weigh_examples(
                        task, own, scores, self.val_size, seed, probing, companions
                    )
                else:
                    s_val, history = learn_examples(
                        task, own, scores, parts["aligned"] if mode == "both" else start, probing,
                        companions=companions, device=device, slopes=slopes,
                        phase=Progress().phase(mode, probing.probe_steps), checkpoint=Checkpoint(None),
                    )  # fmt: skip
                spent = time.perf_counter() - begun + common + (alignment if mode == "both" else 0.0)
                parts[f"{mode}-{draw}"] = s_val
                notes[f"{mode}-{draw}"] = {
                    "probes": [c["cell"] for c in probes],
                    "probe_scores": scores,
                    "probe_tests": [self.truth.score(c, "test") for c in probes],
                    "probe_losses": seen,
                    "probe_seconds": sum(self.truth.seconds(c) for c in probes),
                    "condense_seconds": spent,
                    "history": history,
                }
                log.info("%s draw %d seed %d: %s, %.1f s", mode, draw, seed, history[-1], spent)
        return parts, notes

    def aligned(self, copy: CondensedDataset, seed: int, keep: Path | None) -> tuple[Images, dict[str, Any]]:
        """S_val by hypergradients alone, on trajectories through cells that judge nothing."""
        store = self.store(keep, f"aligned-{copy.meta['train_method']}-{seed}", {})
        if (saved := store.load()) is not None:
            return self.unpacked(saved[0])["aligned"], saved[1]
        begun = time.perf_counter()
        space, own = Unjudged(judges=len(self.cells)), VALIDATIONS["aligned"].names()
        options = {name: value for name, value in self.alignment.items() if name in own}
        made = plan(
            self.task, space, "hcdc", train_size=self.train_size, val_size=self.val_size, seed=seed,
            val_method="aligned", options=options, recipe=self.recipe,
        )  # fmt: skip
        config = made.way
        assert isinstance(config, Alignment), "alignment has settings"
        assert config.relaxation == "softmax", "cells that are drawn could be judges"
        found = learn_validation(
            self.task, space, copy.train, self.val_size, seed, config, made.relaxed(),
            self.calibrated, device=self.device, progress=Progress(), checkpoint=Checkpoint(None),
        )  # fmt: skip
        spent = time.perf_counter() - begun
        log.info("aligned seed %d: %s, %.1f s", seed, found.history[-1], spent)
        note = {"condense_seconds": spent, "history": found.history, "alignment": config.settings()}
        note["relaxed_trainings"] = found.full_trainings
        store.save(packed({"aligned": found.val}), note)
        return found.val, note

    def store(self, keep: Path | None, name: str, settings: dict[str, Any]) -> Checkpoint:
        """Where validation sets are kept: what was made with other cells, data or settings is not read."""
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        key = content_key(
            {
                **self.shared, **settings, "alignment": self.alignment, "options": self.options,
                "recipe": self.calibrated.as_dict(), "cells": self.cells, "apart": APART,
            }
        )  # fmt: skip
        return Checkpoint(None if keep is None else keep / f"{name}.validation", key)

    def unpacked(self, tensors: dict[str, Tensor]) -> dict[str, Images]:
        """Validation sets by name from the tensors of `packed`."""
        found: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, _, what = name.partition("/")
            found.setdefault(part, {})[what] = tensor.to(self.device)
        return {part: Images(**fields) for part, fields in found.items()}

    def arguments(self, method: str, seed: int, sizes: tuple[int, int] | None = None) -> dict[str, Any]:
        options = self.options.get(method, {})
        return copy_arguments(self.task, method, seed, *(sizes or self.copied), options)

    def made(
        self, method: str, seed: int, keep: Path | None, sizes: tuple[int, int] | None = None
    ) -> CondensedDataset:
        """The copy, on the device; one that lies in ``keep`` is not made again.

        Args:
            sizes: Training and validation images; None is those of copies of other methods.
        """
        arguments = self.arguments(method, seed, sizes)
        if keep is not None:
            file = keep / kept_name(plan(**arguments), method, seed)
            if file.exists() and (kept := CondensedDataset.load(file)).record:
                return kept.to(self.device)
        made = condense(**arguments, device=self.device)
        if keep is not None:
            made.save(file)
        return made.to(self.device)

    def copies(
        self, methods: Sequence[str], seed: int, recipes: Sequence[str], keep: Path | None = None
    ) -> None:
        """Judge by copies of other methods: each one's S_train and the same random validation images or, of
        a total, validation images of its own."""
        check_names("--recipes", recipes, RECIPES)
        made = [self.made(method, seed, keep) for method in methods]
        pairs: list[Any] = [(copy.train, made[0].val) for copy in made]
        if self.total:
            pairs = [split_within(train, self.val_size, seed) for train, _ in pairs]
        trains = [train for train, _ in pairs]
        parts = [{"val": val, "real": self.real} for _, val in pairs]
        for name in recipes:
            recipe = published_recipe(self.train_size) if name == "published" else self.calibrated
            tables, seconds = self.judge(trains, parts, recipe, self.cells[: self.some])
            for method, copy, table in zip(methods, made, tables):
                self.write(
                    method, seed=seed, recipe_name=name, recipe=recipe.as_dict(), judge_seconds=seconds,
                    making=copy.record, **table,
                )  # fmt: skip
            log.info("%s, %s recipe, seed %d: %.1f s each", ", ".join(methods), name, seed, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--benchmark", default="cifar10")
    parser.add_argument("--table", required=True)
    parser.add_argument("--rows", default="hcdc", help=f"hcdc, or some of {','.join(REDUCERS)}")
    parser.add_argument("--modes", default="probes,weighted")
    parser.add_argument("--recipes", default="calibrated,published")
    parser.add_argument("--train-method", default="random")
    parser.add_argument("--seeds", default="100")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--judges", type=int, default=512)
    parser.add_argument("--some", type=int, default=200, help="judges of copies, and of HCDC without --whole")
    parser.add_argument("--whole", action="store_true", help="all cells judge HCDC")
    parser.add_argument("--keep", help="a folder of copies and validation sets, which are not made again")
    parser.add_argument("--make", action="store_true", help="make HCDC's validation sets, judge nothing")
    parser.add_argument("--set", action="append", default=[], help="METHOD.SETTING=NUMBER")
    parser.add_argument("--steps", type=int, help="steps of the calibrated recipe, in place of 10 epochs")
    parser.add_argument("--initialisations", type=int, help="of the calibrated recipe, in place of 16")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--val-per-class", type=int, default=20)
    parser.add_argument("--total", action="store_true", help="--per-class counts S_train and S_val together")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    check_names("--rows", given.rows.split(","), ("hcdc", *REDUCERS))  # before anything is written
    check_names("--modes", given.modes.split(","), MODES)
    check_names("--recipes", given.recipes.split(","), RECIPES)
    seeds = integers("--seeds", given.seeds)
    recipe = {"steps": given.steps, "seeds": given.initialisations}
    protocol = Protocol(
        given.dataset, given.table, given.benchmark, given.per_class, given.val_per_class, given.judges,
        given.some, given.out, given.device, given.total,
        {key: value for key, value in recipe.items() if value is not None} or None,
    )  # fmt: skip
    for each in given.set:
        name, _, value = each.partition("=")
        method, _, setting = name.partition(".")
        try:
            number = json.loads(value)
        except json.JSONDecodeError:
            number = None
        if number is None or not (method and setting):
            raise InputError(f"--set {each}: give METHOD.SETTING=NUMBER, as in dc.iterations=100")
        if method not in METHODS:
            raise unknown_name("method of --set", method, METHODS)
        protocol.options.setdefault(method, {})[setting] = number
    if given.make and given.keep is None:
        raise InputError("--make makes validation sets to keep: say where with --keep")
    rows = given.rows.split(",")
    if given.make and "hcdc" not in rows:
        raise InputError(f"--make makes HCDC's validation sets, and --rows {given.rows} has no 'hcdc'")
    hcdc = protocol.options.pop("hcdc", {})
    protocol.alignment, protocol.probing = hcdc, probing_settings(**hcdc)
    keep = None if given.keep is None else Path(given.keep)
    others = [row for row in rows if row != "hcdc"]
    if not given.make:
        protocol.write_truth()
    for seed in seeds:
        if "hcdc" in rows:
            modes = given.modes.split(",")
            protocol.hcdc(
                seed, given.train_method, range(given.draws), modes, given.whole, keep, not given.make
            )
        if others and not given.make:
            protocol.copies(others, seed, given.recipes.split(","), keep)


if __name__ == "__main__":
    as_command(main)
