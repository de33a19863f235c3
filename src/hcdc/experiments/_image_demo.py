"""The image demo: makes copies of handwritten digits, searches cells on each and compares; offline.

On so small a data set the truth is partly chance. The demo therefore trains every candidate twice and reports
how well the full data agrees with itself; a copy can hardly rank better than that.
"""

from __future__ import annotations

import dataclasses
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
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset, Images, data
from hcdc.evaluation import Evaluation, evaluate
from hcdc.experiments._demo import PRESET, RIVALS, Demo, made_folder, one_thread, write_evaluation
from hcdc.reporting import image_grid, write_figures, write_report
from hcdc.spaces import NASBench201, Space
from hcdc.tasks import ImageTask
from hcdc.training import Job, score

CELLS, CHANNELS = 2, 4
"""Size of the networks; NAS-Bench-201 has 5 and 16."""
TRAIN_SIZE = 100
"""Training images per copy, ten per class; the digits have 899."""
CANDIDATES = 20
PROBES, COMPANIONS = 8, 4
"""Cells whose full-data results HCDC learns from, and cells trained only on the copy; usually 20 and 60."""
EPOCHS = 6
"""Epochs per full-data training; the default is 20, the benchmark has 200."""
RECIPE = {"seeds": 2, "lr": 0.2}
"""Initialisations and learning rate on a copy; the default rate is .05. Few steps need a higher rate: on 24
other cells the validation loss reaches Spearman .94 with it, .59 without (records/tuning/digits.json)."""
PHASES = 17
"""Progress phases: S_train and judging for each copy, random's S_val, probes on the full data and on two
copies, two learned S_val, one rival, the full data twice."""
SURE = 0.8
"""Below this agreement between two seeds of the truth, the demo warns."""
TITLE = "hcdc demo: small copies of handwritten digits (shortened)"


@dataclass(frozen=True)
class Copy:
    """How to make a copy: method, what makes S_val, settings that shorten it, and whether rivals run."""

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
"""Published DM makes no validation set, so its S_val is random images."""


def run_image_demo(
    out: str | os.PathLike[str], device: str = "cpu", seed: int = 0, progress: Progress | None = None
) -> Demo:
    """Condense the digits with random, DM and HCDC; search cells on each copy and on all digits.

    Networks, schedules and the number of probes are reduced, so it does not show the methods at their best.
    Equal seeds give equal files and figures, apart from seconds; files are those of `run_demo`.
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
        write_evaluation(evaluation, folder, name)
    before = [_before(task, small) for small in copies]
    figures = write_figures(evaluations, folder)
    for name, small, start in zip(COPIES, copies, before):
        if small.meta["method"] == "hcdc":
            figures.append(image_grid(small, start, path=folder / f"images-{name}.png"))
    report = write_report(evaluations, folder / "report.html", TITLE, copies, before)
    return Demo(evaluations, figures, report, _notes(agreed))


@contextmanager
def _results_in(folder: Path) -> Iterator[None]:
    """Keep full-data results, also those of probes, in ``folder`` meanwhile."""
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
    with one_thread():  # the search below has its own threads
        small = condense(
            task, space, how.method, train_size=TRAIN_SIZE, seed=seed, val_method=how.val_method,
            options=how.options, truth_epochs=EPOCHS, recipe=RECIPE, device=device,
            checkpoint=folder / f".{file.name}.ckpt", progress=progress,
        )  # fmt: skip
    small.save(file)
    progress.report(f"{name}: searching {CANDIDATES} cells on the copy and on all digits")
    found = evaluate(
        small, candidates=CANDIDATES, seed=seed, task=task, device=device, progress=progress,
        rivals=RIVALS if how.rivals else [],
    )  # fmt: skip
    return small, dataclasses.replace(found, preset=PRESET)  # makes reports say that the run was shortened


def _second_opinion(
    task: ImageTask,
    space: Space,
    evaluation: Evaluation,
    small: CondensedDataset,
    device: str,
    progress: Progress,
) -> float:
    """Spearman between the truth and a second full-data training of the same cells."""
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
    if not agreed >= SURE:  # a correlation is at most the square root of the reliability
        most = math.sqrt(agreed) if agreed > 0 else 0.0
        doubt = f": much of the truth is chance, so even a perfect ranking would reach only about {most:.2f}"
    return (
        f"shortened: networks of {3 * CELLS} cells with {CHANNELS} channels, {EPOCHS} epochs per full-data "
        f"training, {RECIPE['seeds']} initialisations per copy, {PROBES} probes; this does not show the "
        "methods at their best, and HCDC by aligned hypergradients is left out because it takes minutes",
        f"a second full-data seed ranks the same cells with Spearman {agreed:.2f}{doubt}",
    )
