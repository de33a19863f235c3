"""What an evaluation will cost, rivals included."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from hcdc.condensers import Cost, Expense, full_trainings, training_seconds
from hcdc.core.configs import Config
from hcdc.core.progress import duration
from hcdc.datasets import CondensedDataset
from hcdc.evaluation._context import Context
from hcdc.evaluation._judges import judges
from hcdc.evaluation.rivals import Forecast, chosen_rivals
from hcdc.spaces import from_spec
from hcdc.tasks import Task
from hcdc.truth import TrainedTruth, Truth


def cost(
    small: CondensedDataset,
    task: Task,
    candidates: int | Sequence[Config] = 80,
    device: torch.device | str = "cpu",
    rivals: bool | Sequence[str] = True,
    truth: Truth | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Cost:
    """What `evaluate` will cost, extrapolated from a few steps; arguments are as in `evaluate`.

    Candidates that are listed are looked up in the cache: those that it has cost no full training.
    """
    space, listed = from_spec(small.meta["space"]), candidates if isinstance(candidates, Sequence) else None
    count = len(candidates) if isinstance(candidates, Sequence) else candidates
    context = Context(small, task, space, judges(small, space, 2, 0)[0], device=device, truth=truth)
    on_copy = training_seconds(task, space, context.calibrated, device, len(small.train))
    found = [_expense(f"{count} candidates trained on the copy", count * on_copy)]
    step = 0.0
    if truth is None:
        full, cached = context.full, None
        if listed is not None:
            known = TrainedTruth(
                task, space, full, device=device, cache=cache,
                fingerprint=str(small.meta["data"].get("fingerprint")),
            )  # fmt: skip
            cached = sum(map(known.known, listed))
        one = training_seconds(task, space, full, device)
        found.insert(0, full_trainings(count - (cached or 0), one, cached))
        step = one / (full.steps * full.seeds)
    forecast = Forecast(step, on_copy, context.condense_seconds, count, context.full)
    for rival in chosen_rivals(context, rivals):
        if seconds := rival.seconds(context, forecast):
            found.append(_expense(f"rival {rival.name}", seconds))
    return Cost(tuple(found))


def _expense(words: str, seconds: float) -> Expense:
    return Expense(f"{words}: about {duration(seconds)}", seconds)
