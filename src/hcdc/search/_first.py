"""The first scores on a rung, where what is known of its price would forbid them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hcdc.core.seeds import numpy_stream

if TYPE_CHECKING:
    from hcdc.search._ladder import Ladder


def first_full(ladder: Ladder) -> bool:
    """Train one candidate in full if the search would end without, because the price only seems too high.

    Without a full training its price follows from the share of a cheaper rung. That is too much where a trial
    costs as much on less data, or where a few candidates were expensive. So the best candidate that seems
    affordable by its own seconds climbs alone. What it took on two rungs tells the fixed part of a price.
    Nothing is kept back for a second full training then: one chooses nothing, so its score can be reported.
    """
    board, full, lowest, prices = ladder.board, ladder.full, ladder.paid[0], ladder.prices
    if board.outcomes[full.name] or lowest is full:
        return False
    ladder.alone, scores = True, board.scores(lowest.name)
    seen = np.flatnonzero(np.isfinite(scores))
    for index in seen[np.argsort(-scores[seen], kind="stable")].tolist():
        for rung in ladder.paid[1:]:
            for one in (rung, full):
                prices.guesses[one.name] = prices.affine(one, index)
            if ladder.seconds + prices.of(rung) > ladder.end(0):
                break
            ladder.dropped.pop(rung.name, None)
            ladder.evaluate(rung, [index])
        if board.outcomes[full.name]:
            break
    ladder.alone = False
    return bool(board.outcomes[full.name])


def started(ladder: Ladder) -> bool:
    """Score random candidates on the cheapest rung in use until it has two: the model needs them.

    It may have fewer if the rungs below turned out to save too little.
    """
    rung, scored = ladder.kept[0], ladder.board.outcomes[ladder.kept[0].name]
    if len(scored) < 2:
        order = numpy_stream(ladder.seed, "start", ladder.decisions).permutation(len(ladder.board.configs))
        fresh = [i for i in order.tolist() if i not in scored]
        ladder.evaluate(rung, fresh[: 2 - len(scored)])
    return len(scored) >= 2
