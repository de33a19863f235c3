"""A trial: what a user's objective asks for its parameters, with Optuna's methods, without Optuna."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import HcdcError, InputError
from hcdc.core.records import jsonable
from hcdc.core.seeds import numpy_stream
from hcdc.search._distributions import (
    CategoricalDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
)

Rule = Callable[[Mapping[int, float]], bool]
"""Whether to give up, given the reports by step."""


class TrialPruned(HcdcError):
    """An objective gives up a trial that does not look promising; Optuna's own exception works too."""

    def __init__(self, text: str = "the trial was pruned"):
        super().__init__(text)


def is_pruned(error: BaseException) -> bool:
    """Whether an objective's exception means that the trial was pruned."""
    optuna = sys.modules.get("optuna")
    return isinstance(error, TrialPruned) or (optuna is not None and isinstance(error, optuna.TrialPruned))


def keyed_value(config: Config, name: str, dist: Distribution) -> Any:
    """The value of a parameter: the configuration's, else one drawn from a stream of the configuration's own.

    So a parameter that was unknown when a configuration was proposed has the same value on every rung.
    """
    if name in config:
        return config[name]
    return dist.draw(numpy_stream(0, "parameter", config_hash(config), name))


class Trial:
    """One trial of a configuration.

    Args:
        config: The configuration; parameters that it lacks are drawn, see `keyed_value`.
        number: Number of the trial.
        prune: When to give up; never by default.

    Attributes:
        params: Parameters that the objective read.
        distributions: Their distributions.
        user_attrs: What the objective attached.
        reports: Intermediate scores by step.
        refusal: Why the search cannot go on with this objective, if so.
    """

    def __init__(self, config: Config, number: int = 0, prune: Rule | None = None):
        self.number = number
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, Distribution] = {}
        self.user_attrs: dict[str, Any] = {}
        self.reports: dict[int, float] = {}
        self.refusal: InputError | None = None
        self._config, self._prune = config, prune

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A real number; see Optuna's method of this name."""
        return float(self._suggest(name, lambda: FloatDistribution(float(low), float(high), log, step)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number, both ends included."""
        return int(self._suggest(name, lambda: IntDistribution(int(low), int(high), log, int(step))))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of ``choices``."""
        plain = tuple(c.item() if isinstance(c, np.generic) else c for c in choices)
        return self._suggest(name, lambda: CategoricalDistribution(plain))

    def report(self, value: float, step: int) -> None:
        """An intermediate score, higher is better."""
        self.reports[int(step)] = float(value)

    def should_prune(self) -> bool:
        """Whether to give up: ``raise hcdc.search.TrialPruned`` if so."""
        return self._prune is not None and bool(self.reports) and self._prune(self.reports)

    def set_user_attr(self, key: str, value: Any) -> None:
        """Attach something to the trial, as plain JSON."""
        try:
            self.user_attrs[key] = json.loads(json.dumps(jsonable(value)))
        except (TypeError, ValueError) as error:
            raise InputError(f"user attribute '{key}' must be plain JSON: {error}") from error

    def _suggest(self, name: str, make: Callable[[], Distribution]) -> Any:
        try:
            dist = make()
            before = self.distributions.get(name, dist)
            if before != dist:
                raise InputError(f"it has two distributions in one trial, {told(before)} and {told(dist)}")
            value = keyed_value(self._config, name, dist)
            if not dist.contains(value):
                raise InputError(
                    f"it is {told(dist)} in this trial, which leaves out {value!r} of earlier ones; a range "
                    "must be the same in every trial: give another range another name"
                )
        except InputError as error:  # kept, because the objective may swallow it
            self.refusal = InputError(f"parameter '{name}': {error}")
            raise self.refusal from error
        self.distributions[name] = dist
        self.params[name] = value
        return value


def told(dist: Distribution) -> str:
    """A distribution in words, e.g. ``float(low=1, high=2)``."""
    description = dist.describe()
    given = ", ".join(
        f"{k}={v}" for k, v in description["attributes"].items() if v is not None and v is not False
    )
    return f"{description['name'].removesuffix('Distribution').lower()}({given})"
