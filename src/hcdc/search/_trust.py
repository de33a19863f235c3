"""`hcdc.trust`: how far to believe the ranking of a stand-in, from a few full trainings."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch

from hcdc.condensers import Cost, Expense, full_trainings, training_seconds
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress, duration, usual_progress
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import check_seed, check_whole, derive, numpy_stream
from hcdc.core.told import counted
from hcdc.core.trusted import Trust
from hcdc.datasets import CondensedDataset, FullData
from hcdc.evaluation import checked_judges, task_of
from hcdc.evaluation.trust import FEWEST as ENOUGH
from hcdc.evaluation.trust import LEVEL, agreement
from hcdc.search._audits import by_dimension
from hcdc.search._dimensions import described
from hcdc.search._executor import Objective
from hcdc.search._groups import Term, check_groups, parse_groups
from hcdc.search._known import known_outcomes, known_results, unread_columns
from hcdc.search._objective import ObjectiveProblem, ObjectiveRung
from hcdc.search._prepare import loaded_copy
from hcdc.search._problem import Array, Outcome, Rung
from hcdc.search._store import CODE, Store, open_store
from hcdc.search._task_problem import TaskProblem, TrainedRung
from hcdc.spaces import from_spec
from hcdc.tasks import Task
from hcdc.truth import ListedTruth, TrainedTruth, Truth, check_truth, full_scores

log = logging.getLogger("hcdc")

FEWEST = 4
"""Fewest probes."""
USUAL_RUNG = "subset:0.1"
PER_PROBE = 5
"""Candidates scored on the stand-in per probe; they describe its ranking."""


def trust(
    subject: Objective | CondensedDataset | str | os.PathLike[str],
    full: FullData | None = None,
    *,
    rung: str | CondensedDataset | os.PathLike[str] | None = None,
    probes: int = ENOUGH,
    against: str = "full",
    confirm: int = 0,
    groups: Mapping[str, str] | None = None,
    k: float | None = None,
    known: Any = None,
    seed: int = 0,
    truth: Truth | None = None,
    device: torch.device | str = "cpu",
    cache: str | os.PathLike[str] | None = None,
    storage: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Trust:
    """Measure how far the ranking of a stand-in agrees with full trainings.

    Five candidates per probe are scored on the stand-in; the probes are drawn uniformly from them and trained
    in full. Of ``known`` results only the probes are scored.

    Args:
        subject: A condensed data set or its file; or an ``objective(trial, data)``, with its full data.
        full: The full data of an objective.
        rung: The stand-in of an objective: ``"subset:0.1"``, ``"short:0.25"``, ``"short:3"`` or a condensed
            data set; ``"subset:0.1"`` by default.
        probes: Candidates to train and compare. "trust" needs 16 or more, and 60 tell much per dimension.
        against: What stands for the truth: ``"full"``, or a short training such as ``"short:0.25"``, so that
            you can afford more probes.
        confirm: Probes to train in full too, if ``against`` is not ``"full"``; ``found.confirmed``
            says how far the stand-in agrees with them.
        groups: Combinations of hyperparameters to measure like single ones, e.g.
            ``{"step": "log lr - log batch"}``.
        k: What you would keep by the stand-in: a share of the candidates, or a number of the probes, such as
            4 of 16. ``found.at_k`` says which share of the truly best you keep, and what you lose. Half by
            default.
        known: Full results of an objective from before, which are the probes then, so that nothing is trained
            in full: a CSV file, a finished Optuna study or its storage, as in `search`. Of more than
            ``probes`` a random sample is taken. Known results need not be a random sample, so the figures
            hold for configurations like these, and the verdict is never "trust".
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
    check_probes(probes, against, confirm)
    _kept_share(k, probes)
    design = Design(probes, against, confirm, parse_groups(groups), seed, k)
    progress = progress or usual_progress()
    if full is None:
        if not isinstance(subject, (CondensedDataset, str, os.PathLike)):
            raise InputError("full is missing: pass hcdc.FullData(train, val) with an objective")
        if storage is not None:
            raise InputError("storage belongs to an objective; the results of a copy are kept in its cache")
        if rung is not None:
            raise InputError("rung belongs to an objective; leave it out for a condensed data set")
        if known is not None:
            raise InputError("known belongs to an objective; full results for a copy are its truth")
        return _of_copy(loaded_copy(subject), design, truth, device, cache, progress)
    if isinstance(subject, (CondensedDataset, str, os.PathLike)):
        raise InputError("full belongs to an objective; leave it out for a condensed data set")
    rung, results = USUAL_RUNG if rung is None else rung, None
    if known is not None:
        results = _results(known, full, against)
        design = dataclasses.replace(design, probes=min(probes, len(results)))
        _kept_share(k, design.probes)
    store = Store() if storage is None else open_store(storage)
    found = _of_objective(subject, full, rung, design, results, store, progress)
    return found if results is None else _like_these(found)


