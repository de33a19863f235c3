"""The demo: three copies of the embedded graph, a search over filters on each, what it brings; offline."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from hcdc.condensers import condense
from hcdc.core.errors import InputError, require
from hcdc.core.files import write_atomic
from hcdc.core.progress import Progress
from hcdc.datasets import data
from hcdc.evaluation import Evaluation, evaluate, rival_names
from hcdc.reporting import write_figures, write_report
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask

COPIES: dict[str, str | None] = {"random": "random", "gcond": "random", "hcdc": None}
"""Methods, and what makes S_val: GCond as published makes no validation set, HCDC learns its own."""
PRESET = "demo"
TRAIN_SIZE = 30
"""Training nodes of each copy; Citeseer has 120."""
CANDIDATES = 24
"""Filters searched; the protocol of the records has 80."""
WIDTH = 12
"""Hidden units of the networks; the protocol of the records has 64."""
RIVALS = [name for name in rival_names() if name != "equal-cost"]
"""To save time, which that one takes as much of as condensing; GCond has no rivals."""
PHASES = 12
"""Steps that progress counts: five for random (with the full data and two rivals) and for HCDC, two for
GCond."""
TITLE = "hcdc demo: three small copies of Citeseer (shortened)"


@dataclass(frozen=True)
class Demo:
    """What the demo made.

    Attributes:
        evaluations: One a copy, as `hcdc evaluate` writes them.
        figures: PNG files.
        report: The HTML page.
        notes: What has to be known of the run beside its figures, in sentences.
    """

    evaluations: list[Evaluation]
    figures: list[Path]
    report: Path
    notes: tuple[str, ...] = ()


def run_demo(
    out: str | os.PathLike[str], device: str = "cpu", seed: int = 0, progress: Progress | None = None
) -> Demo:
    """Condense the embedded graph with random, GCond and HCDC; search filters on each copy and on all of it.

    Everything is made with preset ``"demo"``: fewer filters and a shortened schedule, so the figures are not
    those of the methods at their best. Equal seeds give equal files and figures, seconds apart.

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
    with one_thread():
        evaluations = _copies(folder, device, seed, progress)
    figures = write_figures(evaluations, folder)
    return Demo(evaluations, figures, write_report(evaluations, folder / "report.html", TITLE))


def made_folder(out: str | os.PathLike[str]) -> Path:
    """The folder, made where it is not there, or a refusal."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder '{folder}' cannot be made: {error.strerror or error}") from error
    return folder


@contextmanager
def one_thread() -> Iterator[None]:
    """Equal sums on machines with few and many cores; matrices this small gain little by more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _copies(folder: Path, device: str, seed: int, progress: Progress) -> list[Evaluation]:
    """Make, save and judge each copy; the evaluations."""
    task, space = GraphTask(data("embedded")), PolynomialFilter(width=WIDTH)  # type: ignore[arg-type]
    evaluations = []
    for method, val_method in COPIES.items():
        progress.report(f"{method}: condensing {len(task.train)} training nodes of Citeseer to {TRAIN_SIZE}")
        file = folder / f"{method}.hcdc"
        small = condense(
            task,
            space,
            method,
            train_size=TRAIN_SIZE,
            seed=seed,
            val_method=val_method,
            preset=PRESET,
            device=device,
            checkpoint=folder / f".{file.name}.ckpt",
            progress=progress,
        )
        small.save(file)
        progress.report(f"{method}: searching {CANDIDATES} filters on the copy and on the full graph")
        evaluation = evaluate(
            small,
            candidates=CANDIDATES,
            seed=seed,
            task=task,
            device=device,
            cache=folder / "full-data-results",
            rivals=[] if method == "gcond" else RIVALS,
            progress=progress,
        )
        write_atomic(
            folder / f"{method}.evaluation.json",
            json.dumps(evaluation.to_json(), indent=1, sort_keys=True) + "\n",
        )
        evaluations.append(evaluation)
    return evaluations
