"""A clock of the tests' own, and searches that think less."""

import functools
import time

import pytest
from tests.search.clocks import Clock

from hcdc.search import LadderSettings


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where an objective says so."""
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


@pytest.fixture
def quick(monkeypatch):
    """Fewer proposals, waves and draws, for tests of what a search keeps and tells."""
    fewer = functools.partial(LadderSettings, waves=4, pool=120, draws=24)
    monkeypatch.setattr("hcdc.search._search.LadderSettings", fewer)
