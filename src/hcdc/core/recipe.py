"""How a candidate is trained and scored: one recipe for the full data, a calibrated one for the copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcdc.core.errors import InputError
from hcdc.core.settings import Settings, setting

METRICS = ("accuracy", "loss")
OPTIMIZERS = ("adam", "adamw", "sgd", "nesterov")
AUGMENTATIONS = ("none", "flip", "crop", "flip-crop")
SCHEDULES = ("auto", "constant", "cosine", "linear", "step")
STATISTICS = ("batch", "train")
LATER = ("momentum", "schedule", "dropout", "label_smoothing")
"""Settings that are stored only if they differ from their defaults, so that older files and keys hold."""


@dataclass(frozen=True)
class Recipe(Settings):
    """A training recipe, with L2 weight decay in the loss (AdamW: in the step).

    By default, graphs and tables use full-batch Adam (``batch`` 0) and images mini-batch SGD.

    Attributes:
        steps: Optimiser steps; the final parameters are scored.
        lr: Learning rate, before the schedule.
        weight_decay: Coefficient w of ``w/2 * ||theta||^2`` in the training loss. AdamW instead shrinks all
            parameters by ``lr * w`` in each step.
        seeds: Independent initialisations whose scores are averaged.
        metric: What ranks candidates on the validation set: ``"accuracy"`` (higher is better) or ``"loss"``
            (lower is better).
        optimizer: ``"adam"``, ``"adamw"``, ``"sgd"`` (with momentum) or ``"nesterov"``.
        batch: Mini-batch size, drawn epoch by epoch without repeats; 0 means all examples.
        lr_end: Final learning rate of a schedule.
        clip: Largest gradient norm; 0 means no limit.
        augment: ``"none"``, ``"flip"`` (mirror each image at random), ``"crop"`` (shift it by up to an eighth
            of its side) or ``"flip-crop"`` (both).
        statistics: Source of BatchNorm's statistics when images are scored: ``"batch"`` (the scored images)
            or ``"train"`` (the training images).
        momentum: Momentum of SGD; Adam does not read it.
        schedule: How the rate falls from ``lr`` to ``lr_end``: ``"constant"`` (not at all), ``"cosine"``,
            ``"linear"`` or ``"step"`` (to a tenth of the way after half the steps, and a hundredth after
            three quarters). ``"auto"`` is a cosine for SGD and constant for Adam.
        dropout: Share of hidden units that a training step drops; none when scoring.
        label_smoothing: Share of the target that is spread evenly over all classes in training.
    """

    steps: int = setting(200, least=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(5e-4, least=0)
    seeds: int = setting(1, least=1)
    metric: str = setting("accuracy", choices=METRICS)
    optimizer: str = setting("adam", choices=OPTIMIZERS)
    batch: int = setting(0, least=0, note="0 is all examples")
    lr_end: float = setting(0.0, least=0)
    clip: float = setting(0.0, least=0)
    augment: str = setting("none", choices=AUGMENTATIONS)
    statistics: str = setting("batch", choices=STATISTICS)
    momentum: float = setting(0.9, least=0, below=1)
    schedule: str = setting("auto", choices=SCHEDULES)
    dropout: float = setting(0.0, least=0, below=1)
    label_smoothing: float = setting(0.0, least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr_end > self.lr:
            raise InputError(
                f"setting 'lr_end' of a recipe must be at most lr, got {self.lr_end} (lr {self.lr})"
            )

    @classmethod
    def owner(cls) -> str:
        return "a recipe"

    @property
    def adaptive(self) -> bool:
        """Whether the optimiser is a kind of Adam."""
        return self.optimizer.startswith("adam")

    @property
    def shape(self) -> str:
        """The schedule, with ``"auto"`` resolved."""
        if self.schedule != "auto":
            return self.schedule
        return "constant" if self.adaptive else "cosine"

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON; those of `LATER` only if they differ from their defaults."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        return {k: v for k, v in self.settings().items() if k not in LATER or v != usual[k]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe that `as_dict` describes."""
        return cls.from_preset(overrides=values)
