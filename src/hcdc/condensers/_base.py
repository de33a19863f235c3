"""What every condenser shares: how many labels of each class, and the interface of a method that makes a smaller set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.tasks._base import Task


def allocate_labels(y: Tensor, size: int, num_classes: int, what: str = "train_size") -> Tensor:
    """Synthetic labels ``[size]``, sorted by class, in the proportions of ``y`` with at least one a class.

    Largest remainders decide rounding, so that the counts add up to ``size``.

    Args:
        y: Original labels, 0 .. num_classes - 1.
        size: How many labels; at least the number of classes and at most ``len(y)``.
        num_classes: Number of classes.
        what: The argument to name in an error.
    """
    counts = torch.bincount(y.cpu(), minlength=num_classes).double()
    if bool((counts == 0).any()):
        empty = torch.nonzero(counts == 0).flatten().tolist()
        raise InputError(f"class {empty[0]} has no labelled example to condense; every class needs at least one")
    if size < num_classes:
        raise InputError(
            f"{what} {size}: there are {num_classes} classes, so at least {num_classes} are needed; try {5 * num_classes}"
        )
    if size > len(y):
        raise InputError(f"{what} {size}: there are only {len(y)} labelled examples to condense; choose at most that")
    share = counts / counts.sum() * size
    given = share.floor().clamp_min(1)
    while int(given.sum()) > size:
        excess = torch.where(given > 1, given - share, torch.full_like(given, -torch.inf))
        given[int(excess.argmax())] -= 1
    while int(given.sum()) < size:
        room = torch.where(given < counts, share - given, torch.full_like(given, -torch.inf))
        given[int(room.argmax())] += 1
    return torch.repeat_interleave(torch.arange(num_classes), given.long())


class Reducer(ABC):
    """A method that makes a small labelled set out of a large one (random, K-Center, Herding, GCond, ...).

    Subclasses are frozen dataclasses whose fields are the method's settings; presets are such settings by name.

    Attributes:
        name: The registered name.
    """

    name: str

    @abstractmethod
    def reduce(
        self,
        task: Task,
        part: str,
        size: int,
        seed: int,
        *,
        progress: Progress,
        checkpoint: Checkpoint,
    ) -> Any:
        """A set of ``size`` examples made from ``part`` (``"train"`` or ``"val"``) of the task's original data.

        Equal arguments give equal bytes; an interrupted run with the same ``checkpoint`` continues and gives the same.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """JSON-able settings, stored in the condensed file."""
