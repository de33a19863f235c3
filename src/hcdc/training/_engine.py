"""Engines train and score the candidates of a job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config
from hcdc.core.errors import unknown_name
from hcdc.core.progress import Phase
from hcdc.core.recipe import Recipe
from hcdc.networks import Params
from hcdc.spaces import Candidate, Space
from hcdc.tasks import Task
from hcdc.training._job import Job, Predictor, Result, group_by_recipe

Groups = list[Params]
"""Parameters of one candidate trained R times, one entry per group of repeats that trained together."""


class Engine(ABC):
    """Trains and scores candidates. A subclass says how to do this for candidates that can train together.

    ``made``, ``parameters``, ``predictors`` and ``scored`` receive a job whose candidates share one recipe,
    except for the settings of ``apart``, which are in the job's ``own``.
    """

    def apart(self, job: Job) -> Collection[str]:
        """Recipe settings in which candidates that train together may differ."""
        return ()

    def shapes(self, job: Job, candidates: Sequence[Candidate]) -> Sequence[str]:
        """What else candidates must agree in to train together; empty if nothing."""
        return ()

    def groups(self, job: Job) -> list[tuple[list[int], Job]]:
        """Group the candidates that can train together."""
        sizes = job.task.features, job.task.num_classes or 1
        candidates = [job.space.candidate(config, *sizes) for config in job.configs]
        differences = [candidate.recipe for candidate in candidates]
        return group_by_recipe(job, differences, self.apart(job), self.shapes(job, candidates))

    def train_at_once(self, job: Job) -> int:
        """How many candidates to train before saving their parameters."""
        return 1

    def score_at_once(self, job: Job) -> int:
        """How many candidates to train and score before saving their results."""
        return 1

    @abstractmethod
    def made(self, job: Job, config: Config) -> Any:
        """Build what is trained for one candidate: a bound task or a network."""

    @abstractmethod
    def parameters(self, job: Job, made: Sequence[Any]) -> list[Groups]:
        """Train the candidates, built by ``made``, on the job's single training set; returns parameters."""

    @abstractmethod
    def predictors(self, job: Job, made: Sequence[Any], trained: Sequence[Groups]) -> list[Predictor]:
        """Turn trained candidates into functions of a labelled set."""

    @abstractmethod
    def scored(self, job: Job) -> list[list[Result]]:
        """Train and score the candidates: results by training set and candidate."""

    def train(self, job: Job) -> list[Predictor]:
        """Train every candidate for each seed of its recipe; returns one predictor per candidate."""
        assert len(job.trains) == 1, "predictors are trained on one set"
        groups = self.groups(job)
        own = {k: part for numbers, part in groups for k in numbers}
        made = [self.made(own[k], config) for k, config in enumerate(job.configs)]
        store, kind = job.checkpoint or Checkpoint(None), torch.device(job.device).type
        places = [store.child(f"network{k}") for k in range(len(made))]
        marks = [
            {
                "candidate": job.task.identity(job.space, config),
                "recipe": own[k].recipe_of(k).as_dict(),
                "device": kind,
            }
            for k, config in enumerate(job.configs)
        ]  # the memory layout of parameters depends on the device type
        trained = [_known(place, mark, job.device) for place, mark in zip(places, marks)]
        done = sum(map(bool, trained))
        _begin(job.phase, done)
        if done == len(made):
            _tell(job.phase, done)
        for numbers, part in groups:
            missing = [k for k in numbers if not trained[k]]
            for batch in _batches(missing, self.train_at_once(part)):
                for k, found in zip(batch, self.parameters(part.some(batch), [made[k] for k in batch])):
                    trained[k] = found
                    flat = {f"{g}/{name}": p for g, group in enumerate(found) for name, p in group.items()}
                    places[k].save(flat, {"mark": marks[k]})
                done += len(batch)
                _tell(job.phase, done)
        predicting: dict[int, Predictor] = {}
        for numbers, part in groups:
            some = ([each[k] for k in numbers] for each in (made, trained))
            predicting.update(zip(numbers, self.predictors(part.some(numbers), *some)))
        return [predicting[k] for k in range(len(made))]

    def score(self, job: Job) -> list[list[Result]]:
        """Train every candidate on every training set and score it: results by training set and candidate.

        Initialisations depend only on (seed, role) and the candidate or repeat, so batching does not change
        a result.
        """
        results: list[dict[int, Result]] = [{} for _ in job.trains]
        _begin(job.phase, 0)
        for numbers, part in self.groups(job):
            for batch in _batches(numbers, self.score_at_once(part)):
                for done, found in zip(results, self.scored(part.some(batch))):
                    done.update(zip(batch, found))
                if job.on_batch is not None:
                    job.on_batch([(job.configs[k], results[0][k]) for k in batch])
                _tell(job.phase, len(results[0]))
        return [[done[k] for k in range(len(job.configs))] for done in results]


def _batches(numbers: Sequence[int], at_once: int) -> list[list[int]]:
    return [list(numbers[start : start + at_once]) for start in range(0, len(numbers), at_once)]


def _begin(phase: Phase | None, done: int) -> None:
    """Start a phase with some candidates already done."""
    if phase is not None:
        phase.first_step = done


def _tell(phase: Phase | None, done: int) -> None:
    if phase is not None:
        phase.step(done)


def _known(place: Checkpoint, mark: Mapping[str, Any], device: torch.device | str) -> Groups:
    """Load one candidate's saved parameters; empty if there are none or they belong to another candidate."""
    saved = place.load()
    if saved is None or saved[1]["mark"] != mark:
        return []
    groups: dict[int, Params] = {}
    for key, p in saved[0].items():
        number, name = key.split("/", 1)
        groups.setdefault(int(number), {})[name] = p.to(device, copy=True)  # a copy, not the mapped file
    return [groups[number] for number in sorted(groups)]


ENGINES: dict[str, Engine] = {}
"""Engines by name; a task names its engine."""


def register_engine(name: str) -> Callable[[type[Engine]], type[Engine]]:
    """Register an engine under the name that tasks give as ``engine``."""

    def keep(made: type[Engine]) -> type[Engine]:
        ENGINES[name] = made()
        return made

    return keep


def engine_of(task: Task) -> Engine:
    """The engine that trains a task's candidates."""
    if task.engine not in ENGINES:
        raise unknown_name(f"engine of the {task.kind} task", task.engine, ENGINES)
    return ENGINES[task.engine]


def train(job: Job) -> list[Predictor]:
    """Train the candidates of a job on its training set: one predictor per candidate."""
    return engine_of(job.task).train(job)


def score(job: Job) -> list[list[Result]]:
    """Train the candidates of a job and score them: results by training set and candidate."""
    return engine_of(job.task).score(job)


def predictors(
    task: Task, space: Space, configs: Sequence[Config], train_set: Any, recipe: Recipe, **more: Any
) -> list[Predictor]:
    """`train` on one training set; ``more`` sets further fields of `Job`."""
    return train(Job(task, space, configs, [train_set], recipe, **more))


def run_candidates(
    task: Task,
    space: Space,
    configs: Sequence[Config],
    train_set: Any,
    parts: Mapping[str, Any],
    recipe: Recipe,
    seed: int,
    role: str,
    device: torch.device | str,
    on_batch: Callable[[list[tuple[Config, Result]]], None] | None = None,
    keep_diverged: bool = False,
) -> list[Result]:
    """`score` on one training set."""
    more: dict[str, Any] = {"on_batch": on_batch, "keep_diverged": keep_diverged}
    return score(Job(task, space, configs, [train_set], recipe, parts, seed, role, device, **more))[0]
