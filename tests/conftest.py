"""What every test shares: one thread, repeatable examples, caches of its own, no network."""

import itertools
import logging
import socket

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("house", deadline=None, derandomize=True, max_examples=50, database=None)
settings.load_profile("house")


@pytest.fixture(scope="session")
def _caches(tmp_path_factory):
    """Folders that are not there yet, without end."""
    home = tmp_path_factory.mktemp("caches")
    return (home / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _cache_of_its_own(_caches, monkeypatch):
    """Full-data results go to a fresh folder, never to the user's cache."""
    monkeypatch.setenv("HCDC_CACHE", str(next(_caches)))


@pytest.fixture
def save_always(monkeypatch):
    """Loops save their state after every step."""
    monkeypatch.setattr("hcdc.core.checkpoint.SAVE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """A test that reaches out fails."""

    def refuse(*_, **__):
        raise OSError("tests do not use the network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(autouse=True)
def _logger_as_before():
    """A command sets up the logger, which other tests read."""
    log = logging.getLogger("hcdc")
    before = log.handlers[:], log.level
    yield
    log.handlers[:] = before[0]
    log.setLevel(before[1])
