"""What is searched: configurations (what users read), their relaxation lambda, the networks they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.networks import Network


class Space(ABC):
    """A search space.

    A *config* is a JSON-able dict. ``lam`` is its relaxation, a vector of ``dimension`` numbers inside a
    compact connected set (the extended space of the paper); ``encode`` and ``decode`` go between them,
    ``project`` returns to the set.

    Attributes:
        batched: Every candidate has the same parameter shapes and the relaxed network at ``encode(config)``
            *is* the candidate, so that many candidates train in one batch.
    """

    name: str
    batched: bool = False

    @property
    @abstractmethod
    def dimension(self) -> int:
        """H, the number of relaxed hyperparameters."""

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` configurations, distinct where the space has that many."""

    @abstractmethod
    def encode(self, config: Config) -> Tensor:
        """lambda ``[H]`` of a configuration, float64 on the CPU."""

    @abstractmethod
    def decode(self, lam: Tensor) -> Config:
        """The configuration at (for finite spaces: nearest to) lambda ``[H]``."""

    @abstractmethod
    def project(self, lam: Tensor) -> Tensor:
        """The nearest point of the extended space, for one lambda ``[H]`` or a batch ``[B, H]``."""

    def candidates(self) -> list[Config] | None:
        """All configurations of a finite space, in a fixed order; None for an infinite one."""
        return None

    def counterpart(self, config: Config) -> Config:
        """The candidate that computes what a configuration does; itself by default."""
        return config

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """A JSON-able description from which `hcdc.spaces.from_spec` makes the space again."""

    def network(self, features: int, classes: int, config: Config | None = None) -> Network | None:
        """The network of ``config``, or the relaxed one where that is None; None if the task has its own."""
        return None

    def features(self, config: Config) -> list[float]:
        """Numbers that describe a configuration to a regression; lambda by default."""
        described: list[float] = self.encode(config).tolist()
        return described

    def parameter_count(self, config: Config, features: int, classes: int) -> int | None:
        """Number of parameters of the candidate's network, the cheapest rival of any ranking."""
        network = self.network(features, classes, config)
        if network is None:
            return None
        return sum(p.numel() for p in network.init(torch.Generator().manual_seed(0)).values())


def stack(space: Space, configs: Sequence[Config]) -> Tensor:
    """lambda of several configurations, ``[B, H]`` float32."""
    return torch.stack([space.encode(config) for config in configs]).float()
