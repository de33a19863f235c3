"""Dimensions of a space as distributions, and back; and as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hcdc.core.configs import Config
from hcdc.evaluation.trust import columns
from hcdc.search._distributions import (
    CategoricalDistribution,
    Distribution,
    FloatDistribution,
    IntDistribution,
)
from hcdc.search._problem import Array
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


def described(configs: Sequence[Config], space: Space) -> dict[str, Array]:
    """Numbers per dimension; a dimension with more choices than candidates is split into its decisions."""
    dimensions, sizes = space.dimensions(), space.decisions()
    if sizes is None or all(len(d.choices) <= len(configs) for d in dimensions):
        return columns(configs, dimensions)
    numbers = np.array([space.to_numbers(config) for config in configs])
    return {
        f"decision {k + 1}": (numbers[:, k, None] == np.arange(size)).astype(np.float64)
        for k, size in enumerate(sizes)
    }
