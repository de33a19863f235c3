"""Trained candidates as functions from a labelled set to outputs: what S_val is learned against."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config, config_hash
from hcdc.core.progress import Phase
from hcdc.core.recipe import Recipe
from hcdc.datasets import Images
from hcdc.networks import CellNetwork, Params
from hcdc.spaces import Space, stack
from hcdc.tasks import ImageTask, Task
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


def networks_at_once(device: torch.device | str) -> int:
    """How many networks of images are trained before what they gave is kept."""
    return 64 if torch.device(device).type == "cuda" else 2 * torch.get_num_threads()


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
    checkpoint: Checkpoint | None = None,
    phase: Phase | None = None,
) -> list[Predictor]:
    """Train every candidate on ``train``, as often as the recipe says: one predictor a candidate.

    Args:
        checkpoint: Where trained parameters are kept, a file a candidate (``FILE.networkK``): what is there
            is not trained again. Its key stands for ``train``, ``seed`` and ``role``.
        phase: Steps by candidate as batches finish.
    """
    kind = torch.device(device).type  # decides how parameters lie
    marks = [
        {"candidate": task.identity(space, config), "recipe": recipe.as_dict(), "device": kind}
        for config in configs
    ]
    store = checkpoint or Checkpoint(None)
    if isinstance(task, ImageTask):
        networks, reference = image_networks(task, space, configs), statistics_of(task, train, recipe)

        def train_networks_of(batch: Sequence[int]) -> list[Groups]:
            found = train_networks(
                [networks[k] for k in batch], [train], recipe,
                lambda network, _, repeats, params: {name: _stored(p) for name, p in params.items()},
                seed=seed, role=role, device=device, inputs=task.inputs,
            )  # fmt: skip
            return [sets[0] for sets in found]

        trained = _continued(train_networks_of, networks_at_once(device), marks, store, phase, device)
        return [_image_predictor(task, *both, recipe, reference) for both in zip(networks, trained)]
    bound = [task.bind(space, None if space.batched else config) for config in configs]
    lam = [stack(space, [config]).to(device).expand(recipe.seeds, -1) for config in configs]

    def train_one(batch: Sequence[int]) -> list[Groups]:
        (k,) = batch
        keys = [(config_hash(configs[k]), repeat) for repeat in range(recipe.seeds)]
        start = init_many(bound[k], keys, seed, role, device)
        return [[train_many(bound[k], start, lam[k], train, recipe)]]

    trained = _continued(train_one, 1, marks, store, phase, device)
    return [_predictor(*each) for each in zip(bound, trained, lam)]


Groups = list[Params]
"""Parameters of one candidate, trained R times: repeats that trained as one are a group, lane by lane. Of
images kernels lie as ``[out, height, width, in]``, as those of channels_last images do: a checkpoint keeps no
other order, and the same numbers in another order may give other last bits."""


def _continued(
    train: Callable[[Sequence[int]], list[Groups]],
    at_once: int,
    marks: Sequence[dict[str, Any]],
    store: Checkpoint,
    phase: Phase | None,
    device: torch.device | str,
) -> list[Groups]:
    """Trained parameters of every candidate: what an interrupted run kept, the rest trained and kept.

    Args:
        train: From the numbers of some candidates to their parameters.
        at_once: How many.
        marks: What each candidate's file has to say, or it is of another one.
    """
    places = [store.child(f"network{k}") for k in range(len(marks))]
    trained = [_known(place, mark, device) for place, mark in zip(places, marks)]
    missing = [k for k, groups in enumerate(trained) if not groups]
    done = len(marks) - len(missing)
    if phase is not None:
        phase.first_step = done
        if not missing:
            phase.step(done)
    for start in range(0, len(missing), at_once):
        batch = missing[start : start + at_once]
        for k, groups in zip(batch, train(batch)):
            trained[k] = groups
            flat = {f"{g}/{name}": p for g, group in enumerate(groups) for name, p in group.items()}
            places[k].save(flat, {"mark": marks[k]})
        done += len(batch)
        if phase is not None:
            phase.step(done)
    return trained


def _known(place: Checkpoint, mark: dict[str, Any], device: torch.device | str) -> Groups:
    """What is kept of one candidate; no groups where there is nothing."""
    saved = place.load()
    if saved is None or saved[1]["mark"] != mark:
        return []
    groups: dict[int, Params] = {}
    for key, p in saved[0].items():
        number, name = key.split("/", 1)
        groups.setdefault(int(number), {})[name] = p.to(device, copy=True)  # not where the file is mapped
    return [groups[number] for number in sorted(groups)]


def _stored(p: Tensor) -> Tensor:
    """A copy of a parameter of a network of images as it lies in memory."""
    lying = p.detach().permute(0, 2, 3, 1) if p.dim() == 4 else p.detach()
    return lying.clone(memory_format=torch.contiguous_format)


def _predictor(bound: Task, groups: Groups, lam: Tensor) -> Predictor:
    (params,) = groups
    lanes = [{name: p[r] for name, p in params.items()} for r in range(len(lam))]
    return lambda data: torch.stack([bound.predict(one, lam[0], data) for one in lanes])


def _image_predictor(
    task: ImageTask, network: Any, groups: Groups, recipe: Recipe, reference: Tensor | None
) -> Predictor:
    many = side_by_side(network, recipe.seeds // len(groups))
    kept = [
        {name: p.permute(0, 3, 1, 2) if p.dim() == 4 else p for name, p in group.items()} for group in groups
    ]
    return lambda data: torch.cat([forward(many, one, task.inputs(data.x), reference) for one in kept])
