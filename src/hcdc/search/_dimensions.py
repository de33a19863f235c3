"""Dimensions of a space as distributions, and back."""

from __future__ import annotations

from collections.abc import Mapping

from hcdc.search._distributions import (
    CategoricalDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
)
from hcdc.spaces import Dimension, Space

MOST_CHOICES = 256
"""A choice among more values than this is a list of candidates, not a parameter."""


def from_dimension(dimension: Dimension) -> Distribution:
    """The distribution of a space's hyperparameter."""
    if dimension.distribution == "choice":
        return CategoricalDistribution(dimension.choices)
    log = dimension.distribution == "log-uniform"
    if dimension.whole:
        return IntDistribution(round(dimension.low), round(dimension.high), log)
    return FloatDistribution(float(dimension.low), float(dimension.high), log)


def to_dimension(name: str, dist: Distribution) -> Dimension:
    """A distribution as a hyperparameter of a space; numbers in steps become a choice."""
    given = dist.describe()["attributes"]
    if "choices" in given:
        return Dimension(name, "choice", choices=tuple(given["choices"]))
    whole = isinstance(dist, IntDistribution)
    if given["low"] == given["high"] or given["step"] not in ((1,) if whole else (None,)):
        steps = range(int(dist.values)) if given["step"] else (0,)
        return Dimension(
            name, "choice", choices=tuple(given["low"] + k * (given["step"] or 0) for k in steps)
        )
    scale = "log-uniform" if given["log"] else "uniform"
    return Dimension(name, scale, float(given["low"]), float(given["high"]), whole=whole)


def distributions_of(space: Space) -> Mapping[str, Distribution]:
    """Distributions of a space's hyperparameters, without those that no distribution describes."""
    return {
        d.name: from_dimension(d)
        for d in space.dimensions()
        if len(d.choices) <= MOST_CHOICES
        and all(c is None or isinstance(c, bool | int | float | str) for c in d.choices)
    }
