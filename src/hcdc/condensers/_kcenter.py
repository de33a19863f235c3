"""K-Center greedy: choose examples that cover their class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.condensers._coreset import Coreset


@dataclass(frozen=True)
class KCenter(Coreset):
    """Start at the point nearest the class mean; then add the point farthest from all chosen ones."""

    name = "kcenter"

    def choose(self, points: Tensor, count: int) -> Tensor:
        """Positions of the ``count`` centres among ``points`` ``[m, k]``.

        The distance to the nearest centre is a running minimum: one distance per point and step.
        """
        picked = [int((points - points.mean(0)).norm(dim=1).argmin())]
        nearest = torch.full_like(points[:, 0], torch.inf)
        for _ in range(count - 1):
            nearest = torch.minimum(nearest, (points - points[picked[-1]]).norm(dim=1))
            nearest[picked[-1]] = -1.0  # never chosen again, even if all points coincide
            picked.append(int(nearest.argmax()))
        return torch.tensor(picked)
