"""Grid search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.settings import setting
from hcdc.search.searchers._base import Exhausted, Searcher, SearcherSettings
from hcdc.search.searchers._registry import register_searcher
from hcdc.spaces import Dimension, Space


@dataclass(frozen=True)
class GridSettings(SearcherSettings):
    """Settings of `Grid`.

    Attributes:
        points: Grid points per continuous dimension, its bounds included.
    """

    name = "grid"

    points: int = setting(5, least=2)


@register_searcher
class Grid(Searcher):
    """All configurations in order; continuous dimensions take equally spaced values on their own scale."""

    name = "grid"
    Settings = GridSettings
    settings: GridSettings

    def __init__(self, space: Space, seed: int = 0, **settings: Any):
        super().__init__(space, seed, **settings)
        self._left = self._points()

    def propose(self) -> Config:
        for config in self._left:
            if not self.seen(config):
                return config
        raise Exhausted(f"searcher 'grid' has asked for the whole grid of space '{self.space.name}'")

    def _points(self) -> Iterator[Config]:
        if self._every is not None:
            yield from self._every
            return
        dimensions = self.space.dimensions()
        for values in itertools.product(*(self._values(d) for d in dimensions)):
            config = {d.name: value for d, value in zip(dimensions, values)}
            try:
                self.space.check(config)
            except InputError:  # not every combination need be a configuration
                continue
            yield config

    def _values(self, d: Dimension) -> list[Any]:
        if d.distribution == "choice":
            return list(d.choices)
        if d.distribution == "uniform":
            return [float(v) for v in np.linspace(d.low, d.high, self.settings.points)]
        powers = np.geomspace(d.low, d.high, self.settings.points)
        return [min(max(float(f"{v:.12g}"), d.low), d.high) for v in powers]
