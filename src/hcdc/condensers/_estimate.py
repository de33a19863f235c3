"""What a plan costs, in words: trainings, and for images seconds from trials of a few steps."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import torch

from hcdc.condensers._condense import Plan
from hcdc.condensers._forecast import alignment_words, point_count
from hcdc.condensers._probing import companion_configs, probe_configs
from hcdc.core.progress import duration
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Space
from hcdc.tasks import ImageTask
from hcdc.training import run_candidates


def cost_words(made: Plan, task: Any, space: Space, device: str, seed: int) -> str:
    """What is known beforehand of the cost of making the copy: what is trained, for images with seconds."""
    told = []
    if made.config is not None and isinstance(task, ImageTask):
        told.append(alignment_words(task.to(device), space, made, seed))
    elif made.config is not None and made.config.response == "own":
        told.append(f"{point_count(made.config, space, seed)} full-data trainings")
    if made.probing is not None:
        probes = made.probing.probes
        beside = len(companion_configs(space, probes, made.probing.companions, seed))
        on_copy = f"{probes + beside} candidates trained {made.calibrated.seeds} times each on the copy"
        trainings = probes + beside
        if made.probing.calibrate:
            recipes = len(task.recipes_around(made.calibrated))
            on_copy += f", {probes} of them by {recipes} recipes before"
            trainings += recipes * probes
        if isinstance(task, ImageTask):
            spent = trainings * training_seconds(task, space, made.calibrated, device, made.train_size)
            on_copy += f": about {duration(spent)} (estimate from a few steps)"
        told.append(on_copy)
        if made.truth is not None:
            spent = sum(made.truth.seconds(config) for config in probe_configs(space, probes, seed))
            told.append(f"{probes} full-data results from the table ({spent:,.0f} s by its own clock)")
        else:
            told.append(training_words(probes, task, space, made.full, device))
    if reduced := _reduction(made, task, device):
        told.append(reduced)
    return "; ".join(told) or "no full-data training"


def _reduction(made: Plan, task: Any, device: str) -> str:
    """What the method behind S_train (and S_val, where it makes both) takes."""
    sizes = {"train": made.train_size}
    if made.meta["val_method"] == "same":
        sizes["val"] = made.val_size
    trained, loops = made.reducer.trains(task), made.reducer.loops()
    told = " and ".join([*([f"{trained} on the full data"] if trained else []), *([loops] if loops else [])])
    if not told:
        return ""
    told = f"{' and '.join(f'S_{part}' for part in sizes)} by {made.reducer.name}: {told}"
    moved = task.to(device)
    spent = [made.reducer.seconds(moved, part, size) for part, size in sizes.items()]
    told += " for each" if len(sizes) > 1 and spent[-1] != 0 else ""
    known = [each for each in spent if each is not None]
    if len(known) < len(spent):
        return f"{told}, whose time is not predicted"
    return f"{told}, about {duration(sum(known))} (estimate from a few images)"


def training_words(count: int, task: Any, space: Space, recipe: Recipe, device: str) -> str:
    """So many trainings on the full data, for images with the seconds that they may take."""
    told = f"{count} full-data trainings, less those that the cache knows"
    if not isinstance(task, ImageTask):
        return told
    spent = count * training_seconds(task, space, recipe, device)
    return f"{told}: about {duration(spent)} (estimate from a few steps)"


def training_seconds(
    task: ImageTask, space: Space, recipe: Recipe, device: str, train_size: int | None = None
) -> float:
    """Seconds of one training by ``recipe``, extrapolated from a few steps of two candidates.

    On all training images, or on ``train_size`` of them. On CUDA, where many networks train side by side, it
    is too high.
    """
    task = task.to(device)
    configs = space.sample(2, numpy_stream(0, "estimate"))
    first = torch.arange(min(task.num_classes, len(task.val)))  # of whatever class
    parts = {"val": task.chosen("val", first)}
    train = task.train if train_size is None else task.sample("train", train_size, 0)

    def seconds(steps: int) -> float:
        begun = time.perf_counter()
        short = dataclasses.replace(recipe, steps=steps, seeds=1, lr=1e-6, lr_end=0.0)  # never diverges
        run_candidates(task, space, configs, train, parts, short, 0, "estimate", device)
        return (time.perf_counter() - begun) / len(configs)

    few = 50 if device.startswith("cuda") else 3
    seconds(1)  # what is paid once
    least = seconds(1)
    step = max(0.0, seconds(1 + few) - least) / few
    return recipe.seeds * (least + step * (recipe.steps - 1))
