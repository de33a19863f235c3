"""A pool that is one file of records: random configurations of a space, each trained at all rungs once.

Methods choose among the recorded configurations, which are a sample of the space. A method that proposes any
point of it (TPE, BOHB, evolution) gets the nearest configuration that it has not trained yet, and is told its
own values. DEHB trains a point again at the next rung, so it gets the nearest one; what it has trained before
costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hcdc.core import records
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.experiments.replay_problem import Pool, RecordedRung, Replay
from hcdc.spaces import Dimension, Space

Array = NDArray[np.float64]

NEEDED = ("number", "seed", "config", "val", "seconds", "test")
"""What every line of a file has."""


SUBSETS = ("copy", "subset")
"""How rungs begin that train on a random subset of the real examples; all recorded copies do."""


class Listed(Space):
    """Some points of a space.

    Args:
        whole: The space.
        configs: The points.
    """

    name = "listed"

    def __init__(self, whole: Space, configs: Sequence[Config]):
        self.whole = whole
        for config in configs:
            whole.check(config)
        self._configs = [dict(config) for config in configs]
        self._hashes = [config_hash(config) for config in configs]
        self._option = np.array([bool(d.choices) for d in whole.dimensions()])
        self._at = np.array([self._places(config) for config in configs])

    def _places(self, config: Config) -> Array:
        """The place of each value ``[d]``: between the bounds, from 0 to 1, or among the options."""
        return np.array([_place(d, config[d.name]) for d in self.whole.dimensions()])

    @property
    def dimension(self) -> int:
        return self.whole.dimension

    def dimensions(self) -> tuple[Dimension, ...]:
        return self.whole.dimensions()

    def check(self, config: Config) -> None:
        self.whole.check(config)

    def decisions(self) -> tuple[int, ...] | None:
        return self.whole.decisions()

    def to_numbers(self, config: Config) -> tuple[int, ...]:
        return self.whole.to_numbers(config)

    def from_numbers(self, numbers: Sequence[int]) -> Config:
        return self.whole.from_numbers(numbers)

    def encode(self, config: Config) -> Tensor:
        return self.whole.encode(config)

    def project(self, lam: Tensor) -> Tensor:
        return self.whole.project(lam)

    def features(self, config: Config) -> list[float]:
        return self.whole.features(config)

    def candidates(self) -> list[Config]:
        return [dict(config) for config in self._configs]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` points in random order; each comes once before any repeats."""
        rounds = -(-count // len(self._configs))
        order = np.concatenate([rng.permutation(len(self._configs)) for _ in range(rounds)])[:count]
        return [dict(self._configs[i]) for i in order]

    def nearest(self, config: Config, met: Collection[str] = ()) -> Config:
        """The point nearest to a configuration; if possible, one whose hash is not in ``met``.

        Another option counts as much as the whole range of a number.
        """
        at = self._places(config)
        apart = np.where(self._option, self._at != at, (self._at - at) ** 2)
        order = np.argsort(apart.sum(1), kind="stable")
        chosen = next((i for i in order if self._hashes[i] not in met), order[0])
        return dict(self._configs[chosen])

    def counterpart(self, config: Config) -> Config:
        return self.nearest(config)

    def decode(self, lam: Tensor) -> Config:
        return self.nearest(self.whole.decode(lam))

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """The point nearest to a small move of one hyperparameter, other than the configuration itself."""
        return self.nearest(self.whole.mutate(config, rng), {config_hash(config)})

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "whole": self.whole.spec(), "configs": self.candidates()}


def _place(d: Dimension, value: Any) -> float:
    if d.choices:
        return d.number(value)
    if d.distribution == "uniform":
        return float((value - d.low) / (d.high - d.low))
    low, high = math.log10(d.low), math.log10(d.high)
    return (math.log10(value) - low) / (high - low)


class Sampled(Replay):
    """A pool that is a sample of its space."""

    space: Listed

    def settled(self, proposal: Config, met: Collection[str]) -> Config:
        return self.space.nearest(proposal, met)


class Draw:
    """What is recorded of one rung, or of one draw of a copy.

    Args:
        rung: Its name in the file.
        lines: The lines of each configuration.

    Attributes:
        runs: Scores in percent and seconds, by configuration and run.
        losses: The summed training loss of each configuration's first run; empty if some have none.
    """

    def __init__(self, rung: str, lines: Sequence[Sequence[Mapping[str, Any]]]):
        own = [[r for r in some if rung in r["val"]] for some in lines]
        self.runs = [[(100 * (r["val"][rung] or 0), r["seconds"][rung]) for r in some] for some in own]
        found = [some[0]["train_loss"][rung] for some in own if rung in some[0].get("train_loss", ())]
        every = len(found) == len(own)
        self.losses = [math.inf if loss is None else loss for loss in found] if every else []


