"""`hcdc.search`: spend a budget on an objective, a task or a copy; return the best configuration."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hcdc.core.errors import InputError
from hcdc.core.files import unwritable
from hcdc.core.found import Found
from hcdc.core.progress import Progress
from hcdc.core.seeds import check_seed, check_whole
from hcdc.datasets import CondensedDataset, FullData
from hcdc.search._copy_alone import COPY_TRIALS, search_copy
from hcdc.search._executor import Executor, Objective
from hcdc.search._groups import check_groups, parse_groups
from hcdc.search._known import known_outcomes, known_results, unread_columns
from hcdc.search._ladder import Ladder
from hcdc.search._prepare import USUAL_BUDGET, loaded_copy, parse_budget, prepare
from hcdc.search._ray import executor_of
from hcdc.search._sampler import Sampler
from hcdc.search._settings import LadderSettings
from hcdc.search._store import CODE, Store, file_name, open_store
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth


def search(
    subject: Objective | Task | CondensedDataset | str | os.PathLike[str],
    over: FullData | Space | None = None,
    *,
    budget: str | float | None = None,
    seed: int = 0,
    storage: str | os.PathLike[str] | None = None,
    copies: Sequence[CondensedDataset | str | os.PathLike[str]] = (),
    rungs: Sequence[str] | None = None,
    trials: int | None = None,
    truth: Truth | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    sampler: Any = None,
    pruner: Any = None,
    known: Any = None,
    backend: str | Executor | None = None,
    address: str | None = None,
    groups: Mapping[str, str] | None = None,
) -> Found:
    """Find the best configuration within a budget.

    Many configurations are tried on a small part of the data, fewer in a short training, the best in full.
    The search measures how far each of these stand-ins agrees with the next, and drops those that do not
    help. It trains the winners again with fresh seeds and reports only the last score.

    Args:
        subject: What is searched: an objective, a task, or a copy. ``objective(trial, data)`` reads its
            parameters with ``trial.suggest_float`` and the like, as in Optuna, which is not needed. It trains
            on ``data.train`` for ``data.epochs(n)`` or ``data.steps(n)``, and returns ``data.score(outputs)``
            or a number of its own; higher is better. A condensed data set or its file is searched alone: the
            result is the best configuration by the copy, without a full score.
        over: The full data of an objective, or the search space of a task; nothing for a copy.
        budget: Seconds, or a text such as ``"90s"``, ``"30m"`` or ``"1h30m"``. No training starts that is
            expected to end more than a tenth beyond it. 30 minutes by default; no limit for a copy alone.
        seed: Seed for every random draw.
        storage: File that keeps finished trials; the same call continues a search that was stopped. A new
            file is an Optuna journal if Optuna is installed and its name does not end in ``.jsonl``.
        copies: Condensed data sets, or their files, to try as stand-ins. For a task without copies, rungs and
            truth, a copy of random training examples and real validation examples is tried if a trial on it
            costs at most 1/20 of a full training, and making it at most 5 % of the budget.
        rungs: Stand-ins to use, cheapest first, e.g. ``["subset:0.05", "short:3", "copy:FILE"]`` or one text
            with commas; for a task also ``"free"``. See `ObjectiveProblem` and `TaskProblem`.
        trials: The most configurations to try on the cheapest stand-in; by default the budget decides. 200
            by default for a copy alone.
        truth: Full-data results of a task, used instead of training; the budget is then counted in the
            table's own seconds.
        device: Where the candidates of a task are trained.
        progress: Where progress is reported.
        sampler: ``"tpe"`` or an Optuna sampler that makes two thirds of the proposals; by default they are
            steps from the best so far. A third is always random.
        pruner: An Optuna pruner for full trainings that report scores; by default the median rule.
        known: Earlier full results, which are then free: a CSV file with one column per parameter and ``val``
            (higher is better), or a finished Optuna study or its storage; see `CsvTruth` and `StudyTruth`.
        backend: ``"ray"`` runs trials on a Ray cluster, see `RayExecutor`.
        address: Address of the cluster; by default the one that is running, else one on this machine.
        groups: Combinations of hyperparameters whose agreement is measured like that of a single one, e.g.
            ``{"step": "log lr - log batch"}``.

    Returns:
        What was found; ``best`` holds the parameters.
    """
    begun = time.perf_counter() - (0.0 if progress is None else progress.before)
    seconds = parse_budget(USUAL_BUDGET if budget is None else budget)
    check_seed(seed)
    check_trials(trials)
    if over is None and not isinstance(subject, (CondensedDataset, str, os.PathLike)):
        raise InputError(
            f"{type(subject).__name__} alone cannot be searched: pass a task and its space, an objective and "
            "its hcdc.FullData, or a condensed data set"
        )
    asked = None if sampler is None else Sampler(sampler, seed)
    executor = executor_of(backend, address)
    if storage is not None and (why := unwritable(file_name(storage))):
        raise InputError(f"storage '{storage}': {why}")
    store = Store() if storage is None else open_store(storage)
    if over is None:
        _refuse_unused(
            copies=copies, rungs=rungs, truth=truth, sampler=sampler, pruner=pruner, known=known,
            backend=backend, groups=groups,
        )  # fmt: skip
        small = loaded_copy(subject)  # type: ignore[arg-type]
        limit = None if budget is None else seconds
        return search_copy(small, trials or COPY_TRIALS, limit, seed, store, device, progress)
    declared = parse_groups(groups)
    problem = prepare(subject, over, copies, rungs, truth, device, seed, executor, pruner)  # type: ignore[arg-type]
    problem.groups = declared
    earlier = None if known is None else known_results(known, problem.fingerprint)
    spec = {**problem.spec(), CODE: problem.code, "seed": seed, "known": earlier and earlier.spec()}
    store.open(spec, problem.distributions)
    finished = f"found {seconds:g} s, {trials} trials, {_words(sampler)}, {_words(pruner)}"
    finished += f", {dict(groups)}" if groups else ""
    if (kept := store.noted(finished)) is not None:  # decisions need not be taken again
        return dataclasses.replace(Found.from_json(kept), open_studies=store.studies)
    before = time.perf_counter() - begun - store.waited
    before -= sum(rung.once for rung in problem.rungs)  # without making copies
    problem.scout(store, seed, seconds)
    check_groups(declared, problem.distributions)
    outcomes = known_outcomes(earlier, problem.distributions) if earlier else []
    unread = unread_columns(earlier, problem.distributions) if earlier and problem.distributions else []
    settings = LadderSettings(candidates=trials)
    found = Ladder(
        problem, seconds, seed, store, settings, asked, outcomes, progress, max(before, 0.0)
    ).climb()  # fmt: skip
    found = dataclasses.replace(
        found,
        best=None if found.best is None else problem.params(found.best),
        finalists=[{**some, "config": problem.params(some["config"])} for some in found.finalists],
        warnings=[*found.warnings, *problem.warnings, *unread],
        open_studies=store.studies,
    )
    store.note(finished, found.to_json())
    return found


def check_trials(trials: int | None) -> None:
    """Refuse fewer configurations than a choice needs; None is the default."""
    if trials is not None and trials < 2:
        raise InputError(f"trials {trials}: at least 2 configurations are needed to choose from")
    if trials is not None:
        check_whole("trials", trials, 2)


def _refuse_unused(**given: Any) -> None:
    """Refuse arguments that a search of a copy alone does not read."""
    if unused := [name for name, value in given.items() if value]:
        raise InputError(f"a search of a copy alone does not use {', '.join(unused)}; leave it out")


def _words(given: Any) -> str:
    """A sampler or a pruner by name."""
    return given if isinstance(given, str) else type(given).__name__
