"""Hypergradient descent on lambda."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.core.settings import setting
from hcdc.hypergrad import CURVATURES, SOLVERS, get_solver, hypergradient
from hcdc.networks import Params
from hcdc.search.searchers._base import SearcherSettings, TaskSearcher
from hcdc.search.searchers._registry import register_searcher
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training import init_many, train_many

DRAWN = 64
"""Configurations that measure the extent of lambda."""


@dataclass(frozen=True)
class HypergradientSettings(SearcherSettings):
    """Settings of `HypergradientDescent`.

    Attributes:
        lr: Step of Adam on lambda, as a share of the extent of each coordinate.
        restart: Steps of a descent before a new one begins.
        steps: Training steps of theta at each lambda; 0 takes the task's recipe.
        solver, curvature: How the linear system is solved, see `hcdc.hypergrad`.
    """

    name = "hypergradient"

    lr: float = setting(0.1, above=0)
    restart: int = setting(20, least=1)
    steps: int = setting(0, least=0, note="0 takes the task's recipe")
    solver: str = setting("conjugate_gradient", choices=tuple(SOLVERS))
    curvature: str = setting("gauss_newton", choices=tuple(CURVATURES))


@register_searcher
class HypergradientDescent(TaskSearcher):
    """Descend the validation loss along its hypergradient in lambda, eq. (IFT), from random starts.

    Each ask returns the configuration nearest to the current lambda. Between asks theta is trained on, from
    where it is, and lambda moves one step. Scores are recorded but not used.
    """

    name = "hypergradient"
    Settings = HypergradientSettings
    settings: HypergradientSettings

    def __init__(
        self, space: Space, seed: int = 0, *, task: Task, train: Any = None, val: Any = None, **settings: Any
    ):
        super().__init__(space, seed, task=task, train=train, val=val, **settings)
        full, small = task.recipes(len(self.train), 10, task.real_metric)
        self._recipe: Recipe = small if self.on_copy else task.relaxed_recipe(full, small)
        if self.settings.steps:
            self._recipe = Recipe.from_dict({**self._recipe.as_dict(), "steps": self.settings.steps})
        self._bound = task.by_recipe(self._recipe).bind(space)
        drawn = space.sample(DRAWN, numpy_stream(seed, "search", self.name, "extent"))
        points = np.stack([space.encode(config).numpy() for config in drawn])
        self._extent = torch.from_numpy(np.ptp(points, axis=0)).to(self.device)
        self._solver = get_solver(self.settings.solver)
        self._at, self._descent = -1, _Descent(torch.zeros(0), {})

    def propose(self) -> Config:
        wanted = self.number
        if self._at // self.settings.restart != wanted // self.settings.restart:
            self._at = wanted // self.settings.restart * self.settings.restart - 1
        while self._at < wanted:
            self._at += 1
            if self._at % self.settings.restart == 0:
                self._start(self._at // self.settings.restart)
            else:
                self._step()
        return self.space.decode(self._descent.lam.cpu())

    def _start(self, descent: int) -> None:
        """A random lambda and fresh parameters."""
        rng = numpy_stream(self.seed, "search", self.name, descent)
        lam = self.space.encode(self.space.sample(1, rng)[0]).to(self.device)
        theta = init_many(self._bound, [(descent,)], self.seed, "search", self.device)
        self._descent = _Descent(lam, theta)

    def _step(self) -> None:
        """Train theta at lambda, and move lambda by one step of Adam."""
        now = self._descent
        like = next(iter(now.theta.values()))
        lam = now.lam.to(like.dtype)
        now.theta = train_many(self._bound, now.theta, lam[None], self.train, self._recipe)
        self._bound.prepare(self.val)
        one = {name: p[0] for name, p in now.theta.items()}
        settings = self._solver, self.settings.curvature
        found = hypergradient(self._bound, one, lam, self.train, self.val, *settings).total
        now.lam = self.space.project(now.move(found.double() * self._extent, self.settings.lr, self._extent))


class _Descent:
    """One descent: lambda ``[H]`` (float64), theta with a leading dimension of 1, and the state of Adam."""

    def __init__(self, lam: Tensor, theta: Params):
        self.lam, self.theta, self.count = lam, theta, 0
        self.first, self.second = torch.zeros_like(lam), torch.zeros_like(lam)

    def move(self, gradient: Tensor, lr: float, extent: Tensor) -> Tensor:
        """lambda after a step of Adam in units of the extent; a gradient that is not finite moves nothing."""
        gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient.square()
        mean, square = self.first / (1 - 0.9**self.count), self.second / (1 - 0.999**self.count)
        return self.lam - lr * extent * mean / (square.sqrt() + 1e-12)
