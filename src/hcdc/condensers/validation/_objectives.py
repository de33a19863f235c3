"""What S_val minimises: how far the losses of trained candidates are from the order of their targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

TEMPERATURE = 0.3
"""Unit of differences of scores in a Bradley-Terry loss, in standard deviations: about a target's error."""
TINY = 1e-12

Distance = Callable[[Tensor, Tensor], Tensor]
"""Distance of losses ``[m]`` from targets ``[m]``, higher is better for targets; 0 at best."""


def correlation(losses: Tensor, target: Tensor) -> Tensor:
    """Pearson correlation of minus the losses ``[m]`` with standardised targets ``[m]``."""
    centred = losses.mean() - losses
    return (centred * target).mean() / (centred.square().mean().sqrt() + TINY)


def uncorrelated(losses: Tensor, target: Tensor) -> Tensor:
    """1 minus `correlation`."""
    return 1 - correlation(losses, target)


def pair_weights(target: Tensor) -> Tensor:
    """How much each pair weighs ``[m, m]``, where row i has the higher target and column j the lower; sum 1.

    Every candidate j that is not at the top weighs the same, and so do all candidates i above it.
    """
    above = (target[:, None] > target[None]).to(target.dtype)
    count = above.sum(0)
    return above / count.clamp_min(1) / (count > 0).sum().clamp_min(1)


def bradley_terry(scores: Tensor, target: Tensor) -> Tensor:
    """Logistic loss over pairs, weighted toward the top of the target.

    ``mean_j 1 / (r_j - 1) sum_{i: t_i > t_j} log(1 + exp(-(s_i - s_j) / T))``

    r_j - 1 is how many candidates have a higher target than j, and T is `TEMPERATURE`. The pairs among the
    first k of n make up (k - 1) / (n - 1) of the weight; if all pairs weighed the same, it would be about the
    square of that.

    Args:
        scores: Scores ``[m]``, higher is better.
        target: Their targets ``[m]``; only the order matters, and equal ones are no pair.
    """
    lost = F.softplus((scores[None] - scores[:, None]) / TEMPERATURE)
    return (pair_weights(target).to(scores) * lost).sum()


def misplaced(losses: Tensor, target: Tensor) -> Tensor:
    """`bradley_terry` of minus the losses, standardised."""
    centred = losses.mean() - losses
    return bradley_terry(centred / (centred.square().mean().sqrt() + TINY), target)


OBJECTIVES: dict[str, Distance] = {"correlation": uncorrelated, "top": misplaced}
"""What learned examples minimise, by name, as in the setting ``objective``."""


def bradley_terry_slope(scores: Tensor, target: Tensor) -> Tensor:
    """Gradient in the scores ``[m]`` of m times `bradley_terry`."""
    scores = scores.detach().requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(len(scores) * bradley_terry(scores, target), scores)
    return found


def bradley_terry_bound(target: Tensor) -> float:
    """Upper bound of the largest curvature of m times `bradley_terry` in the scores ``[m]``.

    A pair of weight v has at most ``v / (4 T^2)`` times the Laplacian of its edge, whose eigenvalues are at
    most twice the largest sum of weights at a candidate.
    """
    weight = len(target) * pair_weights(target)
    return float((weight.sum(0) + weight.sum(1)).max()) / (2 * TEMPERATURE**2)
