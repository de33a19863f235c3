"""Trained candidates as functions from a labelled set to outputs: what S_val is learned against."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hcdc.core.recipe import Recipe
from hcdc.datasets._images import Images
from hcdc.spaces._base import Config, Params, Space, config_hash, stack
from hcdc.spaces._cells import CellNetwork
from hcdc.tasks._base import Task
from hcdc.tasks._image import ImageTask
from hcdc.training._many import init_many, train_many
from hcdc.training._networks import forward, side_by_side, train_networks

Predictor = Callable[[Any], Tensor]
"""Outputs ``[R, m, classes]`` of one candidate, trained R times, on a labelled set, differentiable in its
examples."""


def image_networks(task: ImageTask, space: Space, configs: Sequence[Config]) -> list[Any]:
    """The networks of candidates for plain training: with fused BatchNorm where there is a choice."""
    networks = [task.network(space, config) for config in configs]
    return [dataclasses.replace(n, fused=True) if isinstance(n, CellNetwork) else n for n in networks]


def statistics_of(task: ImageTask, train: Images, recipe: Recipe) -> Tensor | None:
    """The images from which BatchNorm takes its statistics in scoring; None is those that are scored."""
    return task.inputs(train.x) if recipe.statistics == "train" else None


def predictors(
    task: Task,
    space: Space,
    configs: Sequence[Config],
    train: Any,
    recipe: Recipe,
    *,
    seed: int,
    role: str,
    device: torch.device | str,
) -> list[Predictor]:
    """Train every candidate on ``train``, as often as the recipe says: one predictor a candidate."""
    if isinstance(task, ImageTask):
        return _image_predictors(task, space, configs, train, recipe, seed, role, device)
    found = []
    for config in configs:
        bound = task.bind(space, None if space.batched else config)
        lam = stack(space, [config]).to(device).expand(recipe.seeds, -1)
        keys = [(config_hash(config), repeat) for repeat in range(recipe.seeds)]
        params = train_many(bound, init_many(bound, keys, seed, role, device), lam, train, recipe)
        found.append(_predictor(bound, params, lam))
    return found


def _predictor(bound: Task, params: Params, lam: Tensor) -> Predictor:
    lanes = [{name: p[r] for name, p in params.items()} for r in range(len(lam))]
    return lambda data: torch.stack([bound.predict(one, lam[0], data) for one in lanes])


def _image_predictors(
    task: ImageTask,
    space: Space,
    configs: Sequence[Config],
    train: Images,
    recipe: Recipe,
    seed: int,
    role: str,
    device: torch.device | str,
) -> list[Predictor]:
    networks = image_networks(task, space, configs)
    reference = statistics_of(task, train, recipe)

    def keep(network: int, _: int, repeats: range, params: Params) -> Predictor:
        many = side_by_side(networks[network], len(repeats))
        kept = {name: p.detach().clone() for name, p in params.items()}
        return lambda data: forward(many, kept, task.inputs(data.x), reference)

    found = train_networks(
        networks, [train], recipe, keep, seed=seed, role=role, device=device, inputs=task.inputs
    )
    return [_together(sets[0]) for sets in found]


def _together(groups: Sequence[Predictor]) -> Predictor:
    return lambda data: torch.cat([predict(data) for predict in groups])
