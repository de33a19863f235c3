"""Searchers, one file each: ``ask`` for a configuration, ``tell`` its score."""

from hcdc.search.searchers._base import Exhausted, Searcher, SearcherSettings, TaskSearcher
from hcdc.search.searchers._darts_pt import DartsPT, DartsPTSmall
from hcdc.search.searchers._evolution import Evolution
from hcdc.search.searchers._gdas import GDAS
from hcdc.search.searchers._graphnas import GraphNASController
from hcdc.search.searchers._grid import Grid
from hcdc.search.searchers._hypergradient import HypergradientDescent
from hcdc.search.searchers._local import Local
from hcdc.search.searchers._random import Random
from hcdc.search.searchers._registry import SEARCHERS, register_searcher, searcher
from hcdc.search.searchers._reinforce import Reinforce

__all__ = [
    "GDAS",
    "SEARCHERS",
    "DartsPT",
    "DartsPTSmall",
    "Evolution",
    "Exhausted",
    "GraphNASController",
    "Grid",
    "HypergradientDescent",
    "Local",
    "Random",
    "Reinforce",
    "Searcher",
    "SearcherSettings",
    "TaskSearcher",
    "register_searcher",
    "searcher",
]
