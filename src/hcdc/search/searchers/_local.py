"""Local search."""

from __future__ import annotations

import math
from typing import Any

from hcdc.core.configs import Config, config_hash
from hcdc.core.seeds import numpy_stream
from hcdc.search.searchers._base import Searcher, discrete
from hcdc.search.searchers._registry import register_searcher
from hcdc.spaces import Space


@register_searcher
class Local(Searcher):
    """Climb from a random configuration to a better neighbour until there is none, then start again.

    Neighbours (`Space.neighbours`) come in random order, and the first that improves is the next centre.
    """

    name = "local"

    def __init__(self, space: Space, seed: int = 0, **settings: Any):
        discrete(space, self.name)
        super().__init__(space, seed, **settings)
        self._told: set[str] = set()
        self._near: list[Config] = []
        self._height = -math.inf

    def propose(self) -> Config:
        return next((config for config in self._near if not self.seen(config)), None) or self.fresh()

    def learn(self, config: Config, score: float) -> None:
        self._told.add(config_hash(config))
        if not self._near or score > self._height:
            near = self.space.neighbours(config)
            order = numpy_stream(self.seed, "search", self.name, config_hash(config)).permutation(len(near))
            self._near, self._height = [near[i] for i in order], score
        if all(config_hash(other) in self._told for other in self._near):
            self._near = []  # a local optimum
