"""The local quadratic model behind eq. (IFT) and the paper's section on non-convex losses.

Near a minimum with a positive definite Hessian a loss is its quadratic model up to third order. What follows
from the model is therefore right to the order given here, and exact if the losses are quadratic in (theta,
lambda). Without curvature at the minimum nothing follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from hcdc.hypergrad import Solver, best_response, exact, hessian_product, hypergradient
from hcdc.networks import Params
from hcdc.tasks import Task

Solution = Callable[[Tensor], Params]
"""lambda ``[H]`` -> theta*(lambda), a minimum of the training loss."""


class Bilevel(Task):
    """Two losses given as functions of theta ``[P]`` and lambda ``[H]``; they take the place of the data.

    Args:
        train, val: ``(theta, lambda) -> scalar``.
        size: P.
    """

    kind = "bilevel"

    def __init__(
        self, train: Callable[[Tensor, Tensor], Tensor], val: Callable[[Tensor, Tensor], Tensor], size: int
    ):
        self._train, self._val, self.size = train, val, size

    @property
    def train(self) -> Callable[[Tensor, Tensor], Tensor]:
        return self._train

    @property
    def val(self) -> Callable[[Tensor, Tensor], Tensor]:
        return self._val

    def init(self, generator: torch.Generator) -> Params:
        return {"theta": torch.randn(self.size, generator=generator, dtype=torch.float64)}

    def predict(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        """theta and lambda in one vector ``[P + H]``."""
        return torch.cat([params["theta"], lam])

    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        value: Tensor = data(outputs[: self.size], outputs[self.size :])
        return value


def newton(task: Task, start: Params) -> Solution:
    """theta*(lambda) on the task's training set by at most 30 Newton steps from ``start``."""

    def solution(lam: Tensor) -> Params:
        params = start
        for _ in range(30):
            gradient = grad(task.train_loss)(params, lam, task.train)
            if max(float(part.abs().max()) for part in gradient.values()) < 1e-11:
                break
            step = exact()(hessian_product(task, params, lam, task.train), gradient).x
            params = {name: params[name] - step[name] for name in params}
        return params

    return solution


@dataclass(frozen=True)
class Order:
    """Errors that shrink with a step.

    Attributes:
        steps: The steps h, falling.
        errors: The error at each step.
    """

    steps: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def order(self) -> float:
        """k of error ~ h^k between the first and the last step."""
        return math.log(self.errors[0] / self.errors[-1]) / math.log(self.steps[0] / self.steps[-1])


def response_order(
    task: Task, solution: Solution, lam: Tensor, direction: Tensor, steps: Sequence[float], solver: Solver
) -> Order:
    """||theta*(lambda + h d) - theta*(lambda) - h J d|| = O(h^2): the response J is the model's own.

    It is 0 at every h if the training loss is quadratic in (theta, lambda).

    Args:
        task: What is learned.
        solution: theta* as a function of lambda.
        lam: lambda ``[H]``.
        direction: d ``[H]``.
        steps: The steps h.
        solver: Solves with the Hessian, such as `hcdc.hypergrad.exact`.
    """
    at = solution(lam)
    response = best_response(task, at, lam, task.train, solver, "hessian")

    def error(h: float) -> float:
        moved = solution(lam + h * direction)
        rests = [moved[k] - at[k] - h * torch.tensordot(direction, response[k], dims=1) for k in at]
        return math.sqrt(sum(float(rest.square().sum()) for rest in rests))

    return Order(tuple(steps), tuple(error(h) for h in steps))


def difference_order(
    task: Task, solution: Solution, lam: Tensor, direction: Tensor, steps: Sequence[float], solver: Solver
) -> Order:
    """|central difference of L*(lambda) over 2 h - <implicit hypergradient, d>| = O(h^2), eq. (IFT).

    It is 0 at every h if both losses are quadratic in (theta, lambda). Arguments as in `response_order`.
    """
    slope = hypergradient(task, solution(lam), lam, task.train, task.val, solver, "hessian").total @ direction

    def value(at: Tensor) -> Tensor:
        return task.val_loss(solution(at), at, task.val)

    def error(h: float) -> float:
        rise = value(lam + h * direction) - value(lam - h * direction)
        return float((rise / (2 * h) - slope).abs())

    return Order(tuple(steps), tuple(error(h) for h in steps))


def distance_order(
    task: Task, solution: Solution, lam: Tensor, towards: Params, steps: Sequence[float], solver: Solver
) -> Order:
    """||hypergradient at theta* + h u - hypergradient at theta*|| = O(h): training need not be finished.

    Args:
        towards: u, with the shapes of theta.
        task, solution, lam, steps, solver: As in `response_order`.
    """
    at = solution(lam)

    def total(params: Params) -> Tensor:
        return hypergradient(task, params, lam, task.train, task.val, solver, "hessian").total

    exactly = total(at)
    errors = [float((total({k: at[k] + h * towards[k] for k in at}) - exactly).norm()) for h in steps]
    return Order(tuple(steps), tuple(errors))
