"""Herding: choose examples whose running mean follows the class mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.condensers._coreset import Coreset


@dataclass(frozen=True)
class Herding(Coreset):
    """At step i, take the unused point closest to ``(i + 1) * mean - sum of the chosen``."""

    name = "herding"

    def choose(self, points: Tensor, count: int) -> Tensor:
        """Positions of the ``count`` chosen points among ``points`` ``[m, k]``."""
        mean, total = points.mean(0), torch.zeros_like(points[0])
        free = torch.zeros_like(points[:, 0])
        picked: list[int] = []
        for i in range(count):
            distance = ((i + 1) * mean - total - points).norm(dim=1) + free
            picked.append(int(distance.argmin()))
            free[picked[-1]] = torch.inf
            total += points[picked[-1]]
        return torch.tensor(picked)