@dataclass(frozen=True)
class Design:
    """How a stand-in is measured; see `trust`."""

    probes: int
    against: str = "full"
    confirm: int = 0
    groups: Mapping[str, Sequence[Term]] = field(default_factory=dict)
    seed: int = 0
    k: float | None = None


def _kept_share(k: float | None, probes: int) -> float | None:
    """``k`` as a share of the candidates."""
    if k is None:
        return None
    number = not isinstance(k, bool) and isinstance(k, Real)
    share = k / probes if number and k >= 1 and k == int(k) else k
    if not (number and 1 / probes <= share < 1):
        asked = f"{k:g}" if number else repr(k)
        raise InputError(
            f"k {asked}: give a number from 1 to {probes - 1} of the {probes} probes, or a share below 1 "
            "that holds at least one of them"
        )
    return float(share)


def _results(known: Any, full: FullData, against: str) -> ListedTruth:
    """The known results, if there are enough and they are what the stand-in is compared with."""
    if against != "full":
        raise InputError(f"against '{against}': known results are those of full trainings; leave it out")
    results = known_results(known, full.fingerprint)
    if len(results) < FEWEST:
        raise InputError(
            f"known: {results.name} has {counted(len(results), 'result')}; at least {FEWEST} are needed"
        )
    return results


def _like_these(found: Trust) -> Trust:
    """What known results show: nothing about all configurations, of which they may be no random sample."""
    verdict = "keep open" if found.verdict == "trust" else found.verdict
    told = found.why.partition("; ")[0]  # not that 16 probes are needed: these would not do either
    why = f"{told}; known results need not be a random sample, so this holds for configurations like these"
    dimensions = [
        dataclasses.replace(d, verdict="unknown") if d.verdict == "choose here" else d
        for d in found.dimensions
    ]
    return dataclasses.replace(found, verdict=verdict, why=why, uniform=False, dimensions=dimensions)


def check_probes(probes: int, against: str = "full", confirm: int = 0) -> None:
    """Refuse a design that measures nothing; the arguments are those of `trust`."""
    check_whole("probes", probes, 0)
    if probes < FEWEST:
        raise InputError(
            f"probes {probes}: at least {FEWEST} are needed for an interval, and {ENOUGH} to trust a stand-in"
        )
    check_whole("confirm", confirm, 0)
    if against == "full" and confirm:
        raise InputError(
            f"confirm {confirm}: all probes are trained in full; name what they are trained on instead with "
            "against, e.g. 'short:0.25'"
        )
    if confirm > probes or 0 < confirm < FEWEST:
        raise InputError(f"confirm {confirm}: give 0, or {FEWEST} to {probes} of the {probes} probes")
    if against != "full" and not re.fullmatch(r"short:(\d+\.?\d*|\.\d+)", against):
        raise InputError(f"against '{against}': write 'full', or a short training such as 'short:0.25'")