def _mean_seconds(draws: Sequence[Draw]) -> float:
    return float(np.mean([cost for draw in draws for some in draw.runs for _, cost in some]))


class Recorded(Pool):
    """A file of records, such as `hcdc.experiments.flights` writes.

    Each line is one configuration and seed: validation scores and seconds by rung, the test score of the full
    training and, in some files, summed training losses by rung. A search sees single runs at their recorded
    seconds, another seed another run as long as there is one; picks are judged by the mean test score over
    runs. Rungs ``copy:0``, ``copy:1``, ... are draws of one rung ``copy``, which replays take in turn. Scores
    are in percent; a training that diverged, recorded as null, scores 0.

    Args:
        name: Its name.
        space: What the configurations were drawn from.
        file: The file.
    """

    def __init__(self, name: str, space: Space, file: str | Path):
        lines = _read(Path(file))
        first = {r["number"]: r for r in lines if r["seed"] == 0}
        if not first:
            raise InputError(f"'{file}' has no line with seed 0, which has the scores of all rungs")
        runs = [[r for r in lines if r["number"] == number] for number in first]
        self.space = Listed(space, [r["config"] for r in first.values()])
        self._place = {config_hash(config): i for i, config in enumerate(self.space.candidates())}
        self._test = np.array([100 * np.mean([r["test"] or 0 for r in some]) for some in runs])
        self._features = np.array([self.space.features(config) for config in self.space.candidates()])
        self._draws: dict[str, list[Draw]] = {}
        for rung in sorted(next(iter(first.values()))["val"]):
            draws = self._draws.setdefault("copy" if rung.startswith("copy:") else rung, [])
            draws.append(Draw(rung, runs))
        means = {rung: round(_mean_seconds(draws), 4) for rung, draws in self._draws.items()}
        order = sorted(means, key=lambda rung: (rung == "full", means[rung]))
        super().__init__(name, {rung: means[rung] for rung in order})
        self.notes = {"candidates": len(first)}

    def problem(self, table: str, seed: int) -> Replay:
        rungs = [self._rung(name, seed) for name in self.prices]

        def judged(config: Config) -> float:
            return float(self._test[self._place[config_hash(config)]])

        best, median = float(self._test.max()), float(np.median(self._test))
        given = {"pool": self.name}
        return Sampled(self.space, rungs, judged, best, median, self._features, spec=given)

    def validation(self, config: Config) -> float:
        """The mean validation score of a configuration's full trainings."""
        runs = self._draws["full"][0].runs[self._place[config_hash(config)]]
        return float(np.mean([score for score, _ in runs]))

    def _rung(self, name: str, seed: int) -> RecordedRung:
        """A rung whose trainings are the recorded runs, in an order that the replay's seed decides."""
        draws, turns = self._draws[name], numpy_stream(seed, "replay-runs", name).random(len(self._test))
        draw = draws[seed % len(draws)]
        heard: list[list[int]] = [[] for _ in draw.runs]

        def run(config: Config, seed: int) -> tuple[float, float]:
            i = self._place[config_hash(config)]
            if seed not in heard[i]:
                heard[i].append(seed)
            place = int(turns[i] * len(draw.runs[i])) + heard[i].index(seed)
            return draw.runs[i][place % len(draw.runs[i])]

        def scores(configs: Sequence[Config], seed: int) -> list[float]:
            return [run(config, seed)[0] for config in configs]

        def seconds(config: Config, seed: int) -> float:
            return run(config, seed)[1]

        def loss(config: Config) -> float:
            return draw.losses[self._place[config_hash(config)]]

        price, full = self.prices[name], self.prices["full"]
        rung = RecordedRung(
            name, price, full, scores, seconds=seconds, loss=loss if draw.losses else None,
            subset=name.startswith(SUBSETS),
        )  # fmt: skip
        rung.batch = 1
        return rung


def _read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file; refuses a missing file and lines without what is needed."""
    if not file.exists():
        raise InputError(f"'{file}' does not exist; run this in the repository, or name the file with --data")
    lines = list(records.read(file))
    for number, line in enumerate(lines, 1):
        for key in NEEDED:
            if key not in line:
                raise InputError(f"line {number} of '{file}' has no '{key}'; it needs {', '.join(NEEDED)}")
    return lines
