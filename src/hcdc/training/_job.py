"""Jobs (what to train and score) and their results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
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
"""Maps a labelled set to the outputs ``[R, m, classes]`` of one candidate trained R times; differentiable."""


@dataclass(frozen=True)
class Result:
    """The scores of one candidate, averaged over the recipe's seeds.

    Attributes:
        values: Mean ``"PART.loss"`` and ``"PART.score"`` by name; a non-finite loss is NaN.
        seconds: Total seconds spent on this candidate (its share of the batch it trained in).
        part_seconds: The seconds within ``seconds`` that went into scoring each part.
        repeats: The same values per initialisation, ``[R]`` each.
    """

    values: dict[str, float]
    seconds: float
    part_seconds: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether all values are finite, i.e. the candidate did not diverge."""
        return all(map(math.isfinite, self.values.values()))

    def seconds_for(self, part: str) -> float:
        """Seconds for training and for scoring only ``part``."""
        return self.seconds - sum(s for name, s in self.part_seconds.items() if name != part)


@dataclass(frozen=True)
class Job:
    """Candidates, their training sets, and the parts to score them on.

    Attributes:
        task: An unbound or bound task; the engine binds it to the space.
        space: The search space.
        configs: The candidates.
        trains: Training sets of equal size, on ``device``.
        recipe: How to train; a candidate may override some of it.
        parts: Labelled sets to score on, by name: one mapping for all training sets, or one for each.
        seed, role: Determine the initialisations and batches.
        device: Where to train.
        checkpoint: Where trained parameters are saved, one file per candidate (``FILE.networkK``). Saved
            candidates are not retrained. Its key stands for ``trains``, ``seed`` and ``role``.
        phase: Advances one step per finished candidate.
        on_batch: Called with each finished batch of results on the first training set. Candidates are grouped
            by recipe, so batches may not follow the order of ``configs``.
        keep_diverged: Report a non-finite loss as NaN instead of raising an error.
        own: What the recipe of each candidate changes; empty if nothing. Set by `group_by_recipe`.
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
    own: Sequence[Mapping[str, Any]] = ()

    @property
    def own_parts(self) -> list[Mapping[str, Any]]:
        """The parts to score on, one mapping per training set."""
        own = [self.parts] * len(self.trains) if isinstance(self.parts, Mapping) else list(self.parts)
        assert len(own) == len(self.trains), "each training set has its parts"
        return own

    def some(self, numbers: Sequence[int]) -> Job:
        """This job, restricted to the candidates with these numbers."""
        own = [self.own[k] for k in numbers] if self.own else ()
        return dataclasses.replace(self, configs=[self.configs[k] for k in numbers], own=own)

    def recipe_of(self, number: int) -> Recipe:
        """The recipe of one candidate."""
        return dataclasses.replace(self.recipe, **self.own[number]) if self.own else self.recipe


def group_by_recipe(
    job: Job,
    differences: Sequence[Mapping[str, Any]],
    apart: Collection[str] = (),
    shapes: Sequence[str] = (),
) -> list[tuple[list[int], Job]]:
    """Group candidates that can train together; returns their numbers and the job with their recipe.

    Args:
        job: All candidates.
        differences: What each candidate changes: settings of `Recipe`, or ``"epochs"``. Other names are left
            for the user's model.
        apart: Settings in which candidates of a group may differ; they go into ``own``.
        shapes: Candidates of a group must have equal shapes; empty if it does not matter.
    """
    found: dict[str, tuple[list[int], dict[str, Any]]] = {}
    own: list[dict[str, Any]] = []
    for k, given in enumerate(differences):
        changed = _settings(job, {name: value for name, value in given.items() if name in TRAINING})
        own.append({name: changed.pop(name) for name in apart if name in changed})
        key = content_key({"shared": changed, "own": sorted(own[-1]), "shape": shapes[k] if shapes else ""})
        found.setdefault(key, ([], changed))[0].append(k)
    for config, given in zip(job.configs, differences):
        if "weight_decay" in given:
            bound = job.task.bind(job.space, None if job.space.batched else config)
            if bound.by_recipe(job.recipe) is bound:
                raise InputError(
                    f"hyperparameter 'weight_decay': a {bound.kind} task has no weight decay to change"
                )
            break
    groups = [(numbers, _with_recipe(job, changed)) for numbers, changed in found.values()]
    return [
        (numbers, dataclasses.replace(part, own=own) if own[numbers[0]] else part) for numbers, part in groups
    ]


def _settings(job: Job, changed: dict[str, Any]) -> dict[str, Any]:
    """Changes in settings of a recipe: epochs become steps, and ``lr_end`` stays below ``lr``.

    Another batch size alone keeps the number of epochs, so it changes the number of steps.
    """
    settings = dict(changed)
    batch, count = settings.get("batch", job.recipe.batch), len(job.trains[0])
    if "epochs" in settings:
        settings["steps"] = settings.pop("epochs") * max(1, count // (batch or count))
    elif "batch" in settings and "steps" not in settings:
        usual, own = (min(size or count, count) for size in (job.recipe.batch, batch))
        settings["steps"] = max(1, round(job.recipe.steps * usual / own))
    if "lr" in settings:
        settings["lr_end"] = min(settings.get("lr_end", job.recipe.lr_end), settings["lr"])
    return settings


def _with_recipe(job: Job, changed: dict[str, Any]) -> Job:
    """The job with a changed recipe; a changed weight decay also goes into the task's loss."""
    if not changed:
        return job
    recipe = dataclasses.replace(job.recipe, **changed)
    task = job.task.by_recipe(recipe) if "weight_decay" in changed else job.task
    return dataclasses.replace(job, recipe=recipe, task=task)
