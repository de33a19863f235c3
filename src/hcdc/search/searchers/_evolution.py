"""Regularised evolution."""

from __future__ import annotations

from dataclasses import dataclass

from hcdc.core.configs import Config
from hcdc.core.settings import setting
from hcdc.search.searchers._base import Searcher, SearcherSettings
from hcdc.search.searchers._registry import register_searcher


@dataclass(frozen=True)
class EvolutionSettings(SearcherSettings):
    """Settings of `Evolution`.

    Attributes:
        population: The latest configurations, which can be parents; as many random ones come first.
        tournament: How many of them compete to be the parent.
    """

    name = "evolution"

    population: int = setting(20, least=1)
    tournament: int = setting(5, least=1)


@register_searcher
class Evolution(Searcher):
    """Regularised (aging) evolution (Real et al., 2019).

    The best of a random tournament within the population is mutated, `Space.mutate`; the oldest
    configuration leaves the population, however good it is.
    """

    name = "evolution"
    Settings = EvolutionSettings
    settings: EvolutionSettings

    def propose(self) -> Config:
        if self.number < self.settings.population or not self.history:
            return self.fresh()
        rng, alive = self.stream(), self.history[-self.settings.population :]
        size = min(self.settings.tournament, len(alive))
        rivals = [alive[i] for i in rng.choice(len(alive), size, replace=False)]
        parent = max(rivals, key=lambda pair: pair[1])[0]
        return self.unseen(lambda: self.space.mutate(parent, rng))
