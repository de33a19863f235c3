"""HCDC: learn a validation set whose hypergradients point like the original ones (Algorithm 1)."""

from __future__ import annotations

from typing import Any

import torch

from hcdc.condensers.validation._batched import Batched
from hcdc.condensers.validation._run import Learned
from hcdc.condensers.validation._sequential import Sequential
from hcdc.condensers.validation._settings import Alignment, Learning
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.spaces import Space
from hcdc.tasks import Task


def learn_validation(
    task: Task,
    space: Space,
    s_train: Any,
    val_size: int,
    seed: int,
    config: Alignment,
    full: Recipe,
    small: Recipe,
    *,
    device: torch.device | str,
    progress: Progress,
    checkpoint: Checkpoint,
) -> Learned:
    """Learn S_val for a fixed S_train.

    Args:
        task: The task on the original data, on ``device``.
        s_train: S_train, on ``device``.
        val_size: |S_val|.
        config: Settings.
        full, small: How candidates are trained on the original data and on S_train.
    """
    bound, s_val = prepared(task, space, s_train, val_size, seed, config)
    if config.val_batch:
        bound.subset(s_val, torch.zeros(1, dtype=torch.long, device=device))  # unsupported tasks fail now
    form = Sequential if config.schedule == "sequential" else Batched
    return form(
        bound, space, s_train, s_val, seed, config, full, small, torch.device(device), progress, checkpoint
    ).learn()


def prepared(
    task: Task, space: Space, s_train: Any, val_size: int, seed: int, config: Learning
) -> tuple[Task, Any]:
    """The task with the relaxed network, and the examples that S_val starts from; all data is prepared."""
    config.check_for(task, space)
    bound = config.bind(task.for_learning(config.structure, config.adjacency), space)
    s_val = bound.sample("val", val_size, seed, balanced=config.labels == "balanced")
    for data in (s_train, s_val) if config.samples else (bound.train, bound.val, s_train, s_val):
        bound.prepare(data)
    return bound, s_val
