"""What candidates cost on the rungs, measured while a search runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from hcdc.search._board import Board, Index
from hcdc.search._problem import Array, Rung

RECENT, PAIRS = 24, 4
"""Candidates from which a rung's price is measured; fewest on two rungs to compare their prices."""
SLOPES, OWN = 4.0, 0.25
"""Penalties of the slopes of log seconds on features, and of what a candidate takes beyond them."""
ALIKE = 0.1
"""Deviation of log seconds on a rung below which candidates count as equally expensive."""


class Prices:
    """Seconds per candidate.

    Args:
        board: What is known; results from before the search cost nothing and are left out.
        paid: The rungs that are not free, cheapest first; the last is the full training.

    Attributes:
        guesses: Prices by rung, to be used until seconds have been measured there.
    """

    def __init__(self, board: Board, paid: Sequence[Rung]):
        self.board, self.paid = board, paid
        self.guesses: dict[str, float] = {}

    def of(self, rung: Rung) -> float:
        """Seconds per candidate: measured on the latest ones, else from the share of a full training.

        The first ones are slower: code is loaded, and candidates may not fill a batch yet.
        """
        if seen := self._recent(rung) or self.guesses.get(rung.name):
            return seen
        for other in reversed(self.paid if rung.share else []):
            if known := self._recent(other):
                return known * rung.share / other.share
        return math.nan

    def measured(self, rung: Rung) -> bool:
        """Whether a candidate was trained on a rung, so that its price is no guess from other rungs."""
        return self._recent(rung) is not None

    def expected(self, rung: Rung, some: Sequence[int]) -> Array:
        """Seconds that candidates should take on a rung ``[n]``: the mean, or more if they were expensive
        elsewhere.

        Good candidates are often expensive, such as large networks, so the mean would overrun the budget.
        """
        price, own = self.of(rung), self._seconds(rung)
        others = reversed(self.paid[: self.paid.index(rung)] if rung in self.paid else [])
        below = [(self._seconds(other), self._mean_of_both(other, rung)) for other in others]

        def one(index: int) -> float:
            if index in own:
                return own[index]
            for seconds, mean in below:
                if taken := seconds.get(index):
                    return max(price, price * taken / mean)
            return price

        return np.array([one(index) for index in some], np.float64)

    def room(self, rung: Rung, indices: Sequence[int], left: float, kept: float = math.inf) -> list[int]:
        """The candidates that ``left`` seconds have room for, in order, without those that are too dear.

        One that takes more than ``kept`` seconds needs room for the rest again. One of unknown price fits
        while any seconds are left.
        """
        found = []
        for index, seconds in zip(indices, np.nan_to_num(self.expected(rung, indices)).tolist()):
            if left > 0 if not seconds else seconds + max(0.0, seconds - kept) <= left:
                left -= seconds
                found.append(int(index))
        return found

    def first_within(self, rung: Rung, sample: Sequence[int], limit: float) -> list[int]:
        """The first of a sample, until together they are expected to take more than ``limit`` seconds."""
        needed = np.cumsum(self.expected(rung, sample))
        return list(sample[: int((needed <= limit * (1 + 1e-9)).sum())])

    def bearable(self, rung: Rung, eligible: Index, limit: float, features: Array) -> Index:
        """The candidates that are expected to take at most ``limit`` seconds, else the cheapest of them.

        All where all cost about the same: a limit on the mean price would leave nothing to choose.

        Args:
            rung: The rung.
            eligible: The candidates.
            limit: Seconds.
            features: Standardised features of all candidates ``[n, f]``.
        """
        if not len(eligible) or not self.logs(features).any():
            return eligible
        needed = self.expected(rung, eligible.tolist())
        found: Index = eligible[needed <= max(limit, needed.min())]
        return found

    def affine(self, rung: Rung, index: int) -> float:
        """Seconds of a candidate on a rung from what it took on the two closest rungs below, as a fixed part
        and one that rises with the share; in proportion to the share if it was on one."""
        below = [r for r in self.paid[: self.paid.index(rung)] if self._taken(r, index)]
        if not below:
            return self.of(rung)
        high, seconds = below[-1], self._taken(below[-1], index) or 0.0
        slope = seconds / high.share
        if len(below) > 1:
            slope = (seconds - (self._taken(below[-2], index) or 0.0)) / (high.share - below[-2].share)
        return seconds + max(slope, 0.0) * (rung.share - high.share)

    def logs(self, features: Array) -> Array:
        """Logarithms of what candidates cost beside each other ``[n]``; zeros where all cost about the same.

        The logarithm of seconds is the level of a rung, slopes on the features (ridge), and what a candidate
        took beyond that on any rung, shrunk. The first on a rung is left out: it is slow. So are failed and
        pruned candidates: they seem cheap.

        Args:
            features: Standardised features of all candidates ``[n, f]``.
        """
        seen = [
            (place, index, math.log(seconds))
            for place, rung in enumerate(self.paid)
            for index, seconds in list(self._seconds(rung).items())[1:]
            if seconds > 0 and self.board.outcomes[rung.name][index].complete
        ]
        rungs, index, target = np.array(seen).reshape(-1, 3).T
        place, levels = index.astype(int), (rungs[:, None] == np.arange(len(self.paid))).astype(np.float64)
        means = levels.T @ target / np.maximum(levels.sum(0), 1)
        if not seen or float(np.std(target - levels @ means)) < ALIKE:
            return np.zeros(len(features))
        inputs = np.concatenate([levels, features[place]], 1)
        penalty = np.diag([1e-6] * len(self.paid) + [SLOPES] * features.shape[1])
        weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ target)
        beyond = np.bincount(place, target - inputs @ weights, len(features))
        times = np.bincount(place, minlength=len(features))
        found: Array = features @ weights[len(self.paid) :] + beyond / (times + OWN)
        return found

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

    def _taken(self, rung: Rung, index: int) -> float | None:
        """Seconds of a candidate on a rung; None if it was not trained there."""
        outcome = self.board.outcomes[rung.name].get(index)
        return None if outcome is None or outcome.known else outcome.seconds

    def _recent(self, rung: Rung) -> float | None:
        """Mean seconds of the latest candidates on a rung, without the very first if there are others."""
        latest = (o.seconds for o in reversed(self.board.outcomes[rung.name].values()) if not o.known)
        seen = [*itertools.islice(latest, RECENT + 1)][::-1]
        return max(float(np.mean(seen[1:] or seen)), 1e-9) if seen else None

    def _mean_of_both(self, low: Rung, high: Rung) -> float:
        """Mean seconds on a rung of the candidates that set the price of a more expensive one."""
        own, trained = self._seconds(low), list(self._seconds(high))
        seen = [own[i] for i in (trained[1:] or trained)[-RECENT:] if own.get(i)]
        return float(np.mean(seen)) if seen else self.of(low)
