"""Searchers: ask for a configuration, train it, tell its score."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import HcdcError, InputError
from hcdc.core.seeds import numpy_stream
from hcdc.core.settings import Settings
from hcdc.spaces import Space
from hcdc.tasks import Task

TRIES = 100
"""Draws before a configuration that was seen before is accepted."""


class Exhausted(HcdcError):
    """A searcher has asked for every configuration of its space."""


@dataclass(frozen=True)
class SearcherSettings(Settings):
    """Settings of a searcher; by default none."""

    name = "searcher"

    @classmethod
    def owner(cls) -> str:
        return f"searcher '{cls.name}'"


class Searcher(ABC):
    """Proposes configurations, given the scores of earlier ones.

    What it asks for depends only on the seed, what it was told, and how many asks are still open. So a new
    searcher that is told the same continues as the old one would have.

    A subclass defines ``propose``, and ``learn`` if it keeps more than the history.

    Args:
        space: The search space.
        seed: The user's seed; streams have the role ``"search"``.
        settings: Settings by name, see ``Settings`` of the class.

    Attributes:
        history: Configurations and scores in the order they were told; failed ones score -inf.
        pending: Configurations asked for and not yet told.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[SearcherSettings]] = SearcherSettings
    needs_task: ClassVar[bool] = False
    settings: Any

    def __init__(self, space: Space, seed: int = 0, **settings: Any):
        self.space, self.seed = space, seed
        self.settings = self.Settings.from_preset(overrides=settings)
        self.history: list[tuple[Config, float]] = []
        self.pending: list[Config] = []
        self._seen: set[str] = set()
        self._every = space.candidates()
        self._order: list[int] = []
        if self._every is not None:
            self._order = numpy_stream(seed, "search", self.name).permutation(len(self._every)).tolist()
        self._place = 0

    def ask(self) -> Config:
        """The next configuration to score.

        Raises:
            Exhausted: There is none left.
        """
        config = self.propose()
        self.pending.append(config)
        self._seen.add(config_hash(config))
        return dict(config)

    def tell(self, config: Config, score: float | None) -> None:
        """Report a score; higher is better.

        Args:
            config: Any configuration of the space, asked for or not.
            score: Its score; None or NaN means that it failed, which ranks last.
        """
        self.space.check(config)
        value = -math.inf if score is None or math.isnan(score) else float(score)
        if config in self.pending:
            self.pending.remove(config)
        self._seen.add(config_hash(config))
        self.history.append((dict(config), value))
        self.learn(config, value)

    @property
    def best(self) -> Config | None:
        """The best configuration told so far, the first among equals; None if none succeeded."""
        told = [(config, score) for config, score in self.history if score > -math.inf]
        return dict(max(told, key=lambda pair: pair[1])[0]) if told else None

    @abstractmethod
    def propose(self) -> Config:
        """The next configuration; `ask` keeps account of it."""

    def learn(self, config: Config, score: float) -> None:
        """Update from a score, which may be -inf; nothing by default."""
        return

    @property
    def number(self) -> int:
        """How many configurations were told or are pending: the number of the next ask."""
        return len(self.history) + len(self.pending)

    def stream(self) -> np.random.Generator:
        """Random numbers for the next ask."""
        return numpy_stream(self.seed, "search", self.name, self.number)

    def seen(self, config: Config) -> bool:
        """Whether a configuration was asked for or told."""
        return config_hash(config) in self._seen

    def fresh(self) -> Config:
        """A random configuration that was not seen, as long as the space has one."""
        if self._every is None:
            rng = self.stream()
            return self.unseen(lambda: self.space.sample(1, rng)[0])
        while self._place < len(self._order):
            config = self._every[self._order[self._place]]
            if not self.seen(config):
                return config
            self._place += 1
        raise Exhausted(
            f"searcher '{self.name}' has asked for all {len(self._every):,} configurations of space "
            f"'{self.space.name}'"
        )

    def unseen(self, draw: Callable[[], Config]) -> Config:
        """The first of `TRIES` draws that was not seen; the last draw if all were."""
        for _ in range(TRIES):
            config = draw()
            if not self.seen(config):
                break
        return config

    def reward(self, score: float) -> float | None:
        """A finite score: failures count as the worst success so far; None if there is none."""
        if score > -math.inf:
            return score
        return min((told for _, told in self.history if told > -math.inf), default=None)


def discrete(space: Space, name: str) -> tuple[int, ...]:
    """`Space.decisions`; refuse a space with continuous hyperparameters."""
    sizes = space.decisions()
    if sizes is None:
        raise InputError(
            f"searcher '{name}' chooses among options, and space '{space.name}' has continuous "
            "hyperparameters; use 'random', 'evolution' or a finite space"
        )
    return sizes


class TaskSearcher(Searcher):
    """A searcher that trains on a task itself; scores are recorded but not used.

    Args:
        space, seed, settings: As in `Searcher`.
        task: The task; its own data is the default.
        train, val: Labelled sets to train and validate on instead, such as those of a condensed dataset.
    """

    needs_task = True

    def __init__(
        self, space: Space, seed: int = 0, *, task: Task, train: Any = None, val: Any = None, **settings: Any
    ):
        super().__init__(space, seed, **settings)
        self.task, self.on_copy = task, train is not None
        self.train = task.train if train is None else train
        self.val = task.val if val is None else val
        self.device = self.train.y.device
