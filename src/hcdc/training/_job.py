"""What is to be trained and scored, and what comes of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hcdc.core.checkpoint import Checkpoint, content_key
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.progress import Phase
from hcdc.core.recipe import Recipe
from hcdc.spaces import TRAINING, Space
from hcdc.tasks import Task

Predictor = Callable[[Any], Tensor]
"""Outputs ``[R, m, classes]`` of one candidate, trained R times, on a labelled set; differentiable in its
examples."""


@dataclass(frozen=True)
class Result:
    """What one candidate reached, averaged over the recipe's seeds.

    Attributes:
        values: Figures by name, ``"PART.loss"`` and ``"PART.score"``; a loss that is not finite is NaN.
        seconds: Seconds spent on this candidate in all (its share of the batch it was trained in).
        part_seconds: Of these, the seconds of scoring each part.
        repeats: The same figures per initialisation, ``[R]`` each.
    """

    values: dict[str, float]
    seconds: float
    part_seconds: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether all figures are finite: those of a candidate that diverged are not."""
        return all(map(math.isfinite, self.values.values()))

    def seconds_for(self, part: str) -> float:
        """Seconds of training and of scoring ``part`` alone."""
        return self.seconds - sum(s for name, s in self.part_seconds.items() if name != part)


@dataclass(frozen=True)
class Job:
    """Candidates, the training sets they are trained on, and the parts they are scored on.

    Attributes:
        task: An unbound or bound task; the engine binds it to the space.
        space: The search space.
        configs: The candidates.
        trains: Training sets of one size, on ``device``.
        recipe: How candidates are trained, but for what a candidate itself changes.
        parts: Labelled sets by name to score on, for all training sets or one mapping for each.
        seed, role: Of initialisations and batches.
        device: Where to train.
        checkpoint: Where trained parameters are kept, one file per candidate (``FILE.networkK``): what is
            there is not trained again. Its key stands for ``trains``, ``seed`` and ``role``.
        phase: Gets a step per candidate as batches finish.
        on_batch: Called with each finished batch of results on the first training set; candidates of one
            recipe come one after the other, so not always in the order of ``configs``.
        keep_diverged: A candidate whose loss is not finite has NaN for it; otherwise it stops with a
            diagnosis.
    """

    task: Task
    space: Space
    configs: Sequence[Config]
    trains: Sequence[Any]
    recipe: Recipe
    parts: Mapping[str, Any] | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    role: str = "train"
    device: torch.device | str = "cpu"
    checkpoint: Checkpoint | None = None
    phase: Phase | None = None
    on_batch: Callable[[list[tuple[Config, Result]]], None] | None = None
    keep_diverged: bool = False

    @property
    def own_parts(self) -> list[Mapping[str, Any]]:
        """The parts to score on, one mapping per training set."""
        own = [self.parts] * len(self.trains) if isinstance(self.parts, Mapping) else list(self.parts)
        assert len(own) == len(self.trains), "each training set has its parts"
        return own

    def some(self, numbers: Sequence[int]) -> Job:
        """This job for some of its candidates."""
        return dataclasses.replace(self, configs=[self.configs[k] for k in numbers])


def group_by_recipe(job: Job, differences: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], Job]]:
    """Candidates that train by one recipe: their numbers, and the job with that recipe.

    Args:
        job: All candidates.
        differences: What each candidate's recipe changes: settings of `Recipe`, or ``"epochs"``. Other names
            are for the user's model to read.
    """
    found: dict[str, tuple[list[int], dict[str, Any]]] = {}
    for k, given in enumerate(differences):
        changed = {name: value for name, value in given.items() if name in TRAINING}
        found.setdefault(content_key(changed), ([], changed))[0].append(k)
    return [(numbers, _with_recipe(job, changed)) for numbers, changed in found.values()]


def _with_recipe(job: Job, changed: dict[str, Any]) -> Job:
    """The job with a changed recipe, weight decay in the task's loss too."""
    if not changed:
        return job
    settings = dict(changed)
    batch, count = settings.get("batch", job.recipe.batch), len(job.trains[0])
    if "epochs" in settings:
        settings["steps"] = settings.pop("epochs") * max(1, count // (batch or count))
    if "lr" in settings:
        settings["lr_end"] = min(job.recipe.lr_end, settings["lr"])
    recipe = dataclasses.replace(job.recipe, **settings)
    task = job.task.by_recipe(recipe) if "weight_decay" in changed else job.task
    if "weight_decay" in changed and task is job.task:
        raise InputError(f"hyperparameter 'weight_decay': a {task.kind} task has no weight decay to change")
    return dataclasses.replace(job, recipe=recipe, task=task)
