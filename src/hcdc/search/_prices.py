"""What candidates cost on the rungs, measured while a search runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hcdc.search._board import Board
from hcdc.search._problem import Rung

RECENT, PAIRS = 24, 4
"""Candidates from which a rung's price is measured; fewest on two rungs to compare their prices."""


class Prices:
    """Seconds per candidate.

    Args:
        board: What is known; results from before the search cost nothing and are left out.
        paid: The rungs that are not free, cheapest first; the last is the full training.
    """

    def __init__(self, board: Board, paid: Sequence[Rung]):
        self.board, self.paid = board, paid

    def of(self, rung: Rung) -> float:
        """Seconds per candidate: measured on the latest ones, else from the share of a full training.

        The first ones are slower: code is loaded, and candidates may not fill a batch yet.
        """
        if seen := self._recent(rung):
            return seen
        for other in reversed(self.paid if rung.share else []):
            if known := self._recent(other):
                return known * rung.share / other.share
        return math.nan

    def expected(self, rung: Rung, index: int, price: float | None = None) -> float:
        """Seconds that a candidate should take on a rung: the mean, or more if it was dear elsewhere.

        Good candidates are often the dear ones, such as large networks, so the mean would overrun the budget.

        Args:
            rung: The rung.
            index: The candidate.
            price: Its price, if it is at hand.
        """
        if index in (own := self._seconds(rung)):
            return own[index]
        price = self.of(rung) if price is None else price
        for other in reversed(self.paid[: self.paid.index(rung)] if rung in self.paid else []):
            if seconds := self._seconds(other).get(index):
                return max(price, price * seconds / self._mean_of_both(other, rung))
        return price

    def share(self, rung: Rung) -> float:
        """Seconds on a rung as a share of a full training's, for the same candidates.

        Costs may differ widely between candidates, so means over different ones do not compare rungs. The
        share is the declared one where few candidates were on both. The first on a rung is left out: it is
        slow.
        """
        low = self._seconds(rung)
        for above in reversed(self.paid[self.paid.index(rung) + 1 :]):
            high = self._seconds(above)
            both = set(list(low)[1:]) & set(list(high)[1:])
            if len(both) >= PAIRS and (seconds := sum(high[i] for i in both)):
                return sum(low[i] for i in both) / seconds * self.share(above)
        return rung.share / self.paid[-1].share

    def _seconds(self, rung: Rung) -> dict[int, float]:
        """Seconds of each candidate that was trained on a rung, in order."""
        return {i: o.seconds for i, o in self.board.outcomes[rung.name].items() if not o.known}

    def _recent(self, rung: Rung) -> float | None:
        """Mean seconds of the latest candidates on a rung, without the very first if there are others."""
        seen = list(self._seconds(rung).values())
        return max(float(np.mean(seen[1:][-RECENT:] or seen)), 1e-9) if seen else None

    def _mean_of_both(self, low: Rung, high: Rung) -> float:
        """Mean seconds on a rung of the candidates that set the price of a dearer one."""
        own = self._seconds(low)
        seen = [own[i] for i in list(self._seconds(high))[1:][-RECENT:] if own.get(i)]
        return float(np.mean(seen)) if seen else self.of(low)