def _check_share(against: str) -> None:
    """Refuse epochs: a short training on a task is a share of its steps."""
    if against != "full" and not 0 < float(against.removeprefix("short:")) < 1:
        raise InputError(f"against '{against}': for a copy, give a share of the steps, e.g. 'short:0.25'")


def _copy_rungs(
    small: CondensedDataset, task: Task, against: str, device: torch.device | str, seed: int
) -> list[Rung]:
    """The copy, the short training that stands for the truth if one does, and the full training."""
    _check_share(against)
    between = () if against == "full" else (against,)
    recipe = Recipe.from_dict(small.meta["full_recipe"])
    space = from_spec(small.meta["space"])
    return TaskProblem(task, space, between, [small], recipe=recipe, device=device, seed=seed).rungs


def trust_cost(
    small: CondensedDataset,
    task: Task,
    probes: int,
    against: str = "full",
    confirm: int = 0,
    truth: Truth | None = None,
    device: torch.device | str = "cpu",
) -> Cost:
    """What `trust` will cost for a copy of this task, its trials on the copy included, from a few steps."""
    check_probes(probes, against, confirm)
    space, recipe = from_spec(small.meta["space"]), Recipe.from_dict(small.meta["full_recipe"])
    trained = [r for r in _copy_rungs(small, task, against, device, 0)[:-1] if isinstance(r, TrainedRung)]
    full = 0 if truth is not None else probes if against == "full" else confirm
    found = [full_trainings(full, training_seconds(task, space, recipe, device))] if full else []
    work = [(PER_PROBE * probes, "trials on the copy"), (probes, f"probes on {against}")]
    for (count, words), rung in zip(work, trained):
        seconds = count * rung.forecast(space.sample(rung.batch, numpy_stream(0, "estimate")), math.inf)
        found.append(Expense(f"{count} {words}: about {duration(seconds)}", seconds))
    return Cost(tuple(found))


def trust_seconds(
    objective: Objective,
    full: FullData,
    rung: str | CondensedDataset,
    probes: int,
    seed: int = 0,
    against: str = "full",
    confirm: int = 0,
    known: Any = None,
) -> float:
    """Seconds that `trust` should take for an objective, from a few timed trials, with ``known`` from one."""
    check_probes(probes, against, confirm)
    problem = _problem(objective, full, rung, against)
    if known is not None:
        results = _results(known, full, against)
        problem.scout(Store(), seed)
        _check_rungs(problem, against)
        return min(probes, len(results)) * problem.rungs[0].once
    prices = [*problem.forecast(math.inf, seed).values()]
    _check_rungs(problem, against)
    counts = [PER_PROBE * probes, *([probes] if len(prices) == 2 else [probes, confirm])]
    return sum(count * price for count, price in zip(counts, prices))


def _problem(
    objective: Objective,
    full: FullData,
    rung: str | CondensedDataset | os.PathLike[str],
    against: str = "full",
) -> ObjectiveProblem:
    between = [] if against == "full" else [against]
    if isinstance(rung, str):
        return ObjectiveProblem(objective, full, rungs=[rung, *between])
    return ObjectiveProblem(objective, full, [rung], rungs=between)


def _check_rungs(problem: ObjectiveProblem, against: str) -> None:
    """Refuse to measure what is no stand-in for this objective, or a full training under another name."""
    for name, why in problem.dropped.items():
        raise InputError(f"{'against' if name == against else 'rung'} '{name}': {why}")
    for rung in problem.rungs[:-1]:
        if rung.name.startswith("short:") and rung.share >= 1:
            raise InputError(
                f"{'against' if rung.name == against else 'rung'} '{rung.name}': the first trial asks for no "
                "more epochs, so this is a full training; give fewer epochs, or a share such as 'short:0.25'"
            )


