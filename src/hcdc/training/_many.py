"""Training many candidates in one batch: each lane has its own parameters and lambda, all share the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from hcdc.core.errors import NumericalError
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.networks import Dropout, Params
from hcdc.tasks import Task
from hcdc.training._networks import batches
from hcdc.training._optimizers import LaneOptimizer

LANE_SETTINGS = ("lr", "lr_end", "weight_decay", "momentum", "dropout", "label_smoothing")
"""Recipe settings that lanes of one batch may have of their own."""


def init_many(
    task: Task, keys: Sequence[tuple[object, ...]], seed: int, role: str, device: torch.device | str
) -> Params:
    """Fresh parameters ``[B, ...]``, one lane per key, each drawn from its own stream (seed, role, key)."""
    drawn = [task.init(stream(seed, role, *key)) for key in keys]
    return {name: torch.stack([params[name] for params in drawn]).to(device) for name in drawn[0]}


def train_many(
    task: Task,
    params: Params,
    lam: Tensor,
    data: Any,
    recipe: Recipe,
    own: Mapping[str, Tensor] | None = None,
    keys: Tensor | None = None,
    watch: Callable[[Tensor], None] | None = None,
) -> Params:
    """Minimise the training loss for all lanes at once; lanes share batches and their augmentation.

    Args:
        task: A bound task. Its training loss includes weight decay; the recipe's own is ignored.
        params: Initial parameters, ``[B, ...]`` each; left unchanged.
        lam: Hyperparameters ``[B, H]``.
        data: The training set, shared by the lanes.
        recipe: Optimiser, steps, and the settings that all lanes share.
        own: Settings per lane ``[B]``, from `LANE_SETTINGS`.
        keys: Dropout's key of each lane ``[B]``; its number by default.
        watch: Called at every step with the training loss of each lane ``[B]``.

    Returns:
        The parameters after the last step, ``[B, ...]`` each.
    """
    task.prepare(data)
    own = own or {}
    drawn = torch.arange(len(lam)) if keys is None else keys
    changed = _lane_loss(task, recipe, own)
    gradient = None if changed is None else vmap(grad_and_value(changed), in_dims=(0, 0, None, 0, 0, None))
    theta = {name: tensor.clone() for name, tensor in params.items()}
    optimizer = LaneOptimizer(theta, recipe, own, own.get("weight_decay", getattr(task, "weight_decay", 0.0)))
    small = 0 < recipe.batch < len(data)
    order = batches(len(data), recipe.batch, recipe.steps, stream(0, "many-batches")) if small else None
    chance, drawn = stream(0, "many-augmentations"), drawn.to(lam.device)
    for step in range(recipe.steps):
        some = data if order is None else task.subset(data, order[step].to(lam.device))
        some = task.augmented(some, recipe, chance)
        if gradient is None:
            found, loss = task.train_gradients(theta, lam, some)
        else:
            found, loss = gradient(theta, lam, some, dict(own), drawn, torch.tensor(step, device=lam.device))
        optimizer.step(found)
        if watch is not None:
            watch(loss)
    return theta


def _lane_loss(task: Task, recipe: Recipe, own: Mapping[str, Tensor]) -> Callable[..., Tensor] | None:
    """The training loss of one lane: of (params, lambda, data, its own settings, dropout's key, the step);
    None if it is the task's."""
    decoupled = recipe.optimizer == "adamw"
    drops, smooths = (name in own or getattr(recipe, name) > 0 for name in ("dropout", "label_smoothing"))
    if not (decoupled or drops or smooths or "weight_decay" in own):
        return None

    def loss(p: Params, l: Tensor, data: Any, own: Mapping[str, Tensor], key: Tensor, step: Tensor) -> Tensor:
        now = task
        if decoupled or "weight_decay" in own:
            now = now.with_decay(0.0 if decoupled else own["weight_decay"])
        if drops:
            now = now.with_dropout(Dropout(own.get("dropout", recipe.dropout), key).at(step))
        if not smooths:
            return now.train_loss(p, l, data)
        outputs = now.predict(p, l, data)
        smoothing = own.get("label_smoothing", recipe.label_smoothing)
        return now.smoothed_loss(outputs, data, smoothing) + now.penalty(p, l)

    return loss


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
