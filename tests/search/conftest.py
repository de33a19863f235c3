"""A clock of the tests' own."""

import time

import pytest
from tests.search.clocks import Clock


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where an objective says so."""
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made
