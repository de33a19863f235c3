"""Predicts the seconds of work from short trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hcdc.condensers._cost import Expense
from hcdc.core.progress import duration, timed
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Space, stack
from hcdc.tasks import Task
from hcdc.training import Job, init_many, score, train_many

LONG, PATIENCE = 0.25, 2.0
"""Seconds of a trial long enough to extrapolate from, and of all trials of one thing."""

MANY = 512
"""Examples in the first trial on CUDA, where fewer would leave it idle; on a CPU it starts with one."""

QUICK = 0.02
"""A two-lane step faster than this many seconds says little about a step of many lanes."""

FEW = "(estimate from a few steps)"
"""The source of predicted seconds, for the terminal."""


@dataclass(frozen=True)
class Line:
    """Seconds that grow with the number of examples: ``base + each * count``."""

    base: float
    each: float

    def at(self, count: int) -> float:
        return self.base + self.each * count


def measured(work: Callable[[int], object], count: int, device: torch.device) -> Line:
    """Seconds of ``work``, from trials with more and more examples.

    Trials end at ``count`` examples, when the examples take most of the time, or when trials take too long.
    """
    first = taken = min(count, MANY) if device.type == "cuda" else 1
    work(first)  # one-off costs
    begun = spent = total = _seconds(work, first)
    while taken < count and total < PATIENCE and (taken == first or spent < max(LONG, 2 * begun)):
        taken = min(count, 4 * taken)
        spent = _seconds(work, taken)
        total += spent
    if taken == first:  # only one trial: it had all examples, or took too long
        return Line(spent, 0.0) if taken == count else Line(0.0, spent / taken)
    each = max(0.0, spent - begun) / (taken - first)
    return Line(max(0.0, spent - each * taken), each)


def _seconds(work: Callable[[int], object], count: int) -> float:
    """Seconds of one trial: the best of three, or of two if the first was long.

    Other work may disturb one of them. A trial that used up all the patience is not repeated.
    """
    found: list[float] = []
    while len(found) < 3 and (sum(found) < LONG or (len(found) == 1 and found[0] < PATIENCE)):
        with timed() as spent:
            work(count)
        found.append(spent[0])
    return min(found)


def made_once(make: Callable[[int], Callable[[], object]]) -> Callable[[int], object]:
    """Work for `measured` that is set up once per number of examples."""
    kept: dict[int, Callable[[], object]] = {}

    def work(count: int) -> object:
        if count not in kept:
            kept[count] = make(count)
        return kept[count]()

    return work


def lane_seconds(task: Task, space: Space, data: Any, device: torch.device | str) -> float:
    """Seconds per lane of a training step on ``data``, if candidates train in lanes.

    Measured on a step of two lanes or, if that is quick, of as many as fit.

    Args:
        task: A bound task.
    """
    for lanes in sorted({2, max(2, task.lanes(task.train, device))}):
        configs = space.sample(lanes, numpy_stream(0, "estimate"))
        lam = stack(space, configs).to(device)
        params = init_many(task, [(lane,) for lane in range(len(configs))], 0, "estimate", device)
        found = []
        for _ in range(3):  # the first has one-off costs; other work may disturb another
            with timed() as spent:
                train_many(task, params, lam, data, Recipe(steps=1))
            found.append(spent[0])
        if min(found) > QUICK:
            break
    return min(found) / len(configs)


def training_seconds(
    task: Task, space: Space, recipe: Recipe, device: torch.device | str, train_size: int | None = None
) -> float:
    """Seconds to train one candidate by ``recipe``, extrapolated from a few steps.

    Uses all training examples, or ``train_size`` of them. On CUDA it is too high for images, since many
    networks train side by side.
    """
    task = task.to(device)
    train = task.train if train_size is None else task.sample("train", train_size, 0)
    configs = space.sample(2, numpy_stream(0, "estimate"))
    if task.engine == "lanes":
        bound = task.bind(space, None if space.batched else configs[0])
        return recipe.seeds * recipe.steps * lane_seconds(bound, space, train, device)
    parts = {"val": task.pool(task.least, 0)}

    def seconds(steps: int) -> float:
        short = dataclasses.replace(recipe, steps=steps, seeds=1, lr=1e-6, lr_end=0.0)  # never diverges
        job = Job(task, space, configs, [train], short, parts, role="estimate", device=device)
        with timed() as spent:
            score(job)
        return spent[0] / len(configs)

    few = 50 if torch.device(device).type == "cuda" else 3
    seconds(1)  # one-off costs
    least = seconds(1)
    step = max(0.0, seconds(1 + few) - least) / few
    return recipe.seeds * (least + step * (recipe.steps - 1))


def full_trainings(count: int, seconds: float, cached: int | None = None) -> Expense:
    """The cost of training ``count`` candidates on the full data.

    Args:
        count: How many are trained.
        seconds: What one of them takes, see `training_seconds`.
        cached: Candidates besides these whose results the cache has; None if it was not asked.
    """
    if cached and not count:
        return Expense(f"all {cached} full-data results are cached", 0.0)
    spent = count * seconds
    more = ", less those that the cache knows" if cached is None else f", {cached} more are cached"
    told = f"{count} full-data trainings{more if cached != 0 else ''}"
    return Expense(f"{told}: about {duration(spent)} {FEW}", spent, full_trainings=count)
