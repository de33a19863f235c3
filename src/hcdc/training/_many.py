"""Training many candidates in one batch: each lane has its own parameters and lambda, all share the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from hcdc.core.errors import NumericalError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.networks import Params
from hcdc.tasks import Task
from hcdc.training._networks import MOMENTUM, batches, learning_rates


def init_many(
    task: Task, keys: Sequence[tuple[object, ...]], seed: int, role: str, device: torch.device | str
) -> Params:
    """Fresh parameters ``[B, ...]``, one lane per key, each drawn from its own stream (seed, role, key)."""
    drawn = [task.init(stream(seed, role, *key)) for key in keys]
    return {name: torch.stack([params[name] for params in drawn]).to(device) for name in drawn[0]}


def train_many(task: Task, params: Params, lam: Tensor, data: Any, recipe: Recipe) -> Params:
    """Minimise ``task.train_loss`` for all lanes at once; lanes share batches and their augmentation.

    Args:
        task: A bound task. Its training loss includes weight decay; the recipe's own is ignored.
        params: Initial parameters, ``[B, ...]`` each; left unchanged.
        lam: Hyperparameters ``[B, H]``.
        data: The training set, shared by the lanes.
        recipe: Optimiser, steps and learning rate.

    Returns:
        The parameters after the last step, ``[B, ...]`` each.
    """
    task.prepare(data)
    gradient = vmap(grad(task.train_loss), in_dims=(0, 0, None))
    theta = {name: tensor.clone() for name, tensor in params.items()}
    first = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
    second = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
    small = 0 < recipe.batch < len(data)
    order = batches(len(data), recipe.batch, recipe.steps, stream(0, "many-batches")) if small else None
    rates, chance = learning_rates(recipe).tolist(), stream(0, "many-augmentations")
    for step in range(1, recipe.steps + 1):
        some = data if order is None else task.subset(data, order[step - 1].to(lam.device))
        some = task.augmented(some, recipe, chance)
        found = gradient(theta, lam, some)
        if recipe.optimizer == "sgd":
            sgd_step(theta, found, first, rates[step - 1], recipe.clip)
        else:
            adam_step(theta, found, first, second, step, recipe.lr)
    return theta


def sgd_step(theta: Params, gradient: Params, momentum: Params, lr: float, clip: float) -> None:
    """One SGD step with momentum, in place; ``clip`` limits each lane's gradient norm (0: no limit)."""
    if clip:
        squares = torch.stack([g.flatten(1).square().sum(1) for g in gradient.values()]).sum(0)
        shrink = (clip / (squares.sqrt() + 1e-6)).clamp_max(1.0)
        gradient = {name: g * shrink.view(-1, *[1] * (g.dim() - 1)) for name, g in gradient.items()}
    for name, g in gradient.items():
        momentum[name].mul_(MOMENTUM).add_(g)
        theta[name].sub_(momentum[name], alpha=lr)


def adam_step(theta: Params, gradient: Params, first: Params, second: Params, step: int, lr: float) -> None:
    """One Adam step in place (beta .9 and .999, eps 1e-8, bias-corrected)."""
    size = lr / (1 - 0.9**step)
    root = (1 - 0.999**step) ** 0.5
    for name, g in gradient.items():
        first[name].lerp_(g, 0.1)
        second[name].mul_(0.999).addcmul_(g, g, value=0.001)
        theta[name].addcdiv_(first[name], second[name].sqrt().div_(root).add_(1e-8), value=-size)


@dataclass(frozen=True)
class Scores:
    """Loss and score of each lane on one labelled set, ``[B]`` each."""

    loss: Tensor
    score: Tensor


def score_many(task: Task, params: Params, lam: Tensor, data: Any) -> Scores:
    """Loss and score (accuracy) of every lane on ``data``; raises an error if a loss is not finite."""

    def one(p: Params, l: Tensor) -> tuple[Tensor, Tensor]:
        outputs = task.predict(p, l, data)
        return task.loss(outputs, data), task.score(outputs, data)

    task.prepare(data)
    with torch.no_grad():
        loss, score = vmap(one)(params, lam)
    bad = torch.nonzero(~torch.isfinite(loss)).flatten()
    if len(bad):
        raise NumericalError(
            f"candidate {int(bad[0])} of {len(loss)} has a non-finite loss after training at lambda = "
            f"{[round(v, 4) for v in lam[int(bad[0])].tolist()]}; a smaller learning rate may help"
        )
    return Scores(loss, score)
