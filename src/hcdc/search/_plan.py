"""`hcdc.plan`: what a search would do with a budget, and whether a ladder is worth climbing, beforehand."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hcdc.core.memory import PeakMemory
from hcdc.core.planned import ODDS, RungPlan, SearchPlan, raised
from hcdc.core.records import environment
from hcdc.core.seeds import numpy_stream
from hcdc.core.told import counted, every
from hcdc.datasets import CondensedDataset, FullData
from hcdc.search._allocation import allocate
from hcdc.search._deciding import decision_seconds
from hcdc.search._executor import Objective
from hcdc.search._free import MOST as MOST_FREE
from hcdc.search._pilot import AUDITING, FEWEST_AUDITS
from hcdc.search._prepare import parse_budget, prepare
from hcdc.search._problem import STEEP, Array
from hcdc.search._regression import PRIOR_SLOPE
from hcdc.search._settings import LadderSettings
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth

WORLDS, CHANCES = 100, 400
"""Worlds that choose an allocation, and others that say what its chances are."""
MOST = 2000
"""Simulated candidates; beyond this the best of them changes little."""
FEWEST = 3
"""Full trainings without which a ladder is not worth climbing: one to compare with, one winner, once more."""
PROVING = 20
"""Full trainings after which a good stand-in has usually proved its worth, in replays of cells."""
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
        worlds: How many.
    """

    def __init__(self, rungs: int, candidates: int, rng: np.random.Generator, worlds: int = WORLDS):
        shape = worlds, min(candidates, MOST)
        self._scores: list[Array] = [rng.standard_normal(shape)]
        for _ in range(rungs - 1):
            noise = rng.standard_normal(shape)
            below = PRIOR_SLOPE * self._scores[0] + math.sqrt(1 - PRIOR_SLOPE**2) * noise
            self._scores.insert(0, below)

    def value(self, sizes: Sequence[int]) -> float:
        """Expected full score of the best candidate, in standard deviations; a rung of size 0 is left out."""
        return float(self._best(sizes, self._places()).mean())

    def chance(self, sizes: Sequence[int], trainings: int, rng: np.random.Generator) -> float:
        """Probability that the best candidate is better than that of random search; ties count half.

        Args:
            sizes: Candidates per rung.
            trainings: Full trainings of random search, which draws candidates of its own.
            rng: Draws them.
        """
        climbed = self._best(sizes, self._places())
        others = rng.permuted(self._places(), axis=1)
        plain = self._best([*[0] * (len(self._scores) - 1), trainings], others)
        return float(((climbed > plain) + 0.5 * (climbed == plain)).mean())

    def _places(self) -> NDArray[np.int64]:
        return np.arange(self._scores[0].shape[1])[None].repeat(len(self._scores[0]), 0)

    def _best(self, sizes: Sequence[int], inside: NDArray[np.int64]) -> Array:
        """Full score of the best candidate in each world ``[worlds]``, from those ``inside [worlds, n]``."""
        for scores, size in zip(self._scores, sizes):
            if size:
                inside = inside[:, :size]
                order = np.argsort(-np.take_along_axis(scores, inside, 1), axis=1)
                inside = np.take_along_axis(inside, order, 1)
        found: Array = np.take_along_axis(self._scores[-1], inside[:, :1], 1)[:, 0]
        return found


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
    before: float = 0.0,
) -> SearchPlan:
    """What `hcdc.search` with these arguments would do, and whether to use it; takes a few seconds.

    Args:
        subject, over, budget, seed, copies, rungs, truth, device: As in `hcdc.search`.
        before: Seconds of the budget that have passed before this call, such as those of loading code.

    Returns:
        Seconds and candidates per rung, seconds for decisions, memory, and whether a ladder should beat
        random search with full trainings. ``pays`` is False where the budget is smaller than three full
        trainings, where it trains all candidates in full, and where full trainings are so cheap, or decisions
        take so much of the budget, that stand-ins add nothing.
    """
    seconds, begun = parse_budget(budget), time.perf_counter()
    problem = prepare(subject, over, copies, rungs, truth, device, seed)
    before += max(0.0, time.perf_counter() - begun - sum(rung.once for rung in problem.rungs))
    with PeakMemory() as trials:
        prices = problem.forecast(seconds, seed)
        free = problem.free_prices()
    memory = max(trials.gib, problem.full_memory_gib(prices, seed))
    found = planned(prices, seconds, problem.size(), device, memory, free, before)
    if not found.pays:
        return found
    paid = [rung for rung in found.rungs if rung.name in prices]
    deciding = decision_seconds(problem, paid, seconds - before, seed)
    return planned(prices, seconds, problem.size(), device, memory, free, before, deciding)


