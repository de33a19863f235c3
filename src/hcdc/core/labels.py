"""Labels by class: how many each class gets, its members, and draws from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hcdc.core.errors import InputError


def allocate_labels(
    y: Tensor, size: int, num_classes: int, what: str = "train_size", balanced: bool = False
) -> Tensor:
    """Synthetic labels ``[size]``, sorted by class, in the proportions of ``y``; at least one per class.

    Counts are rounded by largest remainders, so they add up to ``size``.

    Args:
        y: Original labels, 0 .. num_classes - 1.
        size: Number of labels, from ``num_classes`` to ``len(y)``.
        num_classes: Number of classes.
        what: Argument to name in errors, e.g. ``"train_size"``.
        balanced: Use equal counts per class, as far as each class has labels.
    """
    counts = torch.bincount(y.cpu(), minlength=num_classes).double()
    if bool((counts == 0).any()):
        empty = torch.nonzero(counts == 0).flatten().tolist()
        raise InputError(
            f"class {empty[0]} has no labelled example to condense in the {what.removesuffix('_size')} part; "
            "every class needs at least one"
        )
    if size < num_classes:
        raise InputError(
            f"{what} {size}: there are {num_classes} classes, so at least {num_classes} are needed; "
            f"try {min(5 * num_classes, len(y))}"
        )
    if size > len(y):
        raise InputError(
            f"{what} {size}: there are only {len(y)} labelled examples to condense; choose at most that"
        )
    share = torch.full_like(counts, size / num_classes) if balanced else counts / counts.sum() * size
    given = torch.minimum(share.floor().clamp_min(1), counts)
    while int(given.sum()) > size:
        excess = torch.where(given > 1, given - share, torch.full_like(given, -torch.inf))
        given[int(excess.argmax())] -= 1
    while int(given.sum()) < size:
        room = torch.where(given < counts, share - given, torch.full_like(given, -torch.inf))
        given[int(room.argmax())] += 1
    return torch.repeat_interleave(torch.arange(num_classes), given.long())


def members(y: Tensor, num_classes: int) -> list[Tensor]:
    """For each class, its positions in ``y``, on the CPU."""
    labels = y.cpu()
    return [torch.nonzero(labels == c).flatten() for c in range(num_classes)]


def draw_members(pools: Sequence[Tensor], counts: Sequence[int], generator: torch.Generator) -> list[Tensor]:
    """For each class, some of its positions, drawn without repeats.

    Args:
        pools: The positions of each class, from `members`.
        counts: How many to draw per class; a class with fewer members gives all of them.
        generator: Random stream; draws one permutation per class.
    """
    return [
        pool[torch.randperm(len(pool), generator=generator)[:count]] for pool, count in zip(pools, counts)
    ]