def _of_copy(
    small: CondensedDataset,
    design: Design,
    truth: Truth | None,
    device: torch.device | str,
    cache: str | os.PathLike[str] | None,
    progress: Progress,
) -> Trust:
    task, space = task_of(small).to(device), from_spec(small.meta["space"])
    if truth is not None:
        check_truth(truth, task)
    check_groups(design.groups, {d.name for d in space.dimensions()})
    seed, recipe = design.seed, Recipe.from_dict(small.meta["full_recipe"])
    configs, _ = checked_judges(small, task, PER_PROBE * design.probes, seed)
    picks = _picks(len(configs), design.probes, seed)
    rungs = _copy_rungs(small, task, design.against, device, seed)
    source = truth or TrainedTruth(
        task, space, recipe, device=device, cache=cache, progress=progress,
        fingerprint=str(small.meta["data"].get("fingerprint")),
    )  # fmt: skip
    few = picks if design.against == "full" else picks[: design.confirm]
    source.ensure([configs[i] for i in few])
    scores = _trained(rungs[0], configs, "candidates on the copy", seed, progress)

    def in_full(some: Sequence[int]) -> Array:
        return np.array(full_scores(source.results([configs[i] for i in some]), "val"))

    columns = described(configs, space)
    if design.against == "full":
        return _judged(scores, few, in_full(few), columns, configs, design)
    chosen = [configs[i] for i in picks]
    known = _trained(rungs[1], chosen, f"probes on {design.against}", seed, progress)
    found = _judged(scores, picks, known, columns, configs, design)
    return _confirmed(found, scores, few, in_full(few) if few else np.empty(0), seed)


def _trained(rung: Rung, configs: Sequence[Config], words: str, seed: int, progress: Progress) -> Array:
    """Scores of candidates on a rung of a task."""
    phase, scores = progress.phase(words, len(configs)), list[float]()
    for begin in range(0, len(configs), rung.batch):
        some = rung.run(configs[begin : begin + rung.batch], derive(seed, "trust"))
        scores += [outcome.score for outcome in some]
        phase.step(len(scores))
    return np.array(scores)


def _of_objective(
    objective: Objective,
    full: FullData,
    rung: str | CondensedDataset | os.PathLike[str],
    design: Design,
    results: ListedTruth | None,
    store: Store,
    progress: Progress,
) -> Trust:
    seed, probes = design.seed, design.probes
    problem = _problem(objective, full, rung, design.against)
    spec = {**problem.spec(), CODE: problem.code, "seed": seed, "measured": "trust"}
    spec["known"] = results and results.spec()
    store.open(spec, problem.distributions)
    problem.scout(store, seed)
    check_groups(design.groups, problem.distributions)
    _check_rungs(problem, design.against)
    if len(problem.rungs) < 2:
        raise InputError(f"rung '{rung}': not a stand-in")
    stand_in, above, whole = problem.rungs[0], problem.rungs[1], problem.rungs[-1]
    if results is None:
        configs = problem.propose(PER_PROBE * probes, numpy_stream(seed, "trust"))
        picks = _picks(len(configs), probes, seed)
        low = [*_scored(problem, stand_in, configs, seed, store, progress)]
        high = dict(zip(picks, _scored(problem, above, [configs[i] for i in picks], seed, store, progress)))
    else:
        for warning in unread_columns(results, problem.distributions):
            log.warning("%s", warning)
        outcomes = known_outcomes(results, problem.distributions)
        high = dict(enumerate(outcomes[i] for i in _picks(len(outcomes), probes, seed)))
        configs, picks = [outcome.config for outcome in high.values()], [*high]
        low = [_whole(o, results) for o in _scored(problem, stand_in, configs, seed, store, progress)]
    few = picks[: design.confirm]
    last = dict(zip(few, _scored(problem, whole, [configs[i] for i in few], seed, store, progress)))
    kept = [i for i, outcome in enumerate(low) if outcome.state != "pruned"]
    picks = [kept.index(i) for i in picks if i in kept and high[i].state != "pruned"]
    few = [kept.index(i) for i in few if i in kept and last[i].state != "pruned"]
    if len(picks) < FEWEST:
        raise InputError(
            f"{len(picks)} of {probes} probes are left, since pruned trials do not count; at least {FEWEST} "
            "are needed: take more probes, or do not prune"
        )
    scores, known = [low[i].score for i in kept], [high[kept[k]].score for k in picks]
    again = np.array([last[kept[k]].score for k in few])
    configs = [configs[i] for i in kept]
    columns, figures = problem.described(configs), np.array(scores)
    found = _judged(figures, picks, np.array(known), columns, configs, design)
    return _confirmed(found, figures, few, again, seed)


