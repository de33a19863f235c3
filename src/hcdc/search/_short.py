"""What a short training of a number of epochs means for an objective, by what its first trial told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcdc.core.errors import InputError
from hcdc.datasets import NO_LOADER, Effort, FullData, steps_per_epoch

UNKNOWN_SHARE = 0.25
"""Expected price of a short training as a share of a full one's, until seconds are measured."""


def short_training(
    most: int, told: Mapping[str, Any], full: FullData, whole: bool = True
) -> tuple[float, Effort]:
    """The expected price of ``most`` epochs as a share of a full training's, and how budgets are translated.

    The share is 1 for a full training. Refuses an objective that counts no epochs.

    Args:
        most: Number of epochs.
        told: What the first trial told: the budgets that it ``asked`` for, and its ``batch`` size.
        full: The full data.
        whole: Whether that trial had all training examples, on which its number of steps may depend.
    """
    asked, batch, train = told["asked"], told.get("batch") or 0, full.parts["train"]
    if "epochs" in asked:
        epochs = max(1, asked["epochs"])
        return min(1.0, most / epochs), Effort(most=most, whole=epochs)
    if train.divisible and not batch:
        raise InputError(NO_LOADER)
    share, each = UNKNOWN_SHARE, steps_per_epoch(len(train), batch) if train.divisible else 1
    if whole:
        share = min(1.0, most * each / max(1, asked["steps"]))
    return share, Effort(most=most, batch=batch)
