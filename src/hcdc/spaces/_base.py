"""What is searched: configurations (what users read), their relaxation lambda, the networks they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.networks import Network
from hcdc.spaces._candidate import Candidate
from hcdc.spaces._dimension import TRAINING, Dimension, check_names
from hcdc.spaces._words import words


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
    def dimensions(self) -> tuple[Dimension, ...]:
        """The hyperparameters, one per key of a configuration."""

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

    def check(self, config: Config) -> None:
        """Refuse a configuration of another space in a sentence that names the key or the value."""
        names = [d.name for d in self.dimensions()]
        check_names(self.name, config, names, names)
        for d in self.dimensions():
            d.check(config[d.name])

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
        if config is not None:
            self.check(config)
        return None

    def candidate(self, config: Config, features: int, classes: int) -> Candidate:
        """The network of ``config`` and what differs in its training.

        Dimensions that the recipe reads become its ``recipe``, the others decide its ``shape``.

        Args:
            config: The configuration.
            features: Features of a node or row, or channels of an image.
            classes: Number of classes.
        """
        self.check(config)
        settings = [d for d in self.dimensions() if d.read_by == "recipe" and d.name in config]
        recipe = {d.name: d.setting(config[d.name]) for d in settings}
        return Candidate(config, self.network(features, classes, config), recipe, self._shape(config, recipe))

    def _shape(self, config: Config, recipe: Collection[str]) -> str:
        """`Candidate.shape`: what differs besides the recipe, unless all candidates share a batch."""
        rest = {name: value for name, value in config.items() if name not in recipe}
        return "" if self.batched else config_hash(rest)

    def unread(self, model: Collection[str] = (), recipe: Collection[str] = TRAINING) -> list[str]:
        """Names of the dimensions that nothing reads.

        Args:
            model: Names that the task or the user's model reads.
            recipe: Settings that the task's training reads.
        """
        read = {*model, *recipe}
        return [d.name for d in self.dimensions() if d.read_by != "network" and d.name not in read]

    def check_read(self, model: Collection[str] = (), recipe: Collection[str] = TRAINING) -> None:
        """Refuse a space with a dimension that nothing reads; the arguments are those of `unread`."""
        if names := self.unread(model, recipe):
            settings = f"name a recipe setting ({', '.join(recipe)}), or " if recipe else ""
            raise InputError(
                f"hyperparameter '{names[0]}': nothing reads it, so candidates that differ in it alone are "
                f"the same; {settings}give the task a model that reads it"
            )

    def features(self, config: Config) -> list[float]:
        """Numbers that describe a configuration to a regression; lambda by default."""
        described: list[float] = self.encode(config).tolist()
        return described

    def parameter_count(self, config: Config, features: int, classes: int) -> int | None:
        """Number of parameters of the candidate's network, the cheapest rival of any ranking."""
        network = self.network(features, classes, config)
        if network is None:
            return None
        return network.parameter_count()

    def words(self) -> str:
        """The dimensions in one short line."""
        return words(self.dimensions())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.words()})"


def stack(space: Space, configs: Sequence[Config]) -> Tensor:
    """lambda of several configurations, ``[B, H]`` float32."""
    return torch.stack([space.encode(config) for config in configs]).float()
