"""`hcdc.plan`: what a search would do with a budget, and whether a ladder is worth climbing, beforehand."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hcdc.core.planned import RungPlan, SearchPlan
from hcdc.core.progress import peak_memory_gib
from hcdc.core.records import environment
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset, FullData
from hcdc.search._allocation import allocate
from hcdc.search._executor import Objective
from hcdc.search._free import MOST as MOST_FREE
from hcdc.search._prepare import parse_budget, prepare
from hcdc.search._problem import STEEP, Array
from hcdc.search._regression import PRIOR_SLOPE
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth

WORLDS = 100
MOST = 2000
"""Simulated candidates; beyond this the best of them changes little."""
FEWEST = 3
"""Full trainings without which a ladder is not worth climbing: one to compare with, one winner, once more."""
MANY = 300
"""Full trainings from which they are called cheap."""
MARGIN = 0.1
"""Gain in standard deviations of the full score from which a ladder pays."""


class PriorWorlds:
    """Searches in worlds where neighbouring rungs correlate as is expected before anything is measured.

    Args:
        rungs: Number of rungs, the full training included.
        candidates: Candidates per world.
        rng: The random stream.
    """

    def __init__(self, rungs: int, candidates: int, rng: np.random.Generator):
        shape = WORLDS, min(candidates, MOST)
        self._scores: list[Array] = [rng.standard_normal(shape)]
        for _ in range(rungs - 1):
            noise = rng.standard_normal(shape)
            below = PRIOR_SLOPE * self._scores[0] + math.sqrt(1 - PRIOR_SLOPE**2) * noise
            self._scores.insert(0, below)

    def value(self, sizes: Sequence[int]) -> float:
        """Expected full score of the best candidate, in standard deviations; a rung of size 0 is left out."""
        inside = np.arange(self._scores[0].shape[1])[None].repeat(WORLDS, 0)
        for scores, size in zip(self._scores, sizes):
            if size:
                inside = inside[:, :size]
                order = np.argsort(-np.take_along_axis(scores, inside, 1), axis=1)
                inside = np.take_along_axis(inside, order, 1)
        return float(np.take_along_axis(self._scores[-1], inside[:, :1], 1).mean())


def plan(
    subject: Objective | Task,
    over: FullData | Space,
    *,
    budget: str | float = "30m",
    seed: int = 0,
    copies: Sequence[CondensedDataset | str | os.PathLike[str]] = (),
    rungs: Sequence[str] | None = None,
    truth: Truth | None = None,
    device: torch.device | str = "cpu",
) -> SearchPlan:
    """What `hcdc.search` with these arguments would do, and whether to use it; takes a few seconds.

    Args:
        subject, over, budget, seed, copies, rungs, truth, device: As in `hcdc.search`.

    Returns:
        Seconds and candidates per rung, memory, and whether a ladder should beat random search with full
        trainings. ``pays`` is False where the budget is smaller than three full trainings, where it trains
        all candidates in full, and where full trainings are so cheap that stand-ins add nothing.
    """
    seconds = parse_budget(budget)
    problem = prepare(subject, over, copies, rungs, truth, device, seed)
    prices = problem.forecast(seconds, seed)
    return planned(prices, seconds, problem.size(), device, problem.free_prices())


def planned(
    prices: Mapping[str, float],
    budget: float,
    size: float,
    device: torch.device | str = "cpu",
    free: Mapping[str, float] | None = None,
) -> SearchPlan:
    """The plan for rungs with these prices.

    Args:
        prices: Seconds per candidate by rung, the full training last.
        budget: Seconds to spend.
        size: Candidates in the space.
        device: Where candidates are trained.
        free: Seconds per candidate by free rung. They score all candidates, unless that is too expensive.
    """
    free = free or {}
    scored = {name: int(size) if price * size <= MOST_FREE * budget else 0 for name, price in free.items()}
    names = list(prices)
    full = prices[names[-1]]
    affordable = int(budget / full)
    reserve = full * max(1, min(FEWEST, int(0.15 * budget / full)))
    told: dict[str, Any] = {
        "budget": budget,
        "candidates": int(size) if math.isfinite(size) else None,
        "full_trainings": affordable,
        "memory_gib": peak_memory_gib(),
        "environment": environment(device),
    }
    prices, sizes = {**free, **prices}, dict.fromkeys([*free, *names], 0)
    if affordable < FEWEST:
        sizes[names[-1]] = affordable
        why = f"the budget pays for {_many(affordable)}, and at least {FEWEST} are needed; allow more time"
        return SearchPlan(rungs=_rungs(prices, sizes), why=why, **told)
    if size <= affordable:
        sizes[names[-1]] = int(size)
        why = f"all {size:,.0f} candidates can be trained in full within the budget; do that"
        return SearchPlan(rungs=_rungs(prices, sizes), why=why, **told)
    used = names[
        next(k for k, name in enumerate(names) if prices[name] <= STEEP * full or name == names[-1]) :
    ]
    worlds = PriorWorlds(len(used), int(min(size, MOST)), numpy_stream(0, "plan"))
    plain = worlds.value([*[0] * (len(used) - 1), affordable])
    limits = dict.fromkeys(used, math.inf)
    left = budget - reserve - sum(free[name] * count for name, count in scored.items())
    best = allocate(worlds, used, prices, left, limits)
    gain = best.value - plain if best is not None else 0.0
    pays = best is not None and gain >= MARGIN
    if best is not None and pays:
        sizes |= scored | {name: int(min(count, size)) for name, count in best.sizes.items()}
        sizes[names[-1]] += round(reserve / full)
        first = next(name for name in names if sizes[name])
        why = (
            f"'{first}' tries {sizes[first]:,} candidates where the budget trains {affordable:,} in full; "
            f"the best is expected {gain:.1f} standard deviations higher than with random search"
        )
    else:
        sizes[names[-1]] = affordable
        why = _no_gain(affordable, full)
    return SearchPlan(rungs=_rungs(prices, sizes), pays=pays, gain=gain, why=why, **told)


def _rungs(prices: Mapping[str, float], sizes: Mapping[str, int]) -> list[RungPlan]:
    return [RungPlan(name=name, price=price, candidates=sizes[name]) for name, price in prices.items()]


def _no_gain(affordable: int, price: float) -> str:
    if affordable >= MANY:
        return (
            f"full trainings are so cheap that the budget pays for {affordable:,}, and stand-ins are not "
            "expected to find better candidates; use random search"
        )
    return (
        f"the stand-ins cost too much against a full training ({price:.3g} s) to find better candidates than "
        f"the {affordable:,} that the budget trains in full; use random search"
    )


def _many(trainings: int) -> str:
    return {0: "no full training", 1: "one full training"}.get(trainings, f"{trainings} full trainings")
