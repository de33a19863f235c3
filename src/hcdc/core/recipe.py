"""How a candidate is trained and scored: one recipe for the full data, a calibrated one for the copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcdc.core.errors import InputError
from hcdc.core.settings import Settings, setting

METRICS = ("accuracy", "loss")
OPTIMIZERS = ("adam", "sgd")
AUGMENTATIONS = ("none", "crop", "flip-crop")
STATISTICS = ("batch", "train")


@dataclass(frozen=True)
class Recipe(Settings):
    """A training recipe, with L2 weight decay in the loss.

    Graphs and tables use full-batch Adam (``batch`` 0). Images use mini-batch SGD with momentum .9 and a
    cosine schedule from ``lr`` to ``lr_end``.

    Attributes:
        steps: Optimiser steps; the final parameters are scored.
        lr: Learning rate; for SGD, the initial one.
        weight_decay: Coefficient w of ``w/2 * ||theta||^2`` in the training loss.
        seeds: Independent initialisations whose scores are averaged.
        metric: What ranks candidates on the validation set: ``"accuracy"`` (higher is better) or ``"loss"``
            (lower is better).
        optimizer: ``"adam"`` (constant rate) or ``"sgd"``.
        batch: Mini-batch size, drawn epoch by epoch without repeats; 0 means all examples.
        lr_end: Final learning rate of SGD's cosine schedule.
        clip: Largest gradient norm (SGD); 0 means no limit.
        augment: ``"none"``, ``"crop"`` (shift each image by up to an eighth of its side) or ``"flip-crop"``
            (also mirror it at random).
        statistics: Source of BatchNorm's statistics when images are scored: ``"batch"`` (the scored images)
            or ``"train"`` (the training images).
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr_end > self.lr:
            raise InputError(
                f"setting 'lr_end' of a recipe must be at most lr, got {self.lr_end} (lr {self.lr})"
            )

    @classmethod
    def owner(cls) -> str:
        return "a recipe"

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain JSON."""
        return self.settings()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe that `as_dict` describes."""
        return cls.from_preset(overrides=values)
