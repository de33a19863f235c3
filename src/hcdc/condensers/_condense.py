"""From a task and a search space to a condensed data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hcdc.condensers._plan import AUTO, TRUTH_EPOCHS, plan
from hcdc.core.progress import Progress
from hcdc.datasets import CondensedDataset
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth


def condense(
    task: Task,
    space: Space,
    method: str = "hcdc",
    *,
    train_size: int | None = None,
    val_size: int | None = None,
    seed: int = 0,
    s_train: CondensedDataset | None = None,
    train_method: str | None = None,
    val_method: str | None = None,
    preset: str | None = None,
    options: dict[str, Any] | None = None,
    truth: Truth | None = None,
    truth_epochs: int = TRUTH_EPOCHS,
    recipe: Mapping[str, Any] | None = None,
    full_recipe: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = AUTO,
    progress: Progress | None = None,
    done: Callable[[CondensedDataset], object] | None = None,
) -> CondensedDataset:
    """Make a condensed data set.

    Args:
        task: What is learned, with the original data.
        space: What will be searched.
        method: ``"random"``, ``"kcenter"``, ``"herding"``, ``"hcdc"``; graphs also ``"reach"``,
            ``"gcondx"``, ``"gcond"``; images also ``"dc"``, ``"dsa"``, ``"dm"``, ``"kip"``, ``"tm"``.
        train_size: |S_train|, a total; with ``s_train`` its size.
        val_size: |S_val|; by default keeps the original ratio of validation to training examples.
        seed: Determines every random draw.
        s_train: A copy of the same data whose S_train is reused, with its cost, so that only S_val is made:
            several copies can share one S_train.
        train_method: What makes S_train for HCDC, by default ``"reach"`` (tables and images: ``"random"``).
            Other methods make S_train themselves.
        val_method: What makes S_val, one of `VALIDATIONS`. ``"aligned"``: align hypergradients, as in the
            paper. ``"both"``: also use the values of the same full trainings as anchors (images: align, then
            learn from probes). ``"landscape"``: a Gaussian process of far fewer full trainings and their
            hypergradients says how S_val must order candidates (continuous spaces). ``"same"``: apply the
            method of S_train to the validation examples. ``"random"``: random validation examples.
            ``"real"``: up to 2,000 real validation examples (graphs: the original validation set).
            Two ways use probes, candidates with known full-data results: ``"probes"`` learns examples,
            ``"weighted"`` weights real ones. Defaults to the task's choice for HCDC, otherwise to ``"same"``.
        preset: Named settings of the method.
        options: Settings that differ from the preset. For HCDC, ``"train.NAME"`` is the setting NAME of the
            method that makes S_train.
        truth: Full-data results of the probes; None trains the probes on the full data.
        truth_epochs: Epochs of a full-data training on images if ``truth`` is None.
        recipe: Changes to the default training on the copy (`Recipe`), e.g. ``{"lr": 0.1}``; for graphs and
            tables steps, lr, seeds and metric.
        full_recipe: The same for training on the full data, e.g. ``{"augment": "none"}``; its metric is
            fixed. For images, ``steps`` replaces ``truth_epochs``.
        device: Where to compute.
        checkpoint: A file to continue from after an interruption (with ``FILE.PHASE`` files beside it).
            Removed on success and after errors raised by this library. By default a file in the cache
            (``$HCDC_CACHE``, else ``~/.cache/hcdc``), so an equal call continues; None keeps nothing.
        progress: Where progress is reported; by default a live line on a terminal or in a notebook.
        done: Called with the condensed data set before the checkpoint is removed, e.g. to save it. If it
            raises, the checkpoint stays.

    Returns:
        The condensed data set. Its ``record`` holds seconds, device and history; ``task`` is the task it was
        made from, within this process.

    Example:
        >>> import hcdc
        >>> task = hcdc.GraphTask(hcdc.data("embedded"))
        >>> small = hcdc.condense(task, hcdc.spaces.PolynomialFilter(), "random", train_size=30)
        >>> len(small.train)
        30
    """
    planned = plan(
        task, space, method, train_size=train_size, val_size=val_size, seed=seed, s_train=s_train,
        train_method=train_method, val_method=val_method, preset=preset, options=options, truth=truth,
        truth_epochs=truth_epochs, recipe=recipe, full_recipe=full_recipe,
    )  # fmt: skip
    return planned.run(device=device, checkpoint=checkpoint, progress=progress, done=done)
