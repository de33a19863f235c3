"""Hypergradients and responses at points of trajectories, shared by both schedules of alignment."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hcdc.condensers.validation._run import Run
from hcdc.condensers.validation._settings import Alignment
from hcdc.core.errors import NumericalError
from hcdc.hypergrad import Trajectories, trajectory_starts
from hcdc.networks import Params
from hcdc.spaces import halves


@dataclass
class Points:
    """What alignment needs at each lambda: B rows per field.

    Attributes:
        lam: lambda ``[B, H]``.
        at: lambda as networks use it ``[B, H]``, see `Run.drawn`.
        g_T, v_T: Original hypergradients ``[B, H]`` and values ``[B]`` of the target loss.
        score_T: Original validation scores ``[B]`` (accuracy), for rivals that use the same full trainings.
        params, response: theta^S ``[B, ...]`` and J ``[B, H, ...]``.
    """

    lam: Tensor
    at: Tensor
    g_T: Tensor
    v_T: Tensor
    score_T: Tensor
    params: Params = field(repr=False)
    response: Params = field(repr=False)

    def rows(self, index: Tensor) -> Points:
        return Points(
            self.lam[index],
            self.at[index],
            self.g_T[index],
            self.v_T[index],
            self.score_T[index],
            {name: tensor[index] for name, tensor in self.params.items()},
            {name: tensor[index] for name, tensor in self.response.items()},
        )

    def joined(self, other: Points) -> Points:
        return Points(
            torch.cat([self.lam, other.lam]),
            torch.cat([self.at, other.at]),
            torch.cat([self.g_T, other.g_T]),
            torch.cat([self.v_T, other.v_T]),
            torch.cat([self.score_T, other.score_T]),
            {name: torch.cat([tensor, other.params[name]]) for name, tensor in self.params.items()},
            {name: torch.cat([tensor, other.response[name]]) for name, tensor in self.response.items()},
        )


class AlignedRun(Run):
    """A run of alignment, by either schedule."""

    config: Alignment

    def starts(self) -> Tensor:
        """lambda_{i,0}: random points or, in a finite space, candidates from the condensing half."""
        if self.space.candidates() is None:
            return trajectory_starts(self.space, self.config.trajectories, self.seed).to(self.device)
        half = halves(self.space, self.seed)[0][: self.config.trajectories]
        starts = torch.stack([self.space.encode(config) for config in half]).float().to(self.device)
        return self.coordinates(starts)

    def moved(self, lam: Tensor, direction: Tensor) -> Tensor:
        """lambda ``[B, H]`` after a step against a direction; logits are unbounded, so not projected."""
        if self.config.relaxation == "softmax":
            return Trajectories(self.space, lam).step(direction, self.config.step_lam)
        return lam - self.config.step_lam * direction

    def points(self, lam: Tensor, name: str) -> Points:
        """Train at each lambda on the original data and on S_train; compute hypergradients and responses."""
        self.candidates += self.met(lam)
        at = self.drawn(lam, name)
        small = self.small_side(at, name)
        if self.config.response == "shared":
            g_T, v_T, score_T = self.original_at(small[0], at, *self.original(name, 0))
        else:
            g_T, v_T, score_T = self.original_side(at, name)
        bad = torch.nonzero(~torch.isfinite(torch.linalg.vector_norm(g_T, dim=1))).flatten()
        if len(bad):
            raise NumericalError(
                "the original hypergradient at lambda = "
                f"{[round(v, 4) for v in lam[bad[0]].tolist()]} is not finite ({len(bad)} of {len(lam)} "
                f"points); try more damping (now {self.config.damping}) or curvature 'gauss_newton'"
            )
        return Points(lam, at, g_T, v_T, score_T, *small)
