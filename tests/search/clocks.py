"""Time that passes only where an objective says so, and a small objective with a known optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hcdc import FullData

X = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
Y = np.arange(100) % 2


def full(**options):
    return FullData((X, Y), (X, Y), **options)


class Clock:
    """In binary fractions: sums are exact."""

    now = 0.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += round(seconds * 1024) / 1024


def bowl(clock, calls=None, fault=None, noise=0.01):
    """An objective with its optimum at x = 0.3, y = 1e-2; a full training takes 4 seconds."""

    def objective(trial, data):
        x = trial.suggest_float("x", -1.0, 1.0)
        y = trial.suggest_float("y", 1e-4, 1.0, log=True)
        epochs, size = data.epochs(40), len(data.train[1])
        clock.spend(4.0 * epochs / 40 * size / 100)
        if calls is not None:
            calls.append((epochs, size, {"x": x, "y": y}))
        if fault is not None:
            fault(trial, data)
        spread = noise * (1 + 3 * (size < 100) + 2 * (epochs < 40))
        return 1 - (x - 0.3) ** 2 - 0.1 * math.log10(y / 1e-2) ** 2 + spread * float(torch.randn(()))

    return objective


class Stops:
    """Interrupts a search at given shares of the calls that it takes when nobody stops it.

    How many those are depends on decisions, which differ between processors.
    """

    def __init__(self, whole, *shares):
        self.places, self.calls = [1 + int(share * whole) for share in shares], 0
        assert len(set(self.places)) == len(shares)

    def __call__(self, *_):
        self.calls += 1
        if self.places and self.calls == self.places[0]:
            self.places.pop(0)
            raise KeyboardInterrupt

    def until_done(self, run):
        """What ``run`` returns once it is no longer interrupted; it is each time."""
        for _ in list(self.places):
            with pytest.raises(KeyboardInterrupt):
                run()
        assert not self.places
        return run()


def back_and_forth(trial):
    """A figure to report: even trials are better than all before them, odd ones worse.

    A pruner thus gives up odd trials whatever a search decides.
    """
    return (-1) ** trial.number * trial.number


def trainings(found):
    """Calls of an objective with which a search was made: candidates, finalists, and one to look around."""
    again = sum(len(finalist["scores"]) - 1 for finalist in found.finalists)
    return 1 + sum(rung.candidates for rung in found.rungs) + again


def told(found):
    """What must not change when a search is interrupted."""
    document = found.to_json()
    document.pop("environment")
    return document
