"""Searches whose full trainings take less time than decisions about them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hcdc.core.seeds import numpy_stream
from hcdc.search._allocation import leading
from hcdc.search._board import Posterior

if TYPE_CHECKING:
    from hcdc.search._ladder import Ladder

CHEAP, LONGER = 0.02, 10
"""Full trainings are quick beside decisions if one takes at most this many seconds, and a decision as long as
this many of them."""
CROWD, CHOSEN = 384, 4
"""Most candidates that the model is fitted to. One in this many that are eligible is trained at once."""


def trainings_are_quick(ladder: Ladder) -> bool:
    """Whether full trainings are quick beside decisions, of which one is timed if they seem to be."""
    price, name = ladder.prices.of(ladder.full), ladder.full.name
    if not price <= CHEAP or not np.isfinite(ladder.board.scores(name)).any():
        return False
    ladder.overhead.tick()
    rng = numpy_stream(ladder.seed, "timing")
    Posterior(ladder.board, [name], ladder.free, ladder.settings.draws, rng)
    return ladder.overhead.tick() > LONGER * price


def hurry(ladder: Ladder) -> None:
    """Spend the budget on quick full trainings: each decision is followed by as many as take as long.

    Waves would train whole pools of proposals, and the model could choose nothing. Stand-ins could not save
    what decisions about them cost.
    """
    ladder.hurried = True
    ladder.dropped |= {rung.name: "full trainings are quick" for rung in ladder.kept[:-1]}
    board, full, draws = ladder.board, ladder.full, ladder.settings.draws
    scored, thought, most = board.outcomes[full.name], 0.0, _most(ladder)
    while len(scored) < most:
        ladder.renew_pool(rng := ladder.decide())
        eligible = np.array([i for i in range(len(board.configs)) if i not in scored], np.int64)
        price = ladder.prices.of(full)
        if not len(eligible) or ladder.seconds + thought + price > ladder.end(0):
            return
        count = max(full.batch, min(math.ceil(thought / price), len(eligible) // CHOSEN))
        outlook = Posterior(board, [full.name], ladder.free, draws, rng, CROWD).outlook
        picks = leading(outlook, eligible, min(count, most - len(scored)))
        thought = ladder.overhead.tick()
        if not ladder.evaluate(full, picks):
            return


def _most(ladder: Ladder) -> int:
    """The most full trainings: all candidates, or as many as waves of proposals have."""
    everything, settings = ladder.problem.candidates(), ladder.settings
    some = settings.waves * settings.pool if everything is None else len(everything)
    return some if settings.candidates is None else min(some, settings.candidates)
