"""Predicts the cost of aligning hypergradients, from trials of its parts on few examples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers._forecast import Line, lane_seconds, measured
from hcdc.condensers.validation._settings import Alignment
from hcdc.core.progress import duration
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.hypergrad import Solver, anchored_gradient, batched_best_response, batched_hypergradient, identity
from hcdc.spaces import Space, stack
from hcdc.tasks import Task
from hcdc.training import init_many, train_many

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


def alignment_cost(plan: Plan, config: Alignment, task: Task, device: torch.device | str) -> list[Expense]:
    """The cost of aligning hypergradients: trainings, linear systems, and seconds from a trial."""
    space, relaxed, small = plan.space, plan.relaxed(), plan.calibrated
    count, starts = config.point_count(space, plan.seed), config.starts(space, plan.seed)
    trained = count if config.response == "own" else 0
    if config.schedule == "sequential":
        told = (
            f"{config.repeats * starts} trajectories of {config.theta_steps} steps of the relaxed network on "
            "the copy, each with three linear systems and a step of S_val"
        )
    else:
        on_copy = f"on the copy ({_steps(small, plan.train_size)})"
        told = f"{count} trainings of the relaxed network {on_copy}"
        if trained:
            told = f"{count} full-data trainings of the relaxed network ({_steps(relaxed, len(task.train))})"
            told += f", as many {on_copy}"
        told += f", {count} x {space.dimension} linear systems and {config.steps} steps of S_val"
    parts = alignment_seconds(task, space, config, relaxed, small, plan.train_size, plan.val_size, starts)
    longest = max(parts, key=lambda name: parts[name])
    spent = sum(parts.values())
    told += f": about {duration(spent)}, most of it {longest} (estimate from a few examples)"
    return [Expense(told, spent, full_trainings=trained)]


def _steps(recipe: Recipe, size: int) -> str:
    return f"{recipe.steps} steps of {_batch(recipe, size)} examples"


def _batch(recipe: Recipe, size: int) -> int:
    """Examples per training step."""
    return min(recipe.batch, size) or size


def alignment_seconds(
    task: Task,
    space: Space,
    config: Alignment,
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
        trajectories: Number of trajectories.
    """
    if not task.mini_batches:
        return _counted(task, space, config, full, small, train_size, trajectories)
    trial = _Trial(task, space, config)
    whole, (train, val) = len(task.train), (task.train, task.val)
    if config.samples:
        train, val = task.sampled(config.nodes, config.fanouts, 0)
    nodes, of_copy = len(train), min(config.nodes or train_size, train_size)
    learned = min(config.val_batch or val_size, val_size)
    shown = max(_batch(full, whole), _batch(small, train_size))
    step, adjoint = trial.step(small, shown), trial.adjoint(max(nodes, train_size))
    val_step = trial.val_step(learned).at(learned)
    original = adjoint.at(nodes) + step.each * max(0, len(val) - nodes)
    if config.schedule == "sequential":
        theta, lam = _turns(config, trajectories)
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


def _turns(config: Alignment, trajectories: int) -> tuple[int, int]:
    """Steps on theta and on lambda in the sequential schedule."""
    turns = config.repeats * trajectories
    return turns * config.theta_steps, turns * math.ceil(config.theta_steps / config.lam_every)


def _counted(
    task: Task,
    space: Space,
    config: Alignment,
    full: Recipe,
    small: Recipe,
    train_size: int,
    trajectories: int,
) -> dict[str, float]:
    """Seconds if training uses whole sets: times training steps and expresses the rest in such steps.

    A linear system counts as its products plus two steps, a step on S_val as one per direction.
    """
    bound, device = config.bind(task, space), task.train.y.device
    train = task.sampled(config.nodes, config.fanouts, 0)[0] if config.samples else task.train
    original = lane_seconds(bound, space, train, device)
    copy = lane_seconds(bound, space, task.sample("train", train_size, 0), device)
    system, directions = config.iterations + 2, space.dimension
    if config.schedule == "sequential":
        theta, lam = _turns(config, trajectories)
        return {
            "training on the copy": theta * copy,
            "linear systems": theta * system * original + (2 * theta + lam) * system * copy,
            "steps of S_val": theta * directions * copy,
        }
    count = trajectories * config.points + config.holdout
    batch = min(config.batch, trajectories * config.points)
    parts = {
        "training on the copy": count * small.steps * copy,
        "linear systems": count * system * (original + directions * copy),
        "steps of S_val": config.steps * batch * directions * copy,
    }
    if config.response == "own":
        parts["training on the full data"] = count * full.steps * original
    return parts


class _Trial:
    """Seconds of single parts for as many lambdas as are processed at once (``lanes``)."""

    def __init__(self, task: Task, space: Space, config: Alignment):
        self.task, self.config, self.device = task, config, task.train.y.device
        self.bound, self.solver = config.bind(task, space), config.make_solver()
        self.examples = task.sample("train", task.least, 0)  # floating point, like synthetic ones
        self.lanes = 1 if config.schedule == "sequential" else task.lanes(task.train, self.device)
        configs = space.sample(self.lanes, numpy_stream(0, "estimate"))
        self.lam = stack(space, configs).to(self.device)
        keys = [(lane,) for lane in range(self.lanes)]
        self.params = init_many(self.bound, keys, 0, "estimate", self.device)

    def some(self, count: int) -> Any:
        """This many examples, repeating the same few."""
        index = (torch.arange(count) % len(self.examples)).to(self.device)
        return self.task.subset(self.examples, index)

    def step(self, recipe: Recipe, most: int) -> Line:
        """A training step."""
        one = dataclasses.replace(recipe, steps=1, batch=0)
        return self._measured(lambda some: train_many(self.bound, self.params, self.lam, some, one), most)

    def adjoint(self, most: int, solver: Solver | None = None) -> Line:
        """A hypergradient in adjoint form: one linear system."""
        solver, curvature = solver or self.solver, self.config.curvature
        return self._measured(
            lambda some: batched_hypergradient(
                self.bound, self.params, self.lam, some, some, solver, curvature
            ),
            most,
        )

    def response(self, adjoint: Line, count: int) -> float:
        """The best response on ``count`` examples: one system per direction of lambda, all at once."""
        if self.device.type == "cuda":
            return self._measured(
                lambda some: batched_best_response(
                    self.bound, self.params, self.lam, some, self.solver, self.config.curvature
                ),
                count,
            ).at(count)
        solve = max(0.0, adjoint.each - self.adjoint(count, identity()).each)
        right_side = solve / self.config.iterations  # one product with the mixed derivatives
        return adjoint.at(count) + self.lam.shape[1] * (solve + right_side) * count

    def val_step(self, most: int) -> Line:
        """A step on S_val, without its optimiser."""
        directions, distance = self.lam.shape[1], self.config.distance
        response = {
            name: p.new_zeros(1).expand(self.lanes, directions, *p.shape[1:])
            for name, p in self.params.items()
        }
        target, values = torch.ones_like(self.lam), torch.zeros(self.lanes, device=self.device)
        return self._measured(
            lambda some: anchored_gradient(
                self.bound, self.params, self.lam, response, target, values, some, distance
            ),
            most,
        )

    def _measured(self, work: Callable[[Any], object], most: int) -> Line:
        return measured(lambda count: work(self.some(count)), most, self.device)
