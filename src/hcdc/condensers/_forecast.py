"""What aligning images may take, from trials of its parts on few images."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hcdc.condensers._hcdc import HCDC
from hcdc.core.progress import duration, timed
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import Images
from hcdc.hypergrad import Solver, anchored_gradient, batched_best_response, batched_hypergradient, identity
from hcdc.spaces import Space, halves, stack
from hcdc.tasks import VALIDATED, ImageTask
from hcdc.training import init_many, train_many

if TYPE_CHECKING:
    from hcdc.condensers._condense import Plan

LONG, PATIENCE = 0.25, 2.0
"""Seconds of a trial that is long enough to go on from, and of all trials of one thing."""

MANY = 512
"""Images that a trial begins with on CUDA, which few would leave idle; on a CPU it begins with one."""


@dataclass(frozen=True)
class Line:
    """Seconds that grow with the number of images: ``base + each * count``."""

    base: float
    each: float

    def at(self, count: int) -> float:
        return self.base + self.each * count


def measured(work: Callable[[int], object], count: int, device: torch.device) -> Line:
    """Seconds of ``work`` from trials with more and more images: up to ``count``, or until these take most of
    the time or the trials too much of it."""
    first = taken = min(count, MANY) if device.type == "cuda" else 1
    work(first)  # what is paid once
    begun = spent = total = _seconds(work, first)
    while taken < count and total < PATIENCE and (taken == first or spent < max(LONG, 2 * begun)):
        taken = min(count, 4 * taken)
        spent = _seconds(work, taken)
        total += spent
    if taken == first:  # all of them at once, or one that takes too long
        return Line(spent, 0.0) if taken == count else Line(0.0, spent / taken)
    each = max(0.0, spent - begun) / (taken - first)
    return Line(max(0.0, spent - each * taken), each)


def _seconds(work: Callable[[int], object], count: int) -> float:
    """Seconds of one trial: the least of three, or of two where the first was long, since other work may
    disturb one of them; one that took all the patience counts alone."""
    found: list[float] = []
    while len(found) < 3 and (sum(found) < LONG or (len(found) == 1 and found[0] < PATIENCE)):
        with timed() as spent:
            work(count)
        found.append(spent[0])
    return min(found)


def made_once(make: Callable[[int], Callable[[], object]]) -> Callable[[int], object]:
    """Work for `measured` that is set up once for each number of images."""
    kept: dict[int, Callable[[], object]] = {}

    def work(count: int) -> object:
        if count not in kept:
            kept[count] = make(count)
        return kept[count]()

    return work


def starts(config: HCDC, space: Space, seed: int) -> int:
    """How many trajectories there are."""
    if space.candidates() is None:
        return config.trajectories
    return min(config.trajectories, len(halves(space, seed)[0]))


def point_count(config: HCDC, space: Space, seed: int) -> int:
    """Lambdas at which hypergradients are taken: points of trajectories, and those held out."""
    return starts(config, space, seed) * config.points + config.holdout


def alignment_words(task: ImageTask, space: Space, made: Plan, seed: int) -> str:
    """What aligning hypergradients takes: trainings and systems, and seconds from a trial."""
    config, relaxed, small = made.config, made.relaxed(task), made.calibrated
    assert config is not None, "hypergradients are aligned"
    count = point_count(config, space, seed)
    if config.schedule == "sequential":
        turns = config.repeats * starts(config, space, seed)
        told = (
            f"{turns} trajectories of {config.theta_steps} steps of the relaxed network on the copy, each "
            "with three linear systems and a step of S_val"
        )
    else:
        on_copy = f"on the copy ({_steps(small, made.train_size)})"
        told = f"{count} trainings of the relaxed network {on_copy}"
        if config.response == "own":
            told = f"{count} full-data trainings of the relaxed network ({_steps(relaxed, len(task.train))})"
            told += f", as many {on_copy}"
        told += f", {count} x {space.dimension} linear systems and {config.steps} steps of S_val"
    parts = alignment_seconds(
        task, space, config, relaxed, small, made.train_size, made.val_size, starts(config, space, seed)
    )
    longest = max(parts, key=lambda name: parts[name])
    total = duration(sum(parts.values()))
    return f"{told}: about {total}, most of it {longest} (estimate from a few images)"


def _steps(recipe: Recipe, size: int) -> str:
    return f"{recipe.steps} steps of {_batch(recipe, size)} images"


def alignment_seconds(
    task: ImageTask,
    space: Space,
    config: HCDC,
    full: Recipe,
    small: Recipe,
    train_size: int,
    val_size: int,
    trajectories: int,
) -> dict[str, float]:
    """Seconds of the parts of `learn_validation`, by name.

    Args:
        task: The task, on the device of the run.
        full, small: How the relaxed network is trained on the original data and on the copy.
        train_size, val_size: |S_train| and |S_val|.
        trajectories: How many.
    """
    trial = _Trial(task, space, config)
    whole = len(task.train)
    nodes, of_copy = config.nodes or whole, min(config.nodes or train_size, train_size)
    of_val = min(VALIDATED * nodes, len(task.val)) if config.nodes else len(task.val)
    learned = min(config.val_batch or val_size, val_size)
    shown = max(_batch(full, whole), _batch(small, train_size))
    step, adjoint = trial.step(small, shown), trial.adjoint(max(nodes, train_size))
    val_step = trial.val_step(learned).at(learned)
    original = adjoint.at(nodes) + step.each * max(0, of_val - nodes)
    if config.schedule == "sequential":
        theta = config.repeats * trajectories * config.theta_steps
        lam = config.repeats * trajectories * math.ceil(config.theta_steps / config.lam_every)
        return {
            "training on the copy": theta * step.at(train_size),
            "linear systems": theta * original + (2 * theta + lam) * adjoint.at(train_size),
            "steps of S_val": theta * val_step,
        }
    chunks = math.ceil((trajectories * config.points + config.holdout) / trial.lanes)
    batch = min(config.batch, trajectories * config.points)
    parts = {
        "training on the copy": chunks * small.steps * step.at(_batch(small, train_size)),
        "linear systems": chunks * (original + trial.response(adjoint, of_copy)),
        "steps of S_val": config.steps * batch / trial.lanes * val_step,
    }
    if config.response == "own":
        parts["training on the full data"] = chunks * full.steps * step.at(_batch(full, whole))
    return parts


def _batch(recipe: Recipe, size: int) -> int:
    """Images of a training step."""
    return min(recipe.batch, size) or size


class _Trial:
    """Seconds of single parts for as many lambdas as are worked on at once (``lanes``)."""

    def __init__(self, task: ImageTask, space: Space, config: HCDC):
        self.task, self.config, self.device = task, config, task.train.y.device
        self.bound, self.solver = config.bind(task, space), config.make_solver()
        self.lanes = 1 if config.schedule == "sequential" else task.lanes(task.train, self.device)
        configs = space.sample(self.lanes, numpy_stream(0, "estimate"))
        self.lam = stack(space, configs).to(self.device)
        keys = [(lane,) for lane in range(self.lanes)]
        self.params = init_many(self.bound, keys, 0, "estimate", self.device)

    def some(self, count: int) -> Images:
        """So many images, the first of T_train again where it has fewer."""
        return self.task.chosen("train", torch.arange(count) % len(self.task.train))

    def step(self, recipe: Recipe, most: int) -> Line:
        """A training step."""
        one = dataclasses.replace(recipe, steps=1, batch=0)
        return self._measured(lambda images: train_many(self.bound, self.params, self.lam, images, one), most)

    def adjoint(self, most: int, solver: Solver | None = None) -> Line:
        """A hypergradient by its adjoint form: one linear system."""
        solver, curvature = solver or self.solver, self.config.curvature
        return self._measured(
            lambda images: batched_hypergradient(
                self.bound, self.params, self.lam, images, images, solver, curvature
            ),
            most,
        )

    def response(self, adjoint: Line, count: int) -> float:
        """The best response at so many images, a system for each of the H directions of lambda at once."""
        if self.device.type == "cuda":
            return self._measured(
                lambda images: batched_best_response(
                    self.bound, self.params, self.lam, images, self.solver, self.config.curvature
                ),
                count,
            ).at(count)
        solve = max(0.0, adjoint.each - self.adjoint(count, identity()).each)
        right_side = solve / self.config.iterations  # one product, of the mixed derivatives
        return adjoint.at(count) + self.lam.shape[1] * (solve + right_side) * count

    def val_step(self, most: int) -> Line:
        """A step of S_val, without its optimiser."""
        directions, distance = self.lam.shape[1], self.config.distance
        response = {
            name: p.new_zeros(1).expand(self.lanes, directions, *p.shape[1:])
            for name, p in self.params.items()
        }
        target, values = torch.ones_like(self.lam), torch.zeros(self.lanes, device=self.device)
        return self._measured(
            lambda images: anchored_gradient(
                self.bound, self.params, self.lam, response, target, values, images, distance
            ),
            most,
        )

    def _measured(self, work: Callable[[Images], object], most: int) -> Line:
        return measured(lambda count: work(self.some(count)), most, self.device)
