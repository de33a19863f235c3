"""The demo of images: small copies of handwritten digits, a search over cells on each; offline.

Truth on so small a data set is partly chance, so the demo also trains every candidate a second time and says
how far the full data agrees with itself: no copy can be expected to rank much better than that.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.condensers import condense
from hcdc.core import ranks
from hcdc.core.configs import Config
from hcdc.core.errors import require
from hcdc.core.files import write_atomic
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset, Images, data
from hcdc.evaluation import Evaluation, evaluate
from hcdc.experiments._demo import PRESET, RIVALS, Demo, made_folder, one_thread
from hcdc.reporting import image_grid, write_figures, write_report
from hcdc.spaces import NASBench201, Space
from hcdc.tasks import ImageTask
from hcdc.training import Job, score

CELLS, CHANNELS = 2, 4
"""Of the networks; NAS-Bench-201 has 5 and 16."""
TRAIN_SIZE = 100
"""Training images of each copy, ten a class; the digits have 899."""
CANDIDATES = 20
PROBES, COMPANIONS = 8, 4
"""Cells whose full-data result HCDC learns from, and those trained on the copy alone; else 20 and 60."""
EPOCHS = 6
"""Of a training on the full data; the default is 20, the benchmark has 200."""
RECIPE = {"seeds": 2, "lr": 0.2}
"""Of a cell on a copy: initialisations and learning rate; the defaults are 8 and .05. Few steps need a
higher rate: on 24 other cells the loss on the validation images ranks at .94 with it, at .59 without
(records/tuning/digits.json)."""
PHASES = 17
"""Steps that progress counts: S_train and the judging of each copy, random's S_val, probes on the full data,
on two copies and two S_val from them, one rival, the full data twice."""
SURE = 0.8
"""Agreement of the truth with a second seed below which the demo says that it is low."""
TITLE = "hcdc demo: small copies of handwritten digits (shortened)"


@dataclass(frozen=True)
class Copy:
    """One way to make a copy: method, what makes S_val, settings that shorten it, whether rivals are run."""

    method: str
    val_method: str | None
    options: dict[str, Any] = field(default_factory=dict)
    rivals: bool = False


COPIES = {
    "random": Copy("random", None),
    "dm": Copy("dm", "random", {"iterations": 200, "batch": 32, "width": 32}),
    "hcdc-weighted": Copy("hcdc", "weighted", {"probes": PROBES, "companions": COMPANIONS}, rivals=True),
    "hcdc-probes": Copy("hcdc", "probes", {"probes": PROBES, "companions": COMPANIONS}),
}
"""DM as published makes no validation set, so random images are its S_val."""


def run_image_demo(
    out: str | os.PathLike[str], device: str = "cpu", seed: int = 0, progress: Progress | None = None
) -> Demo:
    """Condense the digits with random, DM and HCDC; search cells on each copy and on all of the digits.

    Networks, schedules and the number of probes are cut down, so the figures are not those of the methods at
    their best. Equal seeds give equal files and figures, seconds apart.

    Args:
        out: Folder for the condensed files, the evaluations, the figures and ``report.html``.
        device: Where to compute.
        seed: Decides every random draw.
        progress: Where progress is reported.
    """
    require("matplotlib", "plot")
    folder = made_folder(out)
    progress = progress or Progress()
    progress.count = PHASES
    task, space = ImageTask(data("digits")), NASBench201(CELLS, CHANNELS)  # type: ignore[arg-type]
    with _results_in(folder / "full-data-results"):
        made = [_copy(name, task, space, folder, device, seed, progress) for name in COPIES]
    copies, evaluations = [small for small, _ in made], [evaluation for _, evaluation in made]
    agreed = _second_opinion(task, space, evaluations[0], copies[0], device, progress)
    source = f"{EPOCHS} epochs; a second seed agrees by {agreed:.2f}"
    evaluations = [dataclasses.replace(evaluation, truth_source=source) for evaluation in evaluations]
    for name, evaluation in zip(COPIES, evaluations):
        text = json.dumps(evaluation.to_json(), indent=1, sort_keys=True) + "\n"
        write_atomic(folder / f"{name}.evaluation.json", text)
    before = [_before(task, small) for small in copies]
    figures = write_figures(evaluations, folder)
    for name, small, start in zip(COPIES, copies, before):
        if small.meta["method"] == "hcdc":
            figures.append(image_grid(small, start, path=folder / f"images-{name}.png"))
    report = write_report(evaluations, folder / "report.html", TITLE, copies, before)
    return Demo(evaluations, figures, report, _notes(agreed))


@contextmanager
def _results_in(folder: Path) -> Iterator[None]:
    """Full-data results are kept in ``folder`` meanwhile, those of probes too."""
    old = os.environ.get("HCDC_CACHE")
    os.environ["HCDC_CACHE"] = str(folder)
    try:
        yield
    finally:
        if old is None:
            del os.environ["HCDC_CACHE"]
        else:
            os.environ["HCDC_CACHE"] = old


def _copy(
    name: str, task: ImageTask, space: Space, folder: Path, device: str, seed: int, progress: Progress
) -> tuple[CondensedDataset, Evaluation]:
    """Make, save and judge one copy."""
    how, file = COPIES[name], folder / f"{name}.hcdc"
    progress.report(f"{name}: condensing {len(task.train):,} digits to {TRAIN_SIZE}")
    with one_thread():  # candidates are searched below on threads of their own
        small = condense(
            task,
            space,
            how.method,
            train_size=TRAIN_SIZE,
            seed=seed,
            val_method=how.val_method,
            options=how.options,
            truth_epochs=EPOCHS,
            recipe=RECIPE,
            device=device,
            checkpoint=folder / f".{file.name}.ckpt",
            progress=progress,
        )
    small.save(file)
    progress.report(f"{name}: searching {CANDIDATES} cells on the copy and on all digits")
    found = evaluate(
        small,
        candidates=CANDIDATES,
        seed=seed,
        task=task,
        device=device,
        rivals=RIVALS if how.rivals else [],
        progress=progress,
    )
    return small, dataclasses.replace(found, preset=PRESET)  # what makes reports say that it was shortened


def _second_opinion(
    task: ImageTask,
    space: Space,
    evaluation: Evaluation,
    small: CondensedDataset,
    device: str,
    progress: Progress,
) -> float:
    """Spearman of the truth with that of another seed: the same cells trained again on the full data."""
    configs: list[Config] = list(evaluation.configs)
    moved, recipe = task.to(device), Recipe.from_dict(small.meta["full_recipe"])
    (again,) = score(
        Job(
            moved, space, configs, [moved.train], recipe, {"val": moved.val}, seed=1, role="truth",
            device=device, phase=progress.phase("full data, a second seed", len(configs)),
        )
    )  # fmt: skip
    scores = np.asarray([result.values["val.score"] for result in again])
    return ranks.spearman(np.asarray(evaluation.truth), scores)


def _before(task: ImageTask, small: CondensedDataset) -> Images | None:
    """The real images that a learned S_val started from."""
    if small.meta["val_method"] != "probes":
        return None
    return task.sample("val", small.meta["val_size"], small.meta["seed"])


def _notes(agreed: float) -> tuple[str, ...]:
    doubt = ""
    if not agreed >= SURE:  # correlation with a noisy measurement is at most the root of its reliability
        most = math.sqrt(agreed) if agreed > 0 else 0.0
        doubt = f": much of the truth is chance, and a ranking without any would reach about {most:.2f}"
    return (
        f"shortened: networks of {3 * CELLS} cells with {CHANNELS} channels, {EPOCHS} epochs a training on "
        f"the full data, {RECIPE['seeds']} initialisations on a copy, {PROBES} probes; these are not the "
        "figures of the whole methods, and HCDC by aligned hypergradients is left out, as it takes minutes",
        f"a second seed of the full data ranks the same cells with Spearman {agreed:.2f}{doubt}",
    )
