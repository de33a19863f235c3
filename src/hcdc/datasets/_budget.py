"""How long to train: a budget on the full data, translated for one trial on a rung."""

from __future__ import annotations

import math
from dataclasses import dataclass

NO_LOADER = (
    "a trial calls data.steps, but neither data.epochs nor data.loader, so it is not known what an epoch is; "
    "give a share such as 'short:0.25'"
)
LATE_LOADER = (
    "a trial calls data.steps before data.loader, so it was not known what an epoch is; call data.loader "
    "first, or give a share such as 'short:0.25'"
)


@dataclass(frozen=True)
class Effort:
    """How a training budget on the full data is translated.

    Attributes:
        steps, epochs: Share of the steps and of the epochs.
        most: Most epochs.
        whole: Epochs of a full training, as far as they are known.
        fixed: So many steps, whatever the budget: a copy's calibrated steps.
        batch: Mini-batch size for which ``fixed`` was calibrated, 0 means all examples; with ``most``, that
            of an earlier trial, 0 means that none is known.
    """

    steps: float = 1.0
    epochs: float = 1.0
    most: int | None = None
    whole: float | None = None
    fixed: int | None = None
    batch: int = 0


class Budget:
    """The budget of one trial.

    With ``effort.most`` an objective that counts steps gets those of that many epochs. How many steps an
    epoch has is known once there is a loader for the training part. Before, the answer is a guess, see
    `steps`; `doubt` says at the end of the trial whether it was right.

    Args:
        effort: How the budget is translated.
        size: Number of training examples.
        at_once: Whether each step uses all of them, as on a graph.

    Attributes:
        asked: The largest budget that was asked for, by name.
        batches: Mini-batch sizes of the loaders for the training part, in order.
    """

    def __init__(self, effort: Effort, size: int, at_once: bool = False):
        self._effort, self._size, self._at_once = effort, size, at_once
        self._guessed: list[tuple[int, int]] = []
        self.asked: dict[str, int] = {}
        self.batches: list[int] = []

    def steps(self, n: int) -> int:
        """How many of ``n`` steps to take, see `TrialData.steps`.

        Without a loader, at most ``effort.most`` epochs are their share of ``effort.whole``, else as with the
        batch size of an earlier trial.
        """
        self.asked["steps"] = max(n, self.asked.get("steps", 0))
        effort = self._effort
        if effort.fixed is not None:
            return effort.fixed
        if effort.most is None:
            return max(1, round(n * effort.steps))
        if self.batches or self._at_once:
            return self._of_epochs(n, self._batch)
        guess = self._of_epochs(n, self._batch)
        if effort.whole is not None:
            guess = max(1, round(n * min(1.0, effort.most / effort.whole)))
        self._guessed.append((n, guess))
        return guess

    def epochs(self, n: int) -> int:
        """How many of ``n`` epochs to train, see `TrialData.epochs`."""
        self.asked["epochs"] = max(n, self.asked.get("epochs", 0))
        effort = self._effort
        if effort.fixed is not None:
            return max(1, round(effort.fixed / steps_per_epoch(self._size, self._batch)))
        if effort.most is not None:
            return max(1, min(n, effort.most))
        return max(1, round(n * effort.epochs))

    @property
    def doubt(self) -> str:
        """Why the steps of this trial may not be the epochs that they stand for; empty if they are."""
        if not self._guessed:
            return ""
        if not self.batches:
            return NO_LOADER if self._effort.whole is None else ""
        right = [self._of_epochs(n, self.batches[0]) == guess for n, guess in self._guessed]
        return "" if all(right) else LATE_LOADER

    @property
    def _batch(self) -> int:
        """The mini-batch size as far as it is known; 0 means all examples."""
        return self.batches[-1] if self.batches else self._effort.batch

    def _of_epochs(self, n: int, batch: int) -> int:
        """The steps of ``effort.most`` epochs, at most ``n``."""
        return max(1, min(n, (self._effort.most or 1) * steps_per_epoch(self._size, batch)))


def steps_per_epoch(size: int, batch: int) -> int:
    """Mini-batches of ``size`` examples; a ``batch`` of 0 means all of them."""
    return math.ceil(size / (batch or size))
