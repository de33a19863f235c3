"""How a candidate is trained and scored: the full recipe on the full data, the calibrated one on the copy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from hcdc.core.errors import InputError, unknown_name

METRICS = ("accuracy", "loss")
OPTIMIZERS = ("adam", "sgd")
AUGMENTATIONS = ("none", "crop", "flip-crop")
STATISTICS = ("batch", "train")


@dataclass(frozen=True)
class Recipe:
    """A training recipe, with L2 weight decay in the loss.

    Graphs and tables take full-batch Adam (``batch`` 0). Images take mini-batches, by SGD with momentum .9
    and a cosine from ``lr`` down to ``lr_end``.

    Attributes:
        steps: Optimiser steps; the last step is scored.
        lr: Learning rate (of SGD: the first).
        weight_decay: Coefficient w of ``w/2 * ||theta||^2`` in the training loss.
        seeds: Independent initialisations whose scores are averaged.
        metric: What ranks candidates on the validation set, ``"accuracy"`` (higher is better) or ``"loss"``
            (lower is better).
        optimizer: ``"adam"`` (constant rate) or ``"sgd"``.
        batch: Examples of a mini-batch, drawn epoch by epoch without repeats; 0 is all.
        lr_end: The last learning rate of SGD's cosine.
        clip: Largest norm of the gradient; 0 is no limit (SGD).
        augment: ``"none"``; ``"crop"``: each image is shifted by up to an eighth of its side; or
            ``"flip-crop"``: it is mirrored or not as well.
        statistics: What BatchNorm takes its statistics from when images are scored: ``"batch"``, the images
            that are scored, or ``"train"``, the training images.
    """

    steps: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    seeds: int = 1
    metric: str = "accuracy"
    optimizer: str = "adam"
    batch: int = 0
    lr_end: float = 0.0
    clip: float = 0.0
    augment: str = "none"
    statistics: str = "batch"

    def __post_init__(self) -> None:
        if not (_whole(self.steps) and _whole(self.seeds) and self.steps >= 1 and self.seeds >= 1):
            raise InputError(
                "a recipe needs at least 1 step and 1 seed, in whole numbers, "
                f"got {self.steps!r} and {self.seeds!r}"
            )
        if not (_number(self.lr) and _number(self.weight_decay) and self.lr > 0 and self.weight_decay >= 0):
            raise InputError(
                "a recipe needs finite lr > 0 and weight_decay >= 0, "
                f"got {self.lr!r} and {self.weight_decay!r}"
            )
        if not (_whole(self.batch) and self.batch >= 0):
            raise InputError(f"a recipe needs a batch of at least 0 (0 is all examples), got {self.batch!r}")
        if not (
            _number(self.lr_end) and _number(self.clip) and 0 <= self.lr_end <= self.lr and self.clip >= 0
        ):
            raise InputError(
                "a recipe needs 0 <= lr_end <= lr and clip >= 0, "
                f"got {self.lr_end!r} (lr {self.lr!r}) and {self.clip!r}"
            )
        for what, value, choices in (
            ("metric", self.metric, METRICS),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("augment", self.augment, AUGMENTATIONS),
            ("statistics", self.statistics, STATISTICS),
        ):
            if value not in choices:
                raise unknown_name(what, str(value), choices)

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe that `as_dict` described."""
        names = [f.name for f in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                raise unknown_name("recipe setting", name, names)
        return cls(**values)


def _whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
