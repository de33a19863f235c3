"""A recorded pool as a problem: rungs that look scores up, on one simulated clock.

A training that was not recorded cannot be replayed, so a rung lists its results or asks a surrogate model.
Every training is paid in full: nothing continues a shorter one.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import unknown_name
from hcdc.core.seeds import numpy_stream
from hcdc.search import Outcome, Problem, Rung, described
from hcdc.spaces import Space

Array = NDArray[np.float64]

NEARBY = 0.1
"""Standard deviation of a step to a nearby candidate, as a share of the range of lambda."""

Scores = Callable[[Sequence[Config], int], Sequence[float]]


class RecordedRung(Rung):
    """Looks scores up; the seconds are those of the simulated clock.

    Args:
        name: Its name.
        price: Seconds per candidate, or their mean where they differ.
        full: Seconds of a full training; the share of a free rung is 0.
        scores: Scores of candidates, given a seed.
        values: Further figures per candidate, by name.
        once: Seconds before the first candidate.
        seconds: Seconds of one candidate, given a seed; None means ``price`` for all.
        loss: Summed training loss of a candidate, if it was recorded; the ladder does not use it.
        subset: Whether it trains on a random subset of the real examples, by the full recipe or another.
    """

    def __init__(
        self,
        name: str,
        price: float,
        full: float,
        scores: Scores,
        values: Mapping[str, Callable[[Config], float]] | None = None,
        once: float = 0.0,
        seconds: Callable[[Config, int], float] | None = None,
        loss: Callable[[Config], float] | None = None,
        subset: bool = False,
    ):
        self.name, self.price, self.scores, self.once = name, price, scores, once
        self.share = 0.0 if name == "free" else price / full
        self.batch = 1 if name == "full" else 64
        self.values, self._seconds, self.loss, self.subset = values or {}, seconds, loss, subset

    def cost(self, config: Config, seed: int) -> float:
        """Seconds of a candidate."""
        return self.price if self._seconds is None else self._seconds(config, seed)

    def run(self, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        if not configs:
            return
        for config, score in zip(configs, self.scores(configs, seed)):
            values = {name: value(config) for name, value in self.values.items()}
            yield Outcome(config, float(score), self.cost(config, seed), values=values)


@dataclass(frozen=True)
class SupernetRanking:
    """A ranking of all candidates by one supernet.

    Attributes:
        seconds: What training it and scoring all candidates is charged.
        score: Accuracy of a candidate with inherited weights.
    """

    seconds: float
    score: Callable[[Config], float]


class Replay(Problem):
    """A pool as a problem.

    Args:
        space: What is searched.
        rungs: The rungs, cheapest first.
        judge: The score that a pick is judged by; no method sees it.
        best, median: The best and the median judged score of the space, or of a reference sample.
        features: Features of all candidates ``[n, f]`` in their order; None asks the space.
        size: The number of parameters of a candidate, to rank by.
        spec: What is replayed.
        candidates: The candidates, where they are not all of the space.
        supernet: A one-shot ranking, if there is one; the ladder does not use it.

    Attributes:
        heard: What a ladder on this problem was told, in order.
    """

    rungs: Sequence[RecordedRung]

    def __init__(
        self,
        space: Space,
        rungs: Sequence[RecordedRung],
        judge: Callable[[Config], float],
        best: float,
        median: float,
        features: Array | None = None,
        size: Callable[[Config], float] | None = None,
        spec: Mapping[str, Any] | None = None,
        candidates: Sequence[Config] | None = None,
        supernet: SupernetRanking | None = None,
    ):
        self.supernet = supernet
        self.space, self.rungs, self.judge, self.best, self.median = space, list(rungs), judge, best, median
        self.size, self._spec, self._part = size, dict(spec or {}), candidates is not None
        self._every = space.candidates() if candidates is None else list(candidates)
        self._table = features
        self.heard: list[tuple[Rung, Outcome]] = []
        self._place = {config_hash(c): i for i, c in enumerate(self._every or [])}
        sample = [space.encode(c).numpy() for c in space.sample(256, numpy_stream(0, "spread"))]
        self._range = np.ptp(np.stack(sample), 0)

    def without(self, *names: str) -> Replay:
        """The same pool with some rungs left out."""
        found = copy.copy(self)
        found.heard = []
        found.rungs = [rung for rung in self.rungs if rung.name not in names]
        return found

    def rung(self, name: str) -> RecordedRung | None:
        """The rung with this name, if there is one."""
        return next((rung for rung in self.rungs if rung.name == name), None)

    @property
    def fidelities(self) -> list[RecordedRung]:
        """The trainings on the original data, shortest first; the last is the full one."""
        return [rung for rung in self.rungs if rung.name.startswith(("short", "subset", "full"))]

    @property
    def subset(self) -> RecordedRung | None:
        """The cheapest training on a random subset of the real examples, if there is one."""
        return min((r for r in self.rungs if r.subset), key=lambda r: r.price, default=None)

    def known(self, config: Config) -> bool:
        """Whether it is a candidate; in an infinite space everything is."""
        return self._every is None or config_hash(config) in self._place

    def candidates(self) -> list[Config] | None:
        return self._every

    def settled(self, proposal: Config, met: Collection[str]) -> Config:
        """The candidate to train for a proposal: itself, unless the pool is a sample of its space.

        Args:
            proposal: Any configuration of the space.
            met: Hashes of the candidates that were trained before.
        """
        return proposal

    def propose(self, count: int, rng: np.random.Generator, near: Sequence[Config] = ()) -> list[Config]:
        if self._part and self._every:
            return [self._every[i] for i in rng.permutation(len(self._every))[:count]]
        if not near:
            return self.space.sample(count, rng)
        at = np.stack([self.space.encode(config).numpy() for config in near])
        lam = at[rng.integers(len(near), size=count)]
        lam += rng.normal(0, NEARBY, lam.shape) * self._range * (rng.random(lam.shape) < 0.5)
        return [self.space.decode(moved) for moved in self.space.project(torch.from_numpy(lam))]

    def features(self, configs: Sequence[Config]) -> Array:
        if self._table is None:
            return np.array([self.space.features(c) for c in configs], np.float64)
        found: Array = self._table[[self._place[config_hash(c)] for c in configs]]
        return found

    def described(self, configs: Sequence[Config]) -> Mapping[str, Array]:
        return described(configs, self.space)

    def hint(self, configs: Sequence[Config]) -> Array | None:
        return None if self.size is None else np.array([self.size(config) for config in configs])

    def tell(self, rung: Rung, outcome: Outcome) -> None:
        self.heard.append((rung, outcome))

    def spec(self) -> dict[str, Any]:
        return {**self._spec, "rungs": [rung.name for rung in self.rungs]}


class Pool(ABC):
    """Problems that are replayed by the same protocol.

    Attributes:
        name: Its name.
        tables: Its problems; one without a name if there is only one.
        prices: Seconds per rung.
        notes: What a record says about the pool.
    """

    tables: tuple[str, ...] = ("",)
    notes: Mapping[str, Any] = {}

    def __init__(self, name: str, prices: Mapping[str, float], changes: Mapping[str, float] | None = None):
        self.name, self.prices = name, {**prices, **(changes or {})}
        for given in changes or {}:
            if given not in prices:
                raise unknown_name(f"price of pool '{name}'", given, prices)

    @abstractmethod
    def problem(self, table: str, seed: int) -> Replay:
        """One problem; the seed decides which recorded run a training returns."""
