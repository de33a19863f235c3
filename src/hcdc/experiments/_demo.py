"""The demo: three copies of the embedded graph, compared; then a search under a budget; offline."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hcdc.condensers import condense
from hcdc.core.errors import InputError, require
from hcdc.core.files import write_atomic
from hcdc.core.found import Found
from hcdc.core.progress import Progress
from hcdc.datasets import data
from hcdc.evaluation import Evaluation, evaluate, rival_names
from hcdc.reporting import write_figures, write_report, write_search_report
from hcdc.search import search
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask

COPIES: dict[str, str | None] = {"random": "random", "gcond": "random", "hcdc": "both"}
"""Methods and what makes S_val: published GCond makes no validation set; HCDC learns its own."""
PRESET = "demo"
TRAIN_SIZE = 30
"""Training nodes per copy; Citeseer has 120."""
CANDIDATES = 24
"""Filters searched; the recorded experiments use 80."""
WIDTH = 12
"""Hidden units of the networks; the recorded experiments use 64."""
RIVALS = [name for name in rival_names() if name != "equal-cost"]
"""All but ``equal-cost``, which takes as long as condensing; GCond gets no rivals."""
PHASES = 13
"""Progress phases: five for random (with the full data and two rivals), five for HCDC, two for GCond, one
for the search."""
BUDGET = "60s"
"""What the search may spend."""
SEARCH_TITLE = "hcdc demo: the best graph filter within a minute"
TITLE = "hcdc demo: three small copies of Citeseer (shortened)"


@dataclass(frozen=True)
class Demo:
    """The result of a demo.

    Attributes:
        evaluations: One per copy.
        figures: PNG files.
        report: The HTML page.
        notes: Notes about the run.
        found: What the search found, if there was one; its page is ``search.html`` in the same folder.
    """

    evaluations: list[Evaluation]
    figures: list[Path]
    report: Path
    notes: tuple[str, ...] = ()
    found: Found | None = None


def run_demo(
    out: str | os.PathLike[str], device: str = "cpu", seed: int = 0, progress: Progress | None = None
) -> Demo:
    """Condense the embedded graph with random, GCond and HCDC and compare; then search filters in `BUDGET`.

    Preset ``"demo"`` means fewer filters and shorter schedules, so it does not show the methods at their
    best. Equal seeds give equal copies and figures, apart from seconds. The search climbs from short
    trainings to full ones, which cost less than trials on a copy of a graph this small. Condensed files,
    evaluations, figures, ``report.html``, ``search.json`` and ``search.html`` go to the folder ``out``.
    """
    require("matplotlib", "plot")
    folder = made_folder(out)
    progress = progress or Progress()
    progress.count = PHASES
    with one_thread():
        task, space = GraphTask(data("embedded")), PolynomialFilter(width=WIDTH)  # type: ignore[arg-type]
        evaluations = _copies(task, space, folder, device, seed, progress)
        progress.report(f"searching filters for {BUDGET}, full trainings included")
        found = search(
            task, space, budget=BUDGET, rungs=["short:0.1"], seed=seed, device=device, progress=progress
        )
    write_result(found.to_json(), folder / "search.json")
    write_search_report(found, folder / "search.html", SEARCH_TITLE)
    figures = write_figures(evaluations, folder)
    report = write_report(evaluations, folder / "report.html", TITLE)
    return Demo(evaluations, figures, report, found=found)


def made_folder(out: str | os.PathLike[str]) -> Path:
    """The folder, created if necessary."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder '{folder}' cannot be created: {error.strerror or error}") from error
    return folder


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: sums are then equal on all machines, and small matrices gain little from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _copies(
    task: GraphTask, space: PolynomialFilter, folder: Path, device: str, seed: int, progress: Progress
) -> list[Evaluation]:
    """Make, save and judge each copy."""
    evaluations = []
    for method, val_method in COPIES.items():
        progress.report(f"{method}: condensing {len(task.train)} training nodes of Citeseer to {TRAIN_SIZE}")
        file = folder / f"{method}.hcdc"
        small = condense(
            task, space, method, train_size=TRAIN_SIZE, seed=seed, val_method=val_method, preset=PRESET,
            device=device, checkpoint=folder / f".{file.name}.ckpt", progress=progress,
        )  # fmt: skip
        small.save(file)
        progress.report(f"{method}: searching {CANDIDATES} filters on the copy and on the full graph")
        evaluation = evaluate(
            small, candidates=CANDIDATES, seed=seed, task=task, device=device,
            cache=folder / "full-data-results", rivals=[] if method == "gcond" else RIVALS, progress=progress,
        )  # fmt: skip
        write_evaluation(evaluation, folder, method)
        evaluations.append(evaluation)
    return evaluations


def write_evaluation(evaluation: Evaluation, folder: Path, name: str) -> None:
    """Write it as `hcdc evaluate` does."""
    write_result(evaluation.to_json(), folder / f"{name}.evaluation.json")


def write_result(document: dict[str, Any], path: Path) -> None:
    """Write a result as commands do."""
    write_atomic(path, json.dumps(document, indent=1, sort_keys=True) + "\n")
