"""One hyperparameter of a space: its distribution, where it has an effect, and what reads it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, nearest, unknown_name
from hcdc.core.recipe import Recipe

DISTRIBUTIONS = ("uniform", "log-uniform", "choice")
VISIBILITIES = ("alignment", "copy", "full")
READERS = ("network", "recipe", "model")

TRAINING = (
    *(f.name for f in dataclasses.fields(Recipe) if f.name not in ("seeds", "metric", "statistics")),
    "epochs",
)
"""Names of training settings; settings for scoring are excluded, since all candidates share them."""

WHOLE = ("steps", "epochs", "batch")
"""Whole-number settings; they matter little on a copy, which trains briefly and often in one batch."""


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter of a space.

    Attributes:
        name: Its key in a configuration.
        distribution: ``"uniform"`` or ``"log-uniform"`` from ``low`` to ``high``, or ``"choice"``.
        low, high: Bounds in configuration units.
        choices: The values of a choice.
        visibility: Where it first has an effect: ``"alignment"`` (hypergradients in lambda), ``"copy"``
            (training on a condensed set) or ``"full"`` (only full training). Later stages see it too.
        read_by: What reads it: ``"network"`` (it shapes the space's own network), ``"recipe"`` (it is a
            training setting) or ``"model"`` (the task or the user's model must read it).
        whole: Values between bounds are whole numbers.
    """

    name: str
    distribution: str
    low: float = 0.0
    high: float = 1.0
    choices: tuple[Any, ...] = field(default=(), repr=False)
    visibility: str = "alignment"
    read_by: str = "model"
    whole: bool = False

    def __post_init__(self) -> None:
        for what, value, allowed in (
            ("distribution", self.distribution, DISTRIBUTIONS),
            ("visibility", self.visibility, VISIBILITIES),
            ("read_by", self.read_by, READERS),
        ):
            if value not in allowed:
                raise unknown_name(f"{what} of {self.name}", str(value), allowed)
        if self.distribution == "choice":
            if not self.choices:
                raise InputError(f"{self.name}: a choice needs at least one value")
            return
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(
                f"{self.name}: bounds {self.low:g} and {self.high:g} must be finite and low < high"
            )
        if self.distribution == "log-uniform" and self.low <= 0:
            raise InputError(f"{self.name}: low = {self.low:g} has no logarithm; a log scale needs low > 0")

    def check(self, value: Any) -> None:
        """Refuse a value outside the bounds or the choices."""
        if self.distribution == "choice":
            if any(_same(value, choice) for choice in self.choices):
                return
            if isinstance(value, str) and all(isinstance(choice, str) for choice in self.choices):
                raise unknown_name(self.name, value, self.choices)
            raise InputError(f"{self.name} {value!r} is not a choice; choose one of: {listed(self.choices)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{self.name}: {value!r} is not a number")
        if self.whole and not isinstance(value, int):
            raise InputError(f"{self.name}: {value!r} is not a whole number")
        if not self.low <= value <= self.high:
            raise InputError(f"{self.name}: {value:g} lies outside [{self.low:g}, {self.high:g}]")

    def number(self, value: Any) -> int:
        """The place of a value among the choices."""
        return next(k for k, choice in enumerate(self.choices) if _same(value, choice))

    def setting(self, value: Any) -> Any:
        """The value for a recipe; `WHOLE` settings are rounded."""
        return round(value) if self.name in WHOLE and isinstance(value, float) else value


def nudged(dimension: Dimension, value: Any, rng: np.random.Generator) -> Any:
    """A value near ``value``: another choice, or a normal step of a tenth of the range on its own scale."""
    if dimension.distribution == "choice":
        others = [choice for choice in dimension.choices if not _same(value, choice)]
        return others[int(rng.integers(len(others)))] if others else value
    low, high = dimension.low, dimension.high
    if dimension.distribution == "uniform":
        moved = value + 0.1 * (high - low) * rng.standard_normal()
    else:
        moved = float(f"{value * (high / low) ** (0.1 * rng.standard_normal()):.12g}")
    if dimension.whole and round(moved) == value:  # a whole number moves by at least 1
        moved = value + 1 if value == low or (moved > value and value < high) else value - 1
    moved = min(max(moved, low), high)
    return round(moved) if dimension.whole else float(moved)


def free(name: str, distribution: str, visibility: Mapping[str, str], **bounds: Any) -> Dimension:
    """A dimension named by the user: a recipe setting if the name is one, else the model's.

    Recipe settings are not in the loss as a function of lambda, so alignment cannot see them. Those in
    `WHOLE` are ``"full"``. ``visibility`` overrides this by name.
    """
    default = "full" if name in WHOLE else "copy" if name in TRAINING else "alignment"
    read_by = "recipe" if name in TRAINING else "model"
    return Dimension(name, distribution, visibility=visibility.get(name, default), read_by=read_by, **bounds)


def check_visibility(visibility: Mapping[str, str] | None, names: Collection[str]) -> dict[str, str]:
    """The user's visibilities; refuse names that are not in the space."""
    for name in visibility or {}:
        if name not in names:
            raise unknown_name("visibility: the name", name, names)
    return dict(visibility or {})


def check_names(space: str, config: Config, known: Sequence[str], needed: Collection[str]) -> None:
    """Refuse a configuration with a key outside ``known``, or without one in ``needed``."""
    if not isinstance(config, Mapping):
        raise InputError(f"a {space} configuration is a dict of names and values, got {config!r}")
    if unknown := sorted(map(str, config.keys() - set(known))):
        near = nearest(unknown[0], known)
        problem = f"'{unknown[0]}' is not one of them" + (f" (did you mean '{near}'?)" if near else "")
    elif missing := sorted(set(needed) - config.keys()):
        problem = f"'{missing[0]}' is missing"
    else:
        return
    keys = "key" if len(known) == 1 else "keys"
    raise InputError(f"a {space} configuration has the {keys} {listed(known, 10)}; {problem}")


def listed(values: Sequence[Any], most: int = 12) -> str:
    """Values separated by commas; beyond ``most``, only their number."""
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown}, ... ({len(values):,} in all)"


def _same(value: Any, choice: Any) -> bool:
    """Equal as JSON: 2 is neither 2.0 nor True."""
    if isinstance(value, bool) != isinstance(choice, bool):
        return False
    return isinstance(value, type(choice)) and bool(value == choice)
