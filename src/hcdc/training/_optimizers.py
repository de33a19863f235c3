"""Optimisers and schedules on plain tensors: lanes with their own settings, or one vector for recorded steps.

Each is the one of ``torch.optim`` with the same name: SGD with momentum (without dampening), Nesterov, Adam
and AdamW (beta .9 and .999, eps 1e-8). Importing torch.optim takes seconds, and it hides its state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from hcdc.core.recipe import Recipe
from hcdc.networks import Params

FIRST, SECOND, EPSILON = 0.1, 0.001, 1e-8
"""Adam's usual constants: 1 - beta_1, 1 - beta_2 and epsilon."""

Value = float | Tensor
"""One value for all lanes, or one per lane ``[B]``."""


def schedule(recipe: Recipe) -> Tensor:
    """How far the rate of each step is from ``lr_end`` towards ``lr``, ``[steps]`` in [0, 1]."""
    t = torch.arange(recipe.steps) / recipe.steps
    if recipe.shape == "cosine":
        return (1 + torch.cos(math.pi * t)) / 2
    if recipe.shape == "linear":
        return 1 - t
    if recipe.shape == "step":
        return torch.where(t < 0.5, 1.0, torch.where(t < 0.75, 0.1, 0.01))
    return torch.ones(recipe.steps)


def learning_rates(recipe: Recipe) -> Tensor:
    """The learning rate of each step ``[steps]``, from ``lr`` to ``lr_end``."""
    if recipe.shape == "constant":
        return torch.full((recipe.steps,), recipe.lr)
    return recipe.lr_end + (recipe.lr - recipe.lr_end) * schedule(recipe)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on a device, without waiting for what is under way there."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _wide(value: Value, like: Tensor) -> Value:
    """A value per lane, shaped to multiply ``like`` ``[B, ...]``."""
    return value.view(-1, *[1] * (like.dim() - 1)) if isinstance(value, Tensor) else value


def clip_lanes(gradient: Params, clip: float) -> Params:
    """Gradients ``[B, ...]``, each lane scaled to a norm of at most ``clip``; 0 means no limit."""
    if not clip:
        return gradient
    squares = torch.stack([g.flatten(1).square().sum(1) for g in gradient.values()]).sum(0)
    shrink = (clip / (squares.sqrt() + 1e-6)).clamp_max(1.0)
    return {name: g * shrink.view(-1, *[1] * (g.dim() - 1)) for name, g in gradient.items()}


def sgd_step(
    theta: Params,
    gradient: Params,
    velocity: Params,
    lr: Value,
    clip: float = 0.0,
    momentum: Value = 0.9,
    nesterov: bool = False,
) -> None:
    """One SGD step with momentum, in place; ``clip`` limits each lane's gradient norm (0: no limit)."""
    for name, g in clip_lanes(gradient, clip).items():
        m, rate = _wide(momentum, g), _wide(lr, g)
        direction = velocity[name].mul_(m).add_(g)
        direction = g + m * direction if nesterov else direction
        if isinstance(rate, Tensor):
            theta[name].sub_(rate * direction)
        else:
            theta[name].sub_(direction, alpha=rate)


def adam_step(theta: Params, gradient: Params, first: Params, second: Params, step: int, lr: Value) -> None:
    """One Adam step in place (beta .9 and .999, eps 1e-8, bias-corrected)."""
    size = lr / (1 - 0.9**step)
    root = (1 - 0.999**step) ** 0.5
    for name, g in gradient.items():
        first[name].lerp_(g, FIRST)
        second[name].mul_(0.999).addcmul_(g, g, value=SECOND)
        below = second[name].sqrt().div_(root).add_(EPSILON)
        rate = _wide(size, g)
        if isinstance(rate, Tensor):
            theta[name].sub_(rate * first[name] / below)
        else:
            theta[name].addcdiv_(first[name], below, value=-rate)


