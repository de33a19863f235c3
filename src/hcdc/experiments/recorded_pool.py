"""A pool that is one file of records: random configurations of a box, each trained at all rungs once.

Methods choose among the recorded configurations, which are a sample of the box. A method that proposes any
point of the box (TPE, BOHB, evolution) gets the nearest configuration that it has not trained yet, and is
told its own values. DEHB trains a point again at the next rung, so it gets the nearest one; what it has
trained before costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from hcdc.spaces import Box

Array = NDArray[np.float64]

NEEDED = ("number", "seed", "config", "val", "seconds", "test")
"""What every line of a file has."""


class Listed(Box):
    """Some points of a box.

    Args:
        box: The box.
        configs: The points.
    """

    name = "listed"

    def __init__(self, box: Box, configs: Sequence[Config]):
        super().__init__(box.names, box.low, box.high, box.scale, box.visibility)
        self._configs = [dict(config) for config in configs]
        self._hashes = [config_hash(config) for config in configs]
        self._at = np.array([self._unit(config) for config in configs])

    def _unit(self, config: Config) -> Array:
        """A configuration in the unit cube ``[H]``."""
        found: Array = ((self.encode(config) - self._low) / (self._high - self._low)).numpy()
        return found

    def candidates(self) -> list[Config]:
        return [dict(config) for config in self._configs]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` points in random order; each comes once before any repeats."""
        rounds = -(-count // len(self._configs))
        order = np.concatenate([rng.permutation(len(self._configs)) for _ in range(rounds)])[:count]
        return [dict(self._configs[i]) for i in order]

    def nearest(self, config: Config, met: Collection[str] = ()) -> Config:
        """The point nearest to a configuration of the box; if possible, one whose hash is not in ``met``."""
        order = np.argsort(((self._at - self._unit(config)) ** 2).sum(1), kind="stable")
        chosen = next((i for i in order if self._hashes[i] not in met), order[0])
        return dict(self._configs[chosen])

    def counterpart(self, config: Config) -> Config:
        return self.nearest(config)

    def decode(self, lam: Tensor) -> Config:
        return self.nearest(super().decode(lam))

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """The point nearest to a small move of one hyperparameter, other than the configuration itself."""
        return self.nearest(super().mutate(config, rng), {config_hash(config)})

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "configs": self.candidates()}


class Sampled(Replay):
    """A pool that is a sample of its space."""

    space: Listed

    def settled(self, proposal: Config, met: Collection[str]) -> Config:
        return self.space.nearest(proposal, met)


class Recorded(Pool):
    """A file of records, such as `hcdc.experiments.flights` writes.

    Each line is one configuration and seed: validation scores and seconds by rung, and the test score of the
    full training. A search sees single runs at their recorded seconds, another seed another run as long as
    there is one; picks are judged by the mean test score over runs. Scores are in percent.

    Args:
        name: Its name.
        box: What the configurations were drawn from.
        file: The file.
    """

    def __init__(self, name: str, box: Box, file: str | Path):
        lines = _read(Path(file))
        first = {r["number"]: r for r in lines if r["seed"] == 0}
        if not first:
            raise InputError(f"'{file}' has no line with seed 0, which has the scores of all rungs")
        runs = {number: [r for r in lines if r["number"] == number] for number in first}
        shares = next(iter(first.values()))["shares"]
        self.space = Listed(box, [r["config"] for r in first.values()])
        self._place = {config_hash(config): i for i, config in enumerate(self.space.candidates())}
        self._runs = {
            rung: [[(100 * r["val"][rung], r["seconds"][rung]) for r in some if rung in r["val"]]
                   for some in runs.values()]
            for rung in sorted(shares, key=lambda rung: float(shares[rung]))
        }  # fmt: skip
        self._test = np.array([100 * np.mean([r["test"] for r in some]) for some in runs.values()])
        self._features = np.array([self.space.features(config) for config in self.space.candidates()])
        means = {
            rung: round(float(np.mean([cost for one in some for _, cost in one])), 4)
            for rung, some in self._runs.items()
        }
        super().__init__(name, means)
        self.notes = {"candidates": len(first)}

    def problem(self, table: str, seed: int) -> Replay:
        rungs = [self._rung(name, seed) for name in self._runs]

        def judged(config: Config) -> float:
            return float(self._test[self._place[config_hash(config)]])

        best, median = float(self._test.max()), float(np.median(self._test))
        given = {"pool": self.name}
        return Sampled(self.space, rungs, judged, best, median, self._features, spec=given)

    def _rung(self, name: str, seed: int) -> RecordedRung:
        """A rung whose trainings are the recorded runs, in an order that the replay's seed decides."""
        runs, turns = self._runs[name], numpy_stream(seed, "replay-runs", name).random(len(self._test))
        heard: list[list[int]] = [[] for _ in runs]

        def run(config: Config, seed: int) -> tuple[float, float]:
            i = self._place[config_hash(config)]
            if seed not in heard[i]:
                heard[i].append(seed)
            place = int(turns[i] * len(runs[i])) + heard[i].index(seed)
            return runs[i][place % len(runs[i])]

        def scores(configs: Sequence[Config], seed: int) -> list[float]:
            return [run(config, seed)[0] for config in configs]

        def seconds(config: Config, seed: int) -> float:
            return run(config, seed)[1]

        price, full = self.prices[name], self.prices["full"]
        rung = RecordedRung(name, price, full, scores, seconds=seconds)
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
