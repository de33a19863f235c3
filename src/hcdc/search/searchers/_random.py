"""Random search."""

from __future__ import annotations

from hcdc.core.configs import Config
from hcdc.search.searchers._base import Searcher
from hcdc.search.searchers._registry import register_searcher


@register_searcher
class Random(Searcher):
    """Random configurations, each at most once in a space that can be enumerated."""

    name = "random"

    def propose(self) -> Config:
        return self.fresh()
