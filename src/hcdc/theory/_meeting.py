"""The extended search space: p trajectories that meet, against p (p - 1) / 2 paths between pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.hypergrad import Trajectories, naive_point_count, trajectory_point_count
from hcdc.spaces import Space


@dataclass(frozen=True, eq=False)
class Meeting:
    """The result of `meeting`.

    Attributes:
        ends: Last points of the trajectories ``[p, H]``.
        spread: Largest distance between two trajectories, before each step and after the last.
        trajectory_points: Points on the p trajectories.
        pair_points: Points on straight paths between all pairs, with as many points each.
    """

    ends: Tensor
    spread: tuple[float, ...]
    trajectory_points: int
    pair_points: int


def meeting(
    hypergradients: Callable[[Tensor], Tensor], space: Space, starts: Tensor, steps: int, lr: float
) -> Meeting:
    """Section "Efficient Design of Extended Search Space": all p trajectories approach one optimum.

    True if L*_S is strongly convex on the space: with Hessians between m and M and lr <= 2 / (m + M), every
    step multiplies distances by at most 1 - lr m. The trajectories then connect all candidates with p paths
    instead of p (p - 1) / 2. With two valleys they end in two places, and the set is not connected.

    Args:
        hypergradients: lambda ``[p, H]`` -> hypergradients ``[p, H]``.
        space: Keeps lambda inside.
        starts: The candidates lambda_i ``[p, H]``.
        steps: T.
        lr: eta of the update lambda <- lambda - eta grad L*_S(lambda).
    """
    walk = Trajectories(space, starts)
    spread = [float(torch.pdist(walk.lam).max())]
    for _ in range(steps):
        walk.step(hypergradients(walk.lam), lr)
        spread.append(float(torch.pdist(walk.lam).max()))
    points = (len(starts), steps + 1)
    return Meeting(walk.lam, tuple(spread), trajectory_point_count(*points), naive_point_count(*points))
