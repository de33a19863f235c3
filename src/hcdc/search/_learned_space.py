"""A search space that is learned from what trials read; parameters may depend on one another."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.search._distributions import Distribution
from hcdc.search._problem import Array
from hcdc.search._trial import keyed_value, told

UNREAD = "(not read)"
MOST_VALUES = 20
"""A parameter with more values than this is not tried as the reason why another one is read."""


class LearnedSpace:
    """The union of the parameters that trials have read.

    A parameter that some trials do not read is conditional. If the value of an earlier discrete parameter
    explains when it is read, proposals leave it out where it would not be read.

    Attributes:
        distributions: By name, in the order in which they were met.
        conditions: By conditional name, the parameter that decides and its values for which it is read.
    """

    def __init__(self) -> None:
        self.distributions: dict[str, Distribution] = {}
        self.conditions: dict[str, tuple[str, frozenset[str]]] = {}
        self._trials: list[Mapping[str, Any]] = []
        self._seen: dict[tuple[str, str], dict[str, set[bool]]] = {}
        self._reads: Counter[str] = Counter()

    def check(self, distributions: Mapping[str, Distribution], rung: str) -> None:
        """Refuse a trial whose distributions differ from those of earlier trials."""
        for name, dist in distributions.items():
            known = self.distributions.get(name, dist)
            if known != dist:
                raise InputError(
                    f"parameter '{name}' was {told(known)} in earlier trials and is {told(dist)} on rung "
                    f"'{rung}'; a range must be the same in every trial and on every rung: give another "
                    "range another name"
                )

    def learn(
        self, distributions: Mapping[str, Distribution], params: Mapping[str, Any], whole: bool
    ) -> bool:
        """Learn from a trial; True if candidates are now described in another way.

        Args:
            distributions: Distributions that may be new.
            params: What the trial read.
            whole: Whether it ran to its end, so that what it did not read is not needed.
        """
        new = [name for name in distributions if name not in self.distributions]
        self.distributions.update({name: distributions[name] for name in new})
        before = self.conditions
        if whole:
            self._trials.append(params)
            self._count([params], list(self.distributions))
        if new:
            self._count(self._trials[:-1] if whole else self._trials, new)
        self.conditions = self._conditions()
        return bool(new) or self.conditions != before

    def _count(self, trials: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
        """Note, for every value of every discrete parameter, whether ``names`` were read."""
        for params in trials:
            for name in names:
                read = name in params
                self._reads[name] += read
                for other in itertools.takewhile(name.__ne__, self.distributions):
                    if self.distributions[other].values <= MOST_VALUES:
                        seen = self._seen.setdefault((name, other), {})
                        seen.setdefault(repr(params.get(other, UNREAD)), set()).add(read)

    def _conditions(self) -> dict[str, tuple[str, frozenset[str]]]:
        found: dict[str, tuple[str, frozenset[str]]] = {}
        for name in self.distributions:
            if self._reads[name] == len(self._trials):
                continue
            pure = [
                (len(seen), other, frozenset(value for value, some in seen.items() if True in some))
                for other in itertools.takewhile(name.__ne__, self.distributions)
                if len(seen := self._seen.get((name, other), {})) > 1
                and all(len(s) == 1 for s in seen.values())
            ]
            if pure:
                found[name] = min(pure, key=lambda some: some[0])[1:]
        return found

    @property
    def combinations(self) -> float:
        """Configurations if every parameter is always read; infinite where one is real."""
        return math.prod(dist.values for dist in self.distributions.values())

    def size(self) -> float:
        """Number of configurations: `combinations`, or infinite unless trials show that nothing is missing.

        That is the case if each of them read all parameters, and every value of those with few was tried: a
        value that was not may lead to a parameter that nobody has met.
        """
        whole = all(self._reads[name] == len(self._trials) for name in self.distributions)
        tried = all(len(self._tried(name)) >= self.distributions[name].values for name in self._few())
        return self.combinations if whole and tried else math.inf

    def unexplored(self, rng: np.random.Generator) -> Config:
        """A random configuration with values that no trial has tried, where there are such."""
        config = self.propose(1, rng)[0]
        for name in self._few():
            tried = self._tried(name)
            fresh = (
                value
                for _ in range(10 * MOST_VALUES)
                if repr(value := self.distributions[name].draw(rng)) not in tried
            )
            config[name] = next(fresh, config.get(name, self.distributions[name].draw(rng)))
        return config

    def _few(self) -> list[str]:
        """Parameters with few values."""
        return [name for name, dist in self.distributions.items() if dist.values <= MOST_VALUES]

    def _tried(self, name: str) -> set[str]:
        """Values of a parameter in trials that ran to their end."""
        return {repr(params[name]) for params in self._trials if name in params}

    def reads(self, config: Config, name: str) -> bool:
        """Whether the objective is expected to read a parameter of a configuration."""
        if name not in self.conditions:
            return True
        other, values = self.conditions[name]
        value = keyed_value(config, other, self.distributions[other]) if self.reads(config, other) else UNREAD
        return repr(value) in values

    def propose(self, count: int, rng: np.random.Generator, near: Sequence[Config] = ()) -> list[Config]:
        """Configurations at random, or each close to one of ``near``: about half of its values change."""
        found = []
        for _ in range(count):
            parent = near[int(rng.integers(len(near)))] if near else None
            config: Config = {}
            for name, dist in self.distributions.items():
                if parent is None:
                    value = dist.draw(rng)
                else:
                    value = keyed_value(parent, name, dist)
                    value = dist.near(value, rng) if rng.random() < 0.5 else value
                if self.reads(config, name):
                    config[name] = value
            found.append(config)
        return found

    def features(self, configs: Sequence[Config]) -> Array:
        """Numbers ``[n, f]``: one per numeric parameter, one per choice, one that says whether it is read."""
        columns = [np.empty((len(configs), 0))]
        for name, dist in self.distributions.items():
            found = dist.columns([keyed_value(config, name, dist) for config in configs])
            if name in self.conditions:
                read = np.array([self.reads(config, name) for config in configs]).reshape(-1, 1)
                found = np.concatenate([np.where(read, found, dist.blank), read], 1)
            columns.append(found)
        return np.concatenate(columns, 1)

    def described(self, configs: Sequence[Config]) -> dict[str, Array]:
        """Numbers per parameter, ``[n]`` or ``[n, choices]``; NaN, or no choice, where it is not read."""
        found = {}
        for name, dist in self.distributions.items():
            values = dist.columns([keyed_value(config, name, dist) for config in configs])
            read = np.array([self.reads(config, name) for config in configs])
            values = values.astype(np.float64)
            found[name] = (
                np.where(read, values[:, 0], np.nan) if values.shape[1] == 1 else values * read[:, None]
            )
        return found
