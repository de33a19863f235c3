"""Seconds that a search takes for its decisions, from decisions that are timed on made-up scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hcdc.core.planned import RungPlan
from hcdc.core.progress import timed
from hcdc.core.seeds import numpy_stream
from hcdc.search._allocation import Simulation, allocate
from hcdc.search._board import Board, Posterior
from hcdc.search._ladder import QUICK
from hcdc.search._problem import Outcome, Problem
from hcdc.search._settings import LadderSettings

FEW, MOST = 16, 500
"""Made-up scores on the cheapest rung in the two decisions that are timed: few, as after audits, and many."""
PARTS = 100
"""Parts of the planned candidates that the forecast tries."""


def decision_seconds(problem: Problem, rungs: Sequence[RungPlan], budget: float, seed: int = 0) -> float:
    """Seconds for the decisions of a search, which has that much less for its candidates.

    Each wave fits the model once to plan and once to choose for each rung; where that is quick beside a full
    training, it is also fitted before each of these. With more scores a fit takes longer, by their square.

    Args:
        problem: What is searched; its parameters are known.
        rungs: What the search would do if decisions took no time.
        budget: Seconds for candidates and decisions.
        seed: Draws candidates and scores.
    """
    used = [rung for rung in rungs if rung.candidates]
    halfway = {rung.name: math.ceil(rung.candidates / 2) for rung in used}
    largest = max(halfway.values())
    few, many = (min(1.0, count / largest) for count in (FEW, MOST))
    _timed(problem, halfway, few, budget, seed)  # the first one loads code
    least, whole = (_timed(problem, halfway, share, budget, seed) for share in (few, many))
    settings, full = LadderSettings(), used[-1]
    for part in np.linspace(1, 0, PARTS + 1).tolist():
        fit = least + max(0.0, whole - least) * (part / many) ** 2
        each = full.candidates * part if fit <= QUICK * full.price else 0.0
        seconds = fit * (settings.waves * len(used) + max(settings.waves, each))
        if part * budget + seconds <= budget:
            break
    return min(float(seconds), budget)


def _timed(problem: Problem, sizes: Mapping[str, int], share: float, budget: float, seed: int) -> float:
    """Seconds to fit the model and to plan, with made-up scores: a share of ``sizes`` per rung."""
    rng, settings, board = numpy_stream(seed, "deciding"), LadderSettings(), Board(problem)
    board.add(problem.candidates() or problem.propose(settings.pool, rng))
    for name, size in sizes.items():
        configs = board.configs[: max(2, math.ceil(share * size))]
        board.tell(name, [Outcome(config, float(rng.standard_normal()), 1.0) for config in configs])
    names, prices, limits = list(sizes), dict.fromkeys(sizes, 1.0), dict.fromkeys(sizes, math.inf)
    with timed() as spent:
        posterior = Posterior(board, names, (), settings.draws, rng)
        allocate(Simulation(board, posterior, names), names, prices, budget, limits)
    return spent[0]
