"""What is searched: configurations, their relaxation lambda, and the networks they build."""

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
from hcdc.spaces._dimension import TRAINING, Dimension, check_names, nudged
from hcdc.spaces._words import words


class Space(ABC):
    """A search space.

    A *config* is a JSON-able dict. ``lam`` is its relaxation, a vector of ``dimension`` numbers in a compact
    connected set (the paper's extended space). ``encode`` and ``decode`` convert between them; ``project``
    returns to the set.

    Attributes:
        batched: All candidates have the same parameter shapes, and the relaxed network at ``encode(config)``
            *is* the candidate, so many candidates can train in one batch.
        plain: It leaves the network to the task: a small ResNet, MLP or GCN, see `sizes`.
    """

    name: str
    batched: bool = False
    plain: bool = False

    @property
    @abstractmethod
    def dimension(self) -> int:
        """H, the number of relaxed hyperparameters."""

    @property
    def even(self) -> bool:
        """Whether lambda and -lambda give the same results, up to the random initialisation."""
        return False

    @abstractmethod
    def dimensions(self) -> tuple[Dimension, ...]:
        """The hyperparameters, one per key of a configuration."""

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` configurations, distinct if the space has that many."""

    @abstractmethod
    def encode(self, config: Config) -> Tensor:
        """lambda ``[H]`` of a configuration, float64 on the CPU."""

    @abstractmethod
    def decode(self, lam: Tensor) -> Config:
        """The configuration at lambda ``[H]``; in finite spaces, the nearest one."""

    @abstractmethod
    def project(self, lam: Tensor) -> Tensor:
        """The nearest point of the extended space, for one lambda ``[H]`` or a batch ``[B, H]``."""

    def check(self, config: Config) -> None:
        """Refuse a configuration that is not in this space, naming the wrong key or value."""
        names = [d.name for d in self.dimensions()]
        check_names(self.name, config, names, names)
        for d in self.dimensions():
            d.check(config[d.name])

    def candidates(self) -> list[Config] | None:
        """All configurations of a finite space, in a fixed order; None for an infinite one."""
        return None

    def counterpart(self, config: Config) -> Config:
        """The candidate that computes the same as a configuration; itself by default."""
        return config

    def decisions(self) -> tuple[int, ...] | None:
        """Numbers of options of the independent choices behind a configuration; None if some are continuous.

        By default one choice per dimension. `to_numbers` and `from_numbers` convert.
        """
        dimensions = self.dimensions()
        discrete = all(d.distribution == "choice" for d in dimensions)
        return tuple(len(d.choices) for d in dimensions) if discrete else None

    def to_numbers(self, config: Config) -> tuple[int, ...]:
        """The number of the chosen option, for each of `decisions`."""
        self.check(config)
        return tuple(d.number(config[d.name]) for d in self.dimensions())

    def from_numbers(self, numbers: Sequence[int]) -> Config:
        """The configuration with these options."""
        return {d.name: d.choices[n] for d, n in zip(self.dimensions(), numbers)}

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations that differ in one of `decisions`."""
        sizes = self.decisions()
        if sizes is None:
            raise InputError(
                f"space '{self.name}' has continuous hyperparameters, so a configuration has no list of "
                "neighbours; use a finite space"
            )
        return [self.from_numbers(numbers) for numbers in nearby(self.to_numbers(config), sizes)]

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """A random neighbour; in a space with continuous hyperparameters, one of them is moved a little.

        A configuration without neighbours (the only one of its space) is returned unchanged.
        """
        if self.decisions() is not None:
            near = self.neighbours(config)
            return near[int(rng.integers(len(near)))] if near else dict(config)
        present = [d for d in self.dimensions() if d.name in config]
        moved = present[int(rng.integers(len(present)))]
        return {**config, moved.name: nudged(moved, config[moved.name], rng)}

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """A JSON-able description from which `hcdc.spaces.from_spec` rebuilds the space."""

    def network(self, features: int, classes: int, config: Config | None = None) -> Network | None:
        """The network of ``config``, or the relaxed one for None; None if the task has its own model."""
        if config is not None:
            self.check(config)
        return None

    def sizes(self, config: Config | None) -> dict[str, Any]:
        """Width and depth of the task's own network that a configuration asks for, if any."""
        return {name: config[name] for name in ("width", "depth") if config is not None and name in config}

    def candidate(self, config: Config, features: int, classes: int) -> Candidate:
        """The network of ``config`` and what differs in its training.

        Dimensions read by the recipe go into ``recipe``; the others determine ``shape``.

        Args:
            config: The configuration.
            features: Features per node or row, or channels per image.
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
            model: Names read by the task or the user's model.
            recipe: Settings read by the task's training.
        """
        read = {*model, *recipe}
        return [d.name for d in self.dimensions() if d.read_by != "network" and d.name not in read]

    def check_read(self, model: Collection[str] = (), recipe: Collection[str] = TRAINING) -> None:
        """Refuse a space with a dimension that nothing reads; arguments as in `unread`."""
        if names := self.unread(model, recipe):
            settings = f"name a recipe setting ({', '.join(recipe)}), " if recipe else ""
            raise InputError(
                f"hyperparameter '{names[0]}': nothing reads it, so candidates that differ only in it are "
                f"the same; {settings}give the task a model that reads it, or leave out {', '.join(names)}"
            )

    def features(self, config: Config) -> list[float]:
        """Numbers that describe a configuration to a regression; lambda by default."""
        described: list[float] = self.encode(config).tolist()
        return described

    def structure(self, config: Config) -> dict[str, float]:
        """Further figures of an architecture that cost nothing to know, by name; none by default."""
        return {}

    def promises(self, config: Config) -> dict[str, float]:
        """Figures of an architecture by name, of which more promises a better network; none by default."""
        return {}

    def parameter_count(self, config: Config, features: int, classes: int) -> int | None:
        """Number of parameters of the candidate's network: the cheapest way to rank."""
        network = self.network(features, classes, config)
        if network is None:
            return None
        return network.parameter_count()

    def words(self) -> str:
        """The dimensions in one short line."""
        return words(self.dimensions())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.words()})"


def nearby(numbers: tuple[int, ...], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """All changes of one of ``numbers`` to another option, given the numbers of options."""
    return [
        (*numbers[:k], option, *numbers[k + 1 :])
        for k, size in enumerate(sizes)
        for option in range(size)
        if option != numbers[k]
    ]


def stack(space: Space, configs: Sequence[Config]) -> Tensor:
    """lambda of several configurations, ``[B, H]`` float32."""
    return torch.stack([space.encode(config) for config in configs]).float()
