"""`hcdc.trust`: how far to believe the ranking of a stand-in, from a few full trainings."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from hcdc.evaluation.trust import FEWEST as ENOUGH
from hcdc.evaluation.trust import LEVEL, agreement
from hcdc.search._audits import by_dimension
from hcdc.search._dimensions import described
from hcdc.search._executor import Objective
from hcdc.search._groups import Term, check_groups, parse_groups
from hcdc.search._objective import ObjectiveProblem, ObjectiveRung
from hcdc.search._prepare import loaded_copy
from hcdc.search._problem import Array, Outcome, Rung
from hcdc.search._store import CODE, Store, open_store
from hcdc.search._task_problem import TaskProblem
from hcdc.spaces import from_spec
from hcdc.truth import TrainedTruth, Truth, check_truth, full_scores

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
            data set; ``"subset:0.1"`` by default.
        probes: Trainings to compare with; 16 or more are needed for "trust", and 60 tell much per dimension.
        against: What stands for the truth: ``"full"``, or a short training such as ``"short:0.25"``, of which
            more can be paid.
        confirm: So many probes are trained in full too, if ``against`` is not ``"full"``; ``found.confirmed``
            says how far the stand-in agrees with them.
        groups: Combinations of hyperparameters to measure like single ones, e.g.
            ``{"step": "log lr - log batch"}``.
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
    design = Design(probes, against, confirm, parse_groups(groups), seed)
    progress = progress or usual_progress()
    if full is None:
        if not isinstance(subject, (CondensedDataset, str, os.PathLike)):
            raise InputError("full is missing: pass hcdc.FullData(train, val) with an objective")
        if storage is not None:
            raise InputError("storage belongs to an objective; the results of a copy are kept in its cache")
        if rung is not None:
            raise InputError("rung belongs to an objective; leave it out for a condensed data set")
        return _of_copy(loaded_copy(subject), design, truth, device, cache, progress)
    if isinstance(subject, (CondensedDataset, str, os.PathLike)):
        raise InputError("full belongs to an objective; leave it out for a condensed data set")
    store = Store() if storage is None else open_store(storage)
    return _of_objective(subject, full, USUAL_RUNG if rung is None else rung, design, store, progress)


@dataclass(frozen=True)
class Design:
    """How a stand-in is measured; see `trust`."""

    probes: int
    against: str = "full"
    confirm: int = 0
    groups: Mapping[str, Sequence[Term]] = field(default_factory=dict)
    seed: int = 0


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


def trust_trainings(probes: int, against: str = "full", confirm: int = 0) -> int:
    """How many full trainings `trust` takes as long as, for a copy."""
    check_probes(probes, against, confirm)
    if against == "full":
        return probes
    return max(1, math.ceil(probes * _share(against)) + confirm)


def _share(against: str) -> float:
    """The share of the steps of a short training on a task."""
    share = float(against.removeprefix("short:"))
    if not 0 < share < 1:
        raise InputError(f"against '{against}': for a copy, give a share of the steps, e.g. 'short:0.25'")
    return share


def trust_seconds(
    objective: Objective,
    full: FullData,
    rung: str | CondensedDataset,
    probes: int,
    seed: int = 0,
    against: str = "full",
    confirm: int = 0,
) -> float:
    """Seconds that `trust` should take for an objective, from a few timed trials."""
    check_probes(probes, against, confirm)
    problem = _problem(objective, full, rung, against)
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
    between = () if design.against == "full" else (design.against,)
    for name in between:
        _share(name)
    rungs = TaskProblem(task, space, between, [small], recipe=recipe, device=device, seed=seed).rungs
    scores = _trained(rungs[0], configs, "candidates on the copy", seed, progress)
    source = truth or TrainedTruth(
        task, space, recipe, device=device, cache=cache, progress=progress,
        fingerprint=str(small.meta["data"].get("fingerprint")),
    )  # fmt: skip

    def in_full(some: Sequence[int]) -> Array:
        return np.array(full_scores(source.results([configs[i] for i in some]), "val"))

    columns = described(configs, space)
    if not between:
        return _judged(scores, picks, in_full(picks), columns, configs, design)
    chosen = [configs[i] for i in picks]
    known = _trained(rungs[1], chosen, f"probes on {design.against}", seed, progress)
    found = _judged(scores, picks, known, columns, configs, design)
    few = picks[: design.confirm]
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
    store: Store,
    progress: Progress,
) -> Trust:
    seed, probes = design.seed, design.probes
    problem = _problem(objective, full, rung, design.against)
    spec = {**problem.spec(), CODE: problem.code, "seed": seed, "measured": "trust"}
    store.open(spec, problem.distributions)
    problem.scout(store, seed)
    check_groups(design.groups, problem.distributions)
    _check_rungs(problem, design.against)
    if len(problem.rungs) < 2:
        raise InputError(f"rung '{rung}': not a stand-in")
    stand_in, above, whole = problem.rungs[0], problem.rungs[1], problem.rungs[-1]
    configs = problem.propose(PER_PROBE * probes, numpy_stream(seed, "trust"))
    picks = _picks(len(configs), probes, seed)
    low = _scored(problem, stand_in, configs, seed, store, progress)
    high = dict(zip(picks, _scored(problem, above, [configs[i] for i in picks], seed, store, progress)))
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
) -> list[Outcome]:
    """Outcomes on a rung, from the store or from new trials."""
    found: list[Outcome] = []
    if not configs:
        return found
    phase = progress.phase(f"trials on {rung.name}", len(configs))
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
    design: Design,
) -> Trust:
    """The statistics; failed candidates rank last, as they would in a search."""
    scores, known = _last(scores), _last(known)
    found = agreement(scores, picks, known, seed=design.seed)
    dimensions = by_dimension(columns, configs, scores, picks, known, design.seed, design.groups)
    return dataclasses.replace(found, against=design.against, dimensions=dimensions)


def _confirmed(found: Trust, scores: Array, picks: Sequence[int], full: Array, seed: int) -> Trust:
    """What was measured against a shorter training, with its agreement with a few full ones.

    "trust" becomes "keep open" where the full trainings show that the agreement with them is below it.
    """
    if not len(picks):
        return found
    whole = agreement(_last(scores), picks, _last(full), seed=seed)
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
