"""Distributions of parameters, with Optuna's names and meaning, for searches without Optuna."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcdc.core.errors import InputError
from hcdc.search._problem import Array

NEAR = 0.15
"""Standard deviation of a step to a close value, as a share of the range."""
PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Distribution(ABC):
    """Values that a parameter may take."""

    @property
    @abstractmethod
    def values(self) -> float:
        """How many values there are."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Any:
        """A random value."""

    @abstractmethod
    def near(self, value: Any, rng: np.random.Generator) -> Any:
        """A random value close to another."""

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Whether a value is allowed."""

    @abstractmethod
    def columns(self, values: Sequence[Any]) -> Array:
        """Numbers that describe values ``[n, k]``, between 0 and 1."""

    @property
    @abstractmethod
    def blank(self) -> Array:
        """The mean of `columns` over all values ``[k]``: stands for a parameter that is not read."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON, in the form that Optuna writes."""
        return {"name": type(self).__name__, "attributes": dataclasses.asdict(self)}


@dataclass(frozen=True)
class _Numbers(Distribution):
    """From ``low`` to ``high``, on a log scale or in steps if so asked."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise InputError(f"low {self.low:g} and high {self.high:g} must be finite, and low at most high")
        if self.log and self.low <= 0:
            raise InputError(f"low {self.low:g} has no logarithm; log=True needs a low above 0")
        if self.step is not None and self.step <= 0:
            raise InputError(f"step {self.step:g}: it must be above 0")

    @property
    def values(self) -> float:
        return math.inf if self.step is None else (self.high - self.low) // self.step + 1

    def contains(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            return False
        return bool(self.low - 1e-9 * abs(self.low) <= value <= self.high + 1e-9 * abs(self.high))

    def _units(self, values: Any) -> Array:
        """Values on a scale from 0 to 1."""
        low, high = (math.log(v) if self.log else v for v in (self.low, self.high))
        given = np.asarray(values, np.float64)
        place = np.log(given) if self.log else given
        return (place - low) / (high - low) if high > low else np.zeros_like(place)

    def _value(self, unit: float) -> Any:
        low, high = (math.log(v) if self.log else v for v in (self.low, self.high))
        place = low + min(max(unit, 0.0), 1.0) * (high - low)
        return self._rounded(math.exp(place) if self.log else place)

    def _rounded(self, value: float) -> Any:
        if self.step is not None:
            most = math.floor((self.high - self.low) / self.step + 1e-9)
            value = self.low + min(round((value - self.low) / self.step), most) * self.step
        return min(max(value, self.low), self.high)

    def draw(self, rng: np.random.Generator) -> Any:
        return self._value(float(rng.random()))

    def near(self, value: Any, rng: np.random.Generator) -> Any:
        return self._value(float(self._units(value)) + NEAR * float(rng.standard_normal()))

    def columns(self, values: Sequence[Any]) -> Array:
        return self._units(values).reshape(-1, 1)

    @property
    def blank(self) -> Array:
        return np.array([0.5])


@dataclass(frozen=True)
class FloatDistribution(_Numbers):
    """Real numbers from ``low`` to ``high``."""

    def _rounded(self, value: float) -> float:
        return float(super()._rounded(value))


@dataclass(frozen=True)
class IntDistribution(_Numbers):
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    def contains(self, value: Any) -> bool:
        return super().contains(value) and float(value).is_integer()

    def _rounded(self, value: float) -> int:
        return int(super()._rounded(value))

    def draw(self, rng: np.random.Generator) -> int:
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return self._rounded(round(math.exp(low + float(rng.random()) * (high - low))))
        return self.low + self.step * int(rng.integers((self.high - self.low) // self.step + 1))

    def near(self, value: Any, rng: np.random.Generator) -> int:
        found = int(super().near(value, rng))
        if found == value:  # a narrow range: go one step up or down
            found = self._rounded(value + self.step * (1 if rng.random() < 0.5 else -1))
        return found


@dataclass(frozen=True)
class CategoricalDistribution(Distribution):
    """One of ``choices``: None, booleans, numbers and texts."""

    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.choices:
            raise InputError("choices are empty; a categorical parameter needs at least one")
        for choice in self.choices:
            if choice is not None and not isinstance(choice, PLAIN):
                raise InputError(
                    f"choice {choice!r} is a {type(choice).__name__}; choices are None, booleans, numbers or "
                    "texts: choose among texts, and look up in a dict what each stands for"
                )

    def _place(self, value: Any) -> int | None:
        same = (i for i, c in enumerate(self.choices) if type(c) is type(value) and c == value)
        return next(same, None)

    @property
    def values(self) -> float:
        return len(self.choices)

    def contains(self, value: Any) -> bool:
        return self._place(value) is not None

    def draw(self, rng: np.random.Generator) -> Any:
        return self.choices[int(rng.integers(len(self.choices)))]

    def near(self, value: Any, rng: np.random.Generator) -> Any:
        return self.draw(rng) if rng.random() < 0.3 else value

    def columns(self, values: Sequence[Any]) -> Array:
        places = [self._place(value) for value in values]
        return np.array([[place == k for k in range(len(self.choices))] for place in places], np.float64)

    @property
    def blank(self) -> Array:
        return np.full(len(self.choices), 1 / len(self.choices))


def distribution(description: Mapping[str, Any]) -> Distribution:
    """The distribution that `Distribution.describe` (or Optuna) described."""
    kinds = {kind.__name__: kind for kind in (FloatDistribution, IntDistribution, CategoricalDistribution)}
    attributes = dict(description["attributes"])
    if "choices" in attributes:
        attributes["choices"] = tuple(attributes["choices"])
    found: Distribution = kinds[description["name"]](**attributes)
    return found
