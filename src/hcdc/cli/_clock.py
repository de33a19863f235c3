"""How long the command has run: a budget includes the seconds of loading torch. Imports nothing slow."""

from __future__ import annotations

import time

_begun = [time.perf_counter()]


def start() -> None:
    """Begin to count."""
    _begun[0] = time.perf_counter()


def passed() -> float:
    """Seconds since `start`."""
    return time.perf_counter() - _begun[0]
