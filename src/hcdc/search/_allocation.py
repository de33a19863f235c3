"""How many candidates each rung should score next: the allocation that does best in simulated searches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import special

from hcdc.search._board import Board, Index, Posterior
from hcdc.search._problem import Array

PARTS = 6
"""Parts into which allocations divide the budget."""
WIDTH = 1200
"""Simulations follow this many of the most promising candidates."""


@dataclass(frozen=True)
class Allocation:
    """Candidates to score on each rung, and the best full score that simulations expect from it."""

    sizes: Mapping[str, int]
    value: float


class Valued(Protocol):
    """Whatever values allocations."""

    def value(self, sizes: Sequence[int]) -> float:
        """Expected full score of the best candidate found with ``sizes`` candidates per rung."""


class Simulation:
    """Searches in the worlds that the posterior draws describe.

    In each world candidates climb as they would: those that look best so far are scored on the next rung, and
    the world says what they get. The value is the full score of the best one found.

    Args:
        board: What is known.
        posterior: The worlds.
        rungs: Rungs in use, cheapest first.
    """

    def __init__(self, board: Board, posterior: Posterior, rungs: Sequence[str]):
        promise = posterior.full.mean(0) + posterior.full.std(0)
        known = {name: np.zeros(len(board.configs), bool) for name in rungs}
        for name in rungs:
            known[name][board.scored(name)] = True
        promise[known[rungs[0]]] = np.inf
        keep = np.sort(np.argsort(-promise, kind="stable")[: WIDTH + int(known[rungs[0]].sum())])
        self._known = [known[name][keep] for name in rungs]
        self._full = posterior.full[:, keep]
        outlook = np.broadcast_to(self._full.mean(0), self._full.shape)
        self._outlook = [outlook]
        target = posterior.values[rungs[-1]][:, keep]
        for name in rungs[:-1]:
            self._outlook.append(_combined(self._outlook[-1], posterior.values[name][:, keep], target))

    def value(self, sizes: Sequence[int]) -> float:
        """Expected full score of the best candidate found."""
        inside = np.ones(self._full.shape, bool)
        for outlook, known, size in zip(self._outlook, self._known, sizes):
            scored = np.broadcast_to(known, inside.shape).copy()
            size = min(size, len(known) - 1)
            if size > 0:
                promise = np.where(inside & ~known, outlook, -np.inf)
                best = np.argpartition(-promise, size, axis=1)[:, :size]
                fresh = np.isfinite(np.take_along_axis(promise, best, 1))
                np.put_along_axis(scored, best, np.take_along_axis(scored, best, 1) | fresh, 1)
            inside = scored
        return float(np.where(inside, self._full, -np.inf).max(1).mean())


def _combined(outlook: Array, value: Array, target: Array) -> Array:
    """The least-squares prediction of the full score from the outlook so far and the next rung's value."""
    a = np.stack([outlook.ravel(), value.ravel(), np.ones(outlook.size)], 1)[:: max(1, outlook.size // 20000)]
    weights = np.linalg.lstsq(a, target.ravel()[:: max(1, outlook.size // 20000)], rcond=None)[0]
    found: Array = outlook * weights[0] + value * weights[1]
    return found


def allocate(
    simulation: Valued,
    rungs: Sequence[str],
    prices: Mapping[str, float],
    budget: float,
    limits: Mapping[str, float],
) -> Allocation | None:
    """The best allocation of ``budget`` seconds; None if not even one full training fits.

    Args:
        simulation: Values allocations.
        rungs: Rungs in use, cheapest first.
        prices: Seconds per candidate.
        budget: Seconds to spend.
        limits: The most seconds that each rung may take.
    """
    best: Allocation | None = None
    for parts in itertools.product(range(PARTS + 1), repeat=len(rungs) - 1):
        if sum(parts) > PARTS:
            continue
        seconds = [min(budget * part / PARTS, limits[name]) for part, name in zip(parts, rungs)]
        sizes = [int(s / prices[name]) for s, name in zip(seconds, rungs)]
        spent = sum(size * prices[name] for size, name in zip(sizes, rungs))
        sizes.append(int((budget - spent) / prices[rungs[-1]]))
        if sizes[-1] < 1:
            continue
        value = simulation.value(sizes)
        if best is None or value > best.value + 1e-12:
            best = Allocation(dict(zip(rungs, sizes)), value)
    return best


def improving(
    outlook: Array, eligible: Index, count: int, best: float, costs: Array | None = None
) -> list[int]:
    """Pick ``count`` candidates one after the other, each with the greatest expected improvement.

    It is the improvement on ``best`` and on the picks before, as if its distribution over draws were normal:
    the draws themselves are too few to tell thousands of candidates apart by their luckiest one. Picks differ
    where the draws do.

    Args:
        outlook: Draws of the expected full score ``[draws, n]``.
        eligible: Candidates to choose from.
        count: How many.
        best: The score to improve on.
        costs: Logarithms of what each eligible candidate costs ``[e]``: the improvement counts per second.
    """
    draws, picks = outlook[:, eligible], []
    reached, left = np.full(len(draws), best), np.ones(len(eligible), bool)
    for _ in range(min(count, len(eligible))):
        more = draws - reached[:, None]
        mean, deviation = more.mean(0), np.maximum(more.std(0), 1e-9)
        gain = np.log(deviation) + _log_improvement(mean / deviation) - (0.0 if costs is None else costs)
        i = int(np.argmax(np.where(left, gain, -np.inf)))
        left[i] = False
        reached = np.maximum(reached, draws[:, i])
        picks.append(int(eligible[i]))
    return picks


def leading(outlook: Array, eligible: Index, count: int) -> list[int]:
    """``count`` candidates that lead in draws: the first of every draw, then the second, and so on.

    Quicker than `improving`. It needs no score to improve on: after many trainings the best one is far above
    what a smooth model expects nearby, and the improvement would be hoped for where nothing is known.

    Args:
        outlook: Draws of the expected full score ``[draws, n]``.
        eligible: Candidates to choose from.
        count: How many.
    """
    order = np.argsort(-outlook[:, eligible], axis=1, kind="stable").T.ravel()
    first = np.sort(np.unique(order, return_index=True)[1])[:count]
    return [int(i) for i in eligible[order[first]]]


def _log_improvement(z: Array) -> Array:
    """The logarithm of z Phi(z) + phi(z), the expected positive part of a normal variable with mean z."""
    low = z < -6
    safe = np.where(low, -6.0, z)
    near = np.log(safe * special.ndtr(safe) + np.exp(-(safe**2) / 2.0) / math.sqrt(2 * math.pi))
    far = -(z**2) / 2.0 - math.log(math.sqrt(2 * math.pi)) - 2 * np.log(np.abs(np.where(low, z, 1.0)))
    found: Array = np.where(low, far, near)
    return found
