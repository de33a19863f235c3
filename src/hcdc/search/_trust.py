"""`hcdc.trust`: how far to believe the ranking of a stand-in, from a few full trainings."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress, usual_progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import check_seed, check_whole, derive, numpy_stream
from hcdc.core.trusted import Trust
from hcdc.datasets import CondensedDataset, FullData
from hcdc.evaluation import checked_judges, task_of
from hcdc.evaluation.trust import agreement
from hcdc.search._audits import by_dimension
from hcdc.search._dimensions import described
from hcdc.search._executor import Objective
from hcdc.search._objective import ObjectiveProblem, ObjectiveRung
from hcdc.search._prepare import loaded_copy
from hcdc.search._problem import Array, Outcome
from hcdc.search._store import CODE, Store, open_store
from hcdc.search._task_problem import TaskProblem
from hcdc.spaces import from_spec
from hcdc.truth import TrainedTruth, Truth, check_truth, full_scores

FEWEST = 4
"""Fewest probes."""
PER_PROBE = 5
"""Candidates scored on the stand-in per probe; they describe its ranking."""


def trust(
    subject: Objective | CondensedDataset | str | os.PathLike[str],
    full: FullData | None = None,
    *,
    rung: str | CondensedDataset | os.PathLike[str] = "subset:0.1",
    probes: int = 12,
    seed: int = 0,
    truth: Truth | None = None,
    device: torch.device | str = "cpu",
    cache: str | os.PathLike[str] | None = None,
    storage: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Trust:
    """Measure how far the ranking of a stand-in agrees with full trainings.

    Five candidates per probe are scored on the stand-in; the probes are drawn uniformly from them and trained
    in full.

    Args:
        subject: A condensed data set or its file; or an ``objective(trial, data)``, with its full data.
        full: The full data of an objective.
        rung: The stand-in of an objective: ``"subset:0.1"``, ``"short:0.25"``, ``"short:3"`` or a condensed
            data set.
        probes: Full trainings; 12 or more are needed for "trust".
        seed: Draws candidates and probes.
        truth: Full-data results for a copy, used instead of training.
        device: Where the candidates of a copy are trained.
        cache: Folder for full-data results of a copy, see `hcdc.evaluate`.
        storage: File that keeps the finished trials of an objective; the same call continues from it.
        progress: Where progress is reported.

    Returns:
        Agreement overall, among survivors and per dimension, with intervals and a verdict.
    """
    check_seed(seed)
    check_whole("probes", probes, 0)
    if probes < FEWEST:
        raise InputError(
            f"probes {probes}: at least {FEWEST} are needed for an interval, and 12 to trust a stand-in"
        )
    progress = progress or usual_progress()
    if full is None:
        if not isinstance(subject, (CondensedDataset, str, os.PathLike)):
            raise InputError("full is missing: pass hcdc.FullData(train, val) with an objective")
        if storage is not None:
            raise InputError("storage belongs to an objective; the results of a copy are kept in its cache")
        return _of_copy(loaded_copy(subject), probes, seed, truth, device, cache, progress)
    if isinstance(subject, (CondensedDataset, str, os.PathLike)):
        raise InputError("full belongs to an objective; leave it out for a condensed data set")
    store = Store() if storage is None else open_store(storage)
    return _of_objective(subject, full, rung, probes, seed, store, progress)


def trust_seconds(
    objective: Objective, full: FullData, rung: str | CondensedDataset, probes: int, seed: int = 0
) -> float:
    """Seconds that `trust` should take for an objective, from a few timed trials."""
    problem = _problem(objective, full, rung)
    prices = problem.forecast(math.inf, seed)
    return PER_PROBE * probes * prices[problem.rungs[0].name] + probes * prices[problem.rungs[-1].name]


def _problem(
    objective: Objective, full: FullData, rung: str | CondensedDataset | os.PathLike[str]
) -> ObjectiveProblem:
    if isinstance(rung, str):
        return ObjectiveProblem(objective, full, rungs=[rung])
    return ObjectiveProblem(objective, full, [rung], rungs=[])


def _of_copy(
    small: CondensedDataset,
    probes: int,
    seed: int,
    truth: Truth | None,
    device: torch.device | str,
    cache: str | os.PathLike[str] | None,
    progress: Progress,
) -> Trust:
    task, space = task_of(small).to(device), from_spec(small.meta["space"])
    if truth is not None:
        check_truth(truth, task)
    configs, _ = checked_judges(small, task, PER_PROBE * probes, seed)
    picks = _picks(len(configs), probes, seed)
    rung = TaskProblem(task, space, (), [small], device=device, seed=seed).rungs[0]
    phase, scores = progress.phase("candidates on the copy", len(configs)), []
    for begin in range(0, len(configs), rung.batch):
        some = rung.run(configs[begin : begin + rung.batch], derive(seed, "trust"))
        scores += [outcome.score for outcome in some]
        phase.step(len(scores))
    source = truth or TrainedTruth(
        task, space, Recipe.from_dict(small.meta["full_recipe"]), device=device, cache=cache,
        progress=progress, fingerprint=str(small.meta["data"].get("fingerprint")),
    )  # fmt: skip
    known = full_scores(source.results([configs[i] for i in picks]), "val")
    return _judged(np.array(scores), picks, np.array(known), described(configs, space), configs, seed)


def _of_objective(
    objective: Objective,
    full: FullData,
    rung: str | CondensedDataset | os.PathLike[str],
    probes: int,
    seed: int,
    store: Store,
    progress: Progress,
) -> Trust:
    problem = _problem(objective, full, rung)
    spec = {**problem.spec(), CODE: problem.code, "seed": seed, "measured": "trust"}
    store.open(spec, problem.distributions)
    problem.scout(store, seed)
    if len(problem.rungs) < 2:
        raise InputError(f"rung '{rung}': {problem.warnings[-1] if problem.warnings else 'not a stand-in'}")
    stand_in, whole = problem.rungs[0], problem.rungs[-1]
    configs = problem.propose(PER_PROBE * probes, numpy_stream(seed, "trust"))
    picks = _picks(len(configs), probes, seed)
    low = _scored(problem, stand_in, configs, seed, store, progress)
    high = dict(zip(picks, _scored(problem, whole, [configs[i] for i in picks], seed, store, progress)))
    kept = [i for i, outcome in enumerate(low) if outcome.state != "pruned"]
    picks = [kept.index(i) for i in picks if i in kept and high[i].state != "pruned"]
    if len(picks) < FEWEST:
        raise InputError(
            f"{len(picks)} of {probes} probes are left, since pruned trials do not count; at least {FEWEST} "
            "are needed: take more probes, or do not prune"
        )
    scores, known = [low[i].score for i in kept], [high[kept[k]].score for k in picks]
    configs = [configs[i] for i in kept]
    return _judged(np.array(scores), picks, np.array(known), problem.described(configs), configs, seed)


def _scored(
    problem: ObjectiveProblem,
    rung: ObjectiveRung,
    configs: Sequence[Config],
    seed: int,
    store: Store,
    progress: Progress,
) -> list[Outcome]:
    """Outcomes on a rung, from the store or from new trials."""
    phase, found = progress.phase(f"trials on {rung.name}", len(configs)), []
    kept = [store.known(rung.name, 0, config) for config in configs]
    missing = [config for config, outcome in zip(configs, kept) if outcome is None]
    fresh = rung.run(missing, derive(seed, "trust", rung.name))
    for config, outcome in zip(configs, kept):
        if outcome is None:
            with store.begun(rung.name, 0, config):
                outcome = next(fresh)
            store.tell(rung.name, 0, outcome)
        if rung is not problem.rungs[-1]:  # full probes unheard are never pruned
            problem.tell(rung, outcome)
        found.append(outcome)
        phase.step(len(found))
    return found


def _picks(candidates: int, probes: int, seed: int) -> list[int]:
    order = numpy_stream(seed, "trust", "probes").permutation(candidates)
    return [int(i) for i in order[:probes]]


def _judged(
    scores: Array,
    picks: Sequence[int],
    known: Array,
    columns: Mapping[str, Array],
    configs: Sequence[Config],
    seed: int,
) -> Trust:
    """The statistics; failed candidates rank last, as they would in a search."""
    scores, known = _last(scores), _last(known)
    found = agreement(scores, picks, known, seed=seed)
    dimensions = by_dimension(columns, configs, scores, picks, known, seed)
    return dataclasses.replace(found, dimensions=dimensions)


def _last(scores: Array) -> Array:
    """Scores with those of failed candidates below the worst."""
    fine = np.isfinite(scores)
    if not fine.any():
        raise InputError("all candidates failed, so there is nothing to compare")
    return np.where(fine, scores, scores[fine].min() - max(float(scores[fine].std()), 1e-9))
