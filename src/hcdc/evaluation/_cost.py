"""What an evaluation will cost, rivals included."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hcdc.condensers import Cost, Expense, full_trainings, training_seconds
from hcdc.core.progress import duration
from hcdc.datasets import CondensedDataset
from hcdc.evaluation._context import Context
from hcdc.evaluation._judges import judges
from hcdc.evaluation.rivals import Forecast, chosen_rivals
from hcdc.spaces import from_spec
from hcdc.tasks import Task
from hcdc.truth import Truth


def cost(
    small: CondensedDataset,
    task: Task,
    candidates: int = 80,
    device: torch.device | str = "cpu",
    rivals: bool | Sequence[str] = True,
    truth: Truth | None = None,
) -> Cost:
    """What `evaluate` will cost, extrapolated from a few steps; arguments are as in `evaluate`."""
    space = from_spec(small.meta["space"])
    context = Context(small, task, space, judges(small, space, 2, 0)[0], device=device, truth=truth)
    on_copy = training_seconds(task, space, context.calibrated, device, len(small.train))
    found = [_expense(f"{candidates} candidates trained on the copy", candidates * on_copy)]
    step = 0.0
    if truth is None:
        full = context.full
        found.insert(0, full_trainings(candidates, task, space, full, device))
        step = (found[0].seconds or 0.0) / (candidates * full.steps * full.seeds)
    forecast = Forecast(step, on_copy, context.condense_seconds, candidates, context.full)
    for rival in chosen_rivals(context, rivals):
        if seconds := rival.seconds(context, forecast):
            found.append(_expense(f"rival {rival.name}", seconds))
    return Cost(tuple(found))


def _expense(words: str, seconds: float) -> Expense:
    return Expense(f"{words}: about {duration(seconds)}", seconds)
