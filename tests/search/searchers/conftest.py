"""Spaces with a known optimum, and a loop that searches them."""

from __future__ import annotations

import pytest

from hcdc.search.searchers import searcher
from hcdc.spaces import Finite, Product


@pytest.fixture
def grid_space():
    """8^4 configurations: four numbers from 0 to 7."""
    return Product(*(Finite(name, list(range(8))) for name in "abcd"))


@pytest.fixture
def best_of():
    """The best score of a search of ``asks`` asks, and everything that was asked."""

    def run(name, space, objective, asks, seed=0, **settings):
        made = searcher(name, space, seed, **settings)
        asked = []
        for _ in range(asks):
            config = made.ask()
            asked.append(config)
            made.tell(config, objective(config))
        assert made.best is not None
        return objective(made.best), asked

    return run