def planned(
    prices: Mapping[str, float],
    budget: float,
    size: float,
    device: torch.device | str = "cpu",
    memory_gib: float = 0.0,
    free: Mapping[str, float] | None = None,
    before: float = 0.0,
    deciding: float = 0.0,
) -> SearchPlan:
    """The plan for rungs with these prices.

    Args:
        prices: Seconds per candidate by rung, the full training last.
        budget: Seconds to spend.
        size: Candidates in the space.
        device: Where candidates are trained.
        memory_gib: Memory that the search should need.
        free: Seconds per candidate by free rung. They score all candidates, unless that is too expensive.
        before: Seconds of the budget that pass before the first candidate.
        deciding: Seconds that a ladder, which pays without them, takes for its decisions; random search
            takes none.
    """
    free = free or {}
    scored = {name: int(size) if price * size <= MOST_FREE * budget else 0 for name, price in free.items()}
    names = list(prices)
    full, training = prices[names[-1]], max(0.0, budget - before)
    affordable, climbing = int(training / full), max(0.0, training - deciding)
    reserve = full * max(1, min(FEWEST, int(0.15 * training / full)))
    told: dict[str, Any] = {
        "budget": budget,
        "candidates": int(size) if math.isfinite(size) else None,
        "full_trainings": affordable,
        "memory_gib": memory_gib,
        "overhead": before,
        "environment": environment(device),
    }
    prices, sizes = {**free, **prices}, dict.fromkeys([*free, *names], 0)
    if affordable < FEWEST:
        sizes[names[-1]] = affordable
        why = f"the budget pays for {_many(affordable)}, and at least {FEWEST} are needed; allow more time"
        return SearchPlan(rungs=_rungs(prices, sizes), why=why, **told)
    if size <= affordable:
        sizes[names[-1]] = int(size)
        why = f"{every(int(size), 'candidate')} can be trained in full within the budget; do that"
        return SearchPlan(rungs=_rungs(prices, sizes), why=why, **told)
    used = names[
        next(k for k, name in enumerate(names) if prices[name] <= STEEP * full or name == names[-1]) :
    ]
    worlds = PriorWorlds(len(used), int(min(size, MOST)), numpy_stream(0, "plan"))
    plain = worlds.value([*[0] * (len(used) - 1), affordable])
    limits = dict.fromkeys(used, math.inf)
    left = climbing - reserve - sum(free[name] * count for name, count in scored.items())
    best = allocate(worlds, used, prices, left, limits)
    gain = best.value - plain if best is not None else 0.0
    pays = best is not None and gain >= MARGIN
    spread, chance = best, None
    if best is not None:
        limited = allocate(worlds, used, prices, left, _limits(used, prices, climbing))
        spread = limited if limited is not None and any([*limited.sizes.values()][:-1]) else best
        fresh = PriorWorlds(len(used), int(min(size, MOST)), numpy_stream(0, "plan", "chance"), CHANCES)
        alone = fresh.chance([*spread.sizes.values()], affordable, numpy_stream(0, "plan", "random"))
        chance = raised(alone, ODDS)
    if spread is not None and pays:
        sizes |= scored | {name: int(min(count, size)) for name, count in spread.sizes.items()}
        sizes[names[-1]] += round(reserve / full)
        told["overhead"] += deciding
        first = next(name for name in names if sizes[name])
        why = (
            f"'{first}' tries {counted(sizes[first], 'candidate')} where the budget trains {affordable:,} in "
            f"full; if its ranking proves good, the best is expected {gain:.1f} standard deviations higher "
            "than with random search"
        )
    else:
        sizes[names[-1]] = affordable
        why = _no_gain(affordable, full, deciding / budget)
    return SearchPlan(rungs=_rungs(prices, sizes), pays=pays, gain=gain, chance=chance, why=why, **told)


def _limits(used: Sequence[str], prices: Mapping[str, float], budget: float) -> dict[str, float]:
    """The most seconds of each rung, as a search allots them.

    Until stand-ins have proved their worth, all get a trial part together. A rung between gets nothing if the
    budget does not pay for its audits.
    """
    trial, full = LadderSettings().trial, prices[used[-1]]
    share = trial + (1 - trial) * max(0.0, 1 - PROVING * full / budget)
    kept = [
        name for k, name in enumerate(used[:-1]) if not k or FEWEST_AUDITS * prices[name] <= AUDITING * budget
    ]
    found = {name: share * budget / len(kept) if name in kept else 0.0 for name in used[:-1]}
    return {**found, used[-1]: math.inf}


def _rungs(prices: Mapping[str, float], sizes: Mapping[str, int]) -> list[RungPlan]:
    return [RungPlan(name=name, price=price, candidates=sizes[name]) for name, price in prices.items()]


def _no_gain(affordable: int, price: float, deciding: float) -> str:
    """Why a ladder does not pay; if ``deciding``, it would if decisions did not take this share."""
    if deciding:
        return (
            f"decisions would take {deciding:.0%} of the budget, and in the rest a ladder is not expected to "
            f"find better candidates than the {affordable:,} that can be trained in full instead; use random "
            "search"
        )
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
