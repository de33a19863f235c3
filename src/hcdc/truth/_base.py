"""Full-data results of candidates, from any source."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.tasks import Task
from hcdc.training import Result


class Truth(ABC):
    """The scores that candidates reach when trained on the full data.

    A subclass defines ``score``, ``seconds``, ``known``, ``spec`` and ``words``.

    Attributes:
        parts: Parts of the data with results: ``"val"`` and perhaps ``"test"``.
        fidelities: Lengths of shorter trainings with results, and their share of the seconds.
    """

    parts: tuple[str, ...] = ("val", "test")
    fidelities: ClassVar[Mapping[int, float]] = {}

    @abstractmethod
    def score(self, config: Config, part: str = "val", fidelity: int | None = None) -> float:
        """A candidate's score on a part; higher is better.

        Args:
            config: The candidate.
            part: One of ``parts``.
            fidelity: One of ``fidelities``; None means the whole training.
        """

    @abstractmethod
    def seconds(self, config: Config) -> float:
        """Seconds of a candidate's whole training; NaN if unknown."""

    @abstractmethod
    def known(self, config: Config) -> bool:
        """Whether a candidate's results are available without any work."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """How condensed files describe it, as plain JSON."""

    @abstractmethod
    def words(self) -> str:
        """Where the results come from."""

    def check(self, task: Task) -> None:
        """Refuse a task that these results do not describe; accepts any task by default."""
        return

    def ensure(self, configs: Sequence[Config]) -> None:
        """Refuse candidates that can never have results, before any work starts."""
        for config in configs:
            if not self.known(config):
                self.score(config)  # raises an error that says what is missing

    def results(self, configs: Sequence[Config], parts: Sequence[str] | None = None) -> list[Result]:
        """Scores and seconds of many candidates; missing ones are trained together.

        Args:
            configs: The candidates.
            parts: The parts to score; None means all.
        """
        asked = self.parts if parts is None else parts
        return [
            Result({f"{part}.score": self.score(config, part) for part in asked}, self.seconds(config))
            for config in configs
        ]

    def scores(self, configs: Sequence[Config], part: str = "val") -> list[float]:
        """Scores of many candidates on a part; diverged candidates get the worst, see `full_scores`."""
        return full_scores(self.results(configs, (part,)), part)


def full_scores(results: Sequence[Result], part: str) -> list[float]:
    """Scores of full-data results on ``part``, at least one of them finite; higher is better.

    Diverged candidates get the worst score: 0 for an accuracy; for a negative error, which is unbounded, just
    below the worst of the others.
    """
    low = min(r.values[f"{part}.score"] for r in results if r.finite)
    worst = 0.0 if low >= 0 else math.nextafter(low, -math.inf)
    return [r.values[f"{part}.score"] if r.finite else worst for r in results]


def check_truth(truth: Any, task: Task) -> None:
    """Refuse anything but a `Truth` whose results describe the task."""
    if not isinstance(truth, Truth):
        raise InputError(
            f"truth is {type(truth).__name__}; give a table: TableTruth(NASBench201Table(file), 'cifar10')"
        )
    truth.check(task)


class ListedTruth(Truth):
    """Results given as a list, one row per configuration.

    Args:
        rows: Configurations with their figures: ``"val"``, and perhaps ``"test"`` and ``"seconds"``.
        name: How errors refer to the list.

    Attributes:
        configs: The configurations, as given.
    """

    def __init__(self, rows: Sequence[tuple[Mapping[str, Any], Mapping[str, float]]], name: str):
        self.name = name
        self._rows: dict[str, Mapping[str, float]] = {}
        for config, figures in rows:
            if (key := _key(config)) in self._rows:
                raise InputError(f"{name} has the configuration {dict(config)} twice; keep one of them")
            self._rows[key] = figures
        if not rows:
            raise InputError(f"{name} has no finished configuration")
        self.configs = [dict(config) for config, _ in rows]
        self._keys = sorted(rows[0][0])
        self.parts = (
            ("val", "test") if all("test" in figures for figures in self._rows.values()) else ("val",)
        )

    def __len__(self) -> int:
        return len(self._rows)

    def score(self, config: Config, part: str = "val", fidelity: int | None = None) -> float:
        if fidelity is not None:
            raise InputError(f"{self.name} has whole trainings only, none of length {fidelity}")
        if part not in self.parts:
            raise InputError(f"{self.name} has no '{part}' scores; it has: {', '.join(self.parts)}")
        return self._row(config)[part]

    def seconds(self, config: Config) -> float:
        return self._row(config).get("seconds", math.nan)

    def known(self, config: Config) -> bool:
        return _key(config) in self._rows

    def _row(self, config: Config) -> Mapping[str, float]:
        if not self.known(config):
            raise InputError(
                f"{self.name} does not list configuration {config}; it lists {len(self)}, with the keys "
                f"{', '.join(self._keys)}"
            )
        return self._rows[_key(config)]


def _key(config: Mapping[str, Any]) -> str:
    """A configuration as text; equal whether its numbers were read as text, integers or floats."""
    return json.dumps({name: plain(value) for name, value in config.items()}, sort_keys=True)


def plain(value: Any) -> Any:
    """A value of a configuration: numbers (also as text) become floats, other text stays."""
    if isinstance(value, str):
        if value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        try:
            return float(value)
        except ValueError:
            return value.strip()
    if isinstance(value, bool) or value is None:
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(value, sort_keys=True)
