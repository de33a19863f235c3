"""The uniform sample that a search begins with: audits of every rung, and the first data of the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hcdc.search._problem import STEEP, Rung

if TYPE_CHECKING:
    from hcdc.search._ladder import Ladder

FIRST, STARTING = 4, 0.1
"""Candidates on the cheapest rung before any rung is found too dear, unless they take this share of the
budget."""
SAMPLED = 0.05
"""Share of the budget for the sample on a stand-in."""
AUDITING, FEWEST_AUDITS = 0.12, 8
"""At most this share of the budget is for audits in full; a rung between is too dear if it would not pay for
this many of its candidates."""
CERTAIN = 0.06
"""With this share of the budget, audits in full may be as many as on other rungs: enough to trust the last
stand-in."""


def pilot(ladder: Ladder) -> None:
    """Score a uniform sample on every rung: the audit samples, and the first data of the model."""
    board, paid, full = ladder.board, ladder.paid, ladder.full
    rng = ladder.decide()
    if ladder.problem.candidates() is None:
        board.add(ladder.problem.propose(ladder.settings.pool, rng))
    order = [int(i) for i in rng.permutation(len(board.configs))]
    known = [i for i in order if i in board.outcomes[full.name]]
    sample = [i for i in order if i not in board.outcomes[full.name]][: ladder.settings.audits]
    for number in (0, 1):
        ladder.evaluate(paid[0], sample[number : number + 1])
    _drop_steep(ladder)
    if paid[0] in ladder.kept[:-1]:
        for number in range(2, FIRST):
            if ladder.spent[paid[0].name] < STARTING * ladder.budget:
                ladder.evaluate(paid[0], sample[number : number + 1])
    ladder.sample = sample
    thin(ladder)
    for below, rung in zip([None, *ladder.kept], ladder.kept):
        sample = sample[: _size(ladder, rung)]
        if rung is full and below is not None:  # one of them may take half of the budget
            sample = ladder.prices.first_within(rung, sample, AUDITING * ladder.budget)
        if below is not None:
            place = paid.index(rung) - 1
            ladder.audits[paid[place].name] = ladder.store.note(f"audit {below.name}", sample)
        ladder.evaluate(rung, [i for i in sample if i not in board.outcomes[rung.name]])
    for rung in ladder.kept[:-1]:  # on cheaper rungs, what is known in full teaches the model
        ladder.evaluate(rung, known[: _size(ladder, rung)])


def thin(ladder: Ladder) -> None:
    """Drop rungs that save too little, and rungs between that are too dear to be audited."""
    _drop_steep(ladder)
    for rung in ladder.kept[1:-1]:
        if FEWEST_AUDITS * ladder.prices.of(rung) > AUDITING * ladder.budget:
            seems = "" if ladder.prices.measured(rung) else "expected to be "
            ladder.dropped[rung.name] = f"{seems}too expensive for this budget"


def _drop_steep(ladder: Ladder) -> None:
    """Drop the lowest rungs that save too little."""
    while len(ladder.kept) > 1 and (share := ladder.prices.share(ladder.kept[0])) > STEEP:
        ladder.dropped[ladder.kept[0].name] = f"saves too little: costs {share:.0%} of a full training"


def _size(ladder: Ladder, rung: Rung) -> int:
    """Size of the uniform sample on a rung: as many as a small part of the budget pays for."""
    price, budget, settings = ladder.prices.of(rung), ladder.budget, ladder.settings
    if math.isnan(price):  # not one candidate fitted
        return 0
    if rung is not ladder.full:
        return max(2, min(settings.audits, int(SAMPLED * budget / price)))
    affordable = max(0, int((ladder.end(0) - ladder.seconds) / price))
    least = 0 if len(ladder.kept) > 1 else 2  # full trainings alone: the model needs a start
    usual = max(settings.full_audits, min(settings.audits, int(CERTAIN * budget / price)))
    return min(max(least, min(usual, int(AUDITING * budget / price))), affordable)
