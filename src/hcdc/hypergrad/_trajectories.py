"""The extended search space: p trajectories of hyperparameter optimisation, and the naive paths they replace.

Alignment needs hypergradients on a connected set around the candidates. In the paper, this set consists of p
trajectories, one from each candidate, that follow the (synthetic) hypergradient towards a common optimum. Its
size is linear in p. Straight paths between all pairs would also connect it, but take p (p - 1) / 2 paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

from hcdc.core.errors import InputError, NumericalError
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Space


def trajectory_starts(space: Space, count: int, seed: int) -> Tensor:
    """The starts of the trajectories, ``[p, H]`` float32.

    Args:
        space: The search space.
        count: p for an infinite space (random starts). For a finite space the most starts: all candidates in
            order if there are no more than this, else ``count`` distinct random ones.
        seed: The user's seed; the role is ``"trajectory"``.
    """
    if count < 1:
        raise InputError(f"count {count}: at least 1 trajectory is needed")
    configs = space.candidates()
    if configs is None or len(configs) > count:
        configs = space.sample(count, numpy_stream(seed, "trajectory"))
    return torch.stack([space.encode(config) for config in configs]).float()


class Trajectories:
    """p trajectories under the update rule lambda <- project(lambda - lr * hypergradient), Algorithm 1.

    Args:
        space: The search space; every point stays inside its extended set.
        starts: lambda_{i,0} ``[p, H]``.

    Attributes:
        lam: Current positions of the trajectories ``[p, H]``.
        steps: Steps made so far.
    """

    def __init__(self, space: Space, starts: Tensor):
        if starts.dim() != 2 or starts.shape[1] != space.dimension:
            raise InputError(
                f"starts: a batch [p, {space.dimension}] is needed for the space '{space.name}', "
                f"got shape {tuple(starts.shape)}"
            )
        self.space, self.lam, self.steps = space, starts, 0

    def __len__(self) -> int:
        return len(self.lam)

    def step(self, gradients: Tensor, lr: float) -> Tensor:
        """Move every trajectory down its hypergradient ``[p, H]``; returns the new lambda ``[p, H]``."""
        if gradients.shape != self.lam.shape:
            raise InputError(
                f"gradients: shape {tuple(self.lam.shape)} is needed, one hypergradient per trajectory, "
                f"got {tuple(gradients.shape)}"
            )
        if not bool(torch.isfinite(gradients).all()):
            bad = (~torch.isfinite(gradients)).any(1).nonzero().flatten().tolist()
            raise NumericalError(
                f"the hypergradient of trajectory {bad[0]} is not finite after {self.steps} steps "
                f"({len(bad)} of {len(self)} trajectories); use curvature 'gauss_newton' or more damping"
            )
        self.lam = self.space.project(self.lam - lr * gradients)
        self.steps += 1
        return self.lam


def naive_paths(starts: Tensor, points: int) -> Iterator[Tensor]:
    """Straight paths between all pairs, each ``[points, H]`` including both ends: O(p^2), for comparison."""
    if points < 2:
        raise InputError(f"points {points}: a path needs at least its 2 ends")
    weights = torch.linspace(0, 1, points, dtype=starts.dtype, device=starts.device)[:, None]
    for first, second in combinations(range(len(starts)), 2):
        yield (1 - weights) * starts[first] + weights * starts[second]


def trajectory_point_count(p: int, points: int) -> int:
    """Number of points on p trajectories of ``points`` points each: linear in p."""
    return p * points


def naive_point_count(p: int, points: int) -> int:
    """Number of points on the straight paths between p candidates: quadratic in p."""
    return p * (p - 1) // 2 * points