def _scored(
    problem: ObjectiveProblem,
    rung: ObjectiveRung,
    configs: Sequence[Config],
    seed: int,
    store: Store,
    progress: Progress,
) -> Iterator[Outcome]:
    """Outcomes on a rung, from the store or from new trials."""
    if not configs:
        return
    phase = progress.phase(f"trials on {rung.name}", len(configs))
    kept = [store.known(rung.name, 0, config) for config in configs]
    missing = [config for config, outcome in zip(configs, kept) if outcome is None]
    fresh = rung.run(missing, derive(seed, "trust", rung.name))
    for number, (config, outcome) in enumerate(zip(configs, kept), 1):
        if outcome is None:
            with store.begun(rung.name, 0, config):
                outcome = next(fresh)
            store.tell(rung.name, 0, outcome)
        if rung is not problem.rungs[-1]:  # full probes unheard are never pruned
            problem.tell(rung, outcome)
        phase.step(number)
        yield outcome


def _whole(outcome: Outcome, results: ListedTruth) -> Outcome:
    """A trial of a known configuration; refused if it read a parameter whose value is not known."""
    if missing := [name for name in outcome.told.get("params", {}) if name not in outcome.config]:
        raise InputError(
            f"{results.name} does not say {', '.join(missing)} of {outcome.config}; the objective reads it, "
            "so this result cannot be compared"
        )
    return outcome


def _picks(candidates: int, probes: int, seed: int) -> list[int]:
    order = numpy_stream(seed, "trust", "probes").permutation(candidates)
    return [int(i) for i in order[:probes]]


def _judged(
    scores: Array,
    picks: Sequence[int],
    known: Array,
    columns: Mapping[str, Array],
    configs: Sequence[Config],
    design: Design,
) -> Trust:
    """The statistics; failed candidates rank last, as they would in a search."""
    scores, known = _last(scores), _last(known)
    found = agreement(scores, picks, known, k=_kept_share(design.k, design.probes), seed=design.seed)
    dimensions = by_dimension(columns, configs, scores, picks, known, design.seed, design.groups)
    return dataclasses.replace(found, against=design.against, dimensions=dimensions)


def _confirmed(found: Trust, scores: Array, picks: Sequence[int], full: Array, seed: int) -> Trust:
    """What was measured against a shorter training, with its agreement with a few full ones.

    "trust" becomes "keep open" where the full trainings show that the agreement with them is below it.
    """
    if not len(picks):
        return found
    whole = agreement(_last(scores), picks, _last(full), k=found.k, seed=seed)
    found = dataclasses.replace(found, confirmed=whole)
    high = whole.interval[1]
    if found.verdict == "trust" and high is not None and high < LEVEL:
        why = f"it agrees with '{found.against}', but {whole.why}"
        return dataclasses.replace(found, verdict="keep open", why=why)
    return found


def _last(scores: Array) -> Array:
    """Scores with those of failed candidates below the worst."""
    fine = np.isfinite(scores)
    if not fine.any():
        raise InputError("all candidates failed, so there is nothing to compare")
    return np.where(fine, scores, scores[fine].min() - max(float(scores[fine].std()), 1e-9))
