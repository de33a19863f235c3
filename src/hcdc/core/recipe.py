"""How a candidate is trained and scored: the full recipe on the full data, the calibrated one on the small copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcdc.core.errors import InputError

METRICS = ("accuracy", "loss")


@dataclass(frozen=True)
class Recipe:
    """A training recipe: full-batch Adam with L2 weight decay in the loss.

    Attributes:
        steps: Optimiser steps; the last step is scored.
        lr: Learning rate of Adam.
        weight_decay: Coefficient w of ``w/2 * ||theta||^2`` in the training loss.
        seeds: Independent initialisations whose scores are averaged.
        metric: What ranks candidates on the validation set, ``"accuracy"`` (higher is better) or ``"loss"`` (lower).
    """

    steps: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    seeds: int = 1
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.seeds < 1:
            raise InputError(f"a recipe needs at least 1 step and 1 seed, got {self.steps} and {self.seeds}")
        if not self.lr > 0 or self.weight_decay < 0:
            raise InputError(f"a recipe needs lr > 0 and weight_decay >= 0, got {self.lr} and {self.weight_decay}")
        if self.metric not in METRICS:
            raise InputError(f"metric '{self.metric}' is not known; choose one of: {', '.join(METRICS)}")

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        return cls(**values)