class LaneOptimizer:
    """The steps of a recipe for parameters ``[B, ...]``, updated in place.

    Args:
        theta: The parameters.
        recipe: Optimiser, schedule, clipping, and the settings that all lanes share.
        own: Settings per lane ``[B]``: ``lr`` (with ``lr_end``), ``momentum``.
        decay: Weight decay for AdamW.
    """

    def __init__(self, theta: Params, recipe: Recipe, own: Mapping[str, Tensor], decay: Value):
        self.theta, self.recipe, self.own, self.decay, self.steps = theta, recipe, own, decay, 0
        self.first = {name: torch.zeros_like(t) for name, t in theta.items()}
        self.second = {name: torch.zeros_like(t) for name, t in theta.items()} if recipe.adaptive else {}
        self.factors: list[float] = schedule(recipe).tolist()
        self.rates: list[float] = learning_rates(recipe).tolist()

    def rate(self) -> Value:
        """The learning rate of the next step."""
        if "lr" in self.own:
            end: Value = self.own["lr_end"] if self.recipe.shape != "constant" else 0.0
            return end + (self.own["lr"] - end) * self.factors[self.steps]
        return self.recipe.lr if self.recipe.shape == "constant" else self.rates[self.steps]

    def step(self, gradient: Params) -> None:
        """One step down the gradients ``[B, ...]``."""
        recipe, lr = self.recipe, self.rate()
        self.steps += 1
        if recipe.optimizer == "adamw":
            for t in self.theta.values():
                t.mul_(_wide(1 - lr * self.decay, t))
        if recipe.adaptive:
            gradient = clip_lanes(gradient, recipe.clip)
            adam_step(self.theta, gradient, self.first, self.second, self.steps, lr)
        else:
            momentum = self.own.get("momentum", recipe.momentum)
            nesterov = recipe.optimizer == "nesterov"
            sgd_step(self.theta, gradient, self.first, lr, recipe.clip, momentum, nesterov)


class VectorOptimizer:
    """The steps of a recipe for one vector, without reading any value back: a CUDA graph can record them.

    Args:
        theta: The parameters ``[P]``, updated in place.
        recipe: Optimiser, schedule, learning rate, momentum, and AdamW's weight decay.
    """

    def __init__(self, theta: Tensor, recipe: Recipe):
        self.theta, self.recipe = theta, recipe
        self.first = torch.zeros_like(theta)
        self.second = torch.zeros_like(theta if recipe.adaptive else theta[:0])
        rates = learning_rates(recipe)
        t = torch.arange(1, recipe.steps + 1, dtype=torch.float64)
        shrink = 1 - recipe.weight_decay * rates.double()
        values = (-rates, -rates / (1 - 0.9**t), (1 - 0.999**t).sqrt(), shrink)
        table = torch.stack([value.to(theta.dtype) for value in values])
        self.rates, self.sizes, self.roots, self.shrink = moved(table, theta.device)

    def reset(self) -> None:
        """Forget earlier steps."""
        self.first.zero_()
        self.second.zero_()

    def step(self, gradient: Tensor, number: Tensor) -> None:
        """Step ``number`` (``[1]``, from 0) down the gradient ``[P]``."""
        recipe = self.recipe
        if not recipe.adaptive:
            self.first.mul_(recipe.momentum).add_(gradient)
            nesterov = recipe.optimizer == "nesterov"
            direction = gradient.add(self.first, alpha=recipe.momentum) if nesterov else self.first
            self.theta.addcmul_(direction, self.rates.index_select(0, number))
            return
        if recipe.optimizer == "adamw":
            self.theta.mul_(self.shrink.index_select(0, number))
        self.first.lerp_(gradient, FIRST)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=SECOND)
        below = self.second.sqrt().div_(self.roots.index_select(0, number)).add_(EPSILON)
        self.theta.addcmul_(self.first / below, self.sizes.index_select(0, number))
