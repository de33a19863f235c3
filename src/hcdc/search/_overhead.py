"""Seconds that a search itself takes: its model, its decisions and its storage."""

from __future__ import annotations

import itertools
import time

from hcdc.search._store import Store


class Overhead:
    """Counts the seconds in which no rung was running, and keeps them in a store.

    A search that continues thus takes the decisions that the uninterrupted one would have taken.

    Args:
        store: Keeps the seconds, under keys that begin with ``"overhead"``.
        before: Seconds that the search took before its first decision: loading code, reading the data. What
            the store waited for others is added to them.

    Attributes:
        seconds: All of them so far.
    """

    def __init__(self, store: Store, before: float = 0.0):
        self._store, self._last = store, time.perf_counter()
        self._before = float(store.note("overhead before", before)) if before else 0.0
        self._before += _waits(store)
        self.seconds, self._ticks, self._pauses = self._before, 0, 0

    @property
    def mean(self) -> float:
        """Seconds per decision."""
        return (self.seconds - self._before) / max(self._ticks, 1)

    def tick(self) -> float:
        """Count the seconds since the last call, at a decision; how many."""
        self._ticks += 1
        return self._count(f"overhead {self._ticks}")

    def pause(self) -> None:
        """Count them amid many trainings, between decisions."""
        self._pauses += 1
        self._count(f"overhead amid trainings {self._pauses}")

    def leave_out(self, seconds: float) -> None:
        """Seconds since the last call in which a rung was running."""
        self._last += seconds

    def _count(self, key: str) -> float:
        now = time.perf_counter()
        seconds = float(self._store.note(key, now - self._last))
        self.seconds += seconds
        self._last = now
        return seconds


def _waits(store: Store) -> float:
    """Seconds for which the store waited before the first decision, also when this search was continued."""
    keys = (f"overhead waiting {k}" for k in itertools.count())
    waits = list(itertools.takewhile(lambda value: value is not None, map(store.noted, keys)))
    if store.waited:
        waits.append(store.note(f"overhead waiting {len(waits)}", store.waited))
    return float(sum(waits))
