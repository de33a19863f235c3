"""Statistics over draws of cells: rank agreement, regret, gains with intervals."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.seeds import numpy_stream
from hcdc.experiments.nas201_rankings import CELLS, Array, Ranking

DRAWS, REGRET_DRAWS = 1_000, 10_000
"""Draws of 100 cells for correlations and for regrets, which are noisier."""
TOP, PROMOTED, PROBES = 30, 5, 20
Indices = NDArray[np.int64]
Singles = NDArray[np.float32]


@functools.cache
def draws(cells: int, number: int = DRAWS) -> Indices:
    """Draws of 100 cells ``[number, 100]``, the same for all rows with as many judging cells."""
    rng = numpy_stream(0, "nas201-draws")
    return np.stack([rng.permutation(cells)[: min(CELLS, cells)] for _ in range(number)])


def pooled(ranked: Sequence[Ranking], values: Sequence[Any]) -> Array:
    """Values of every run ``[runs, ...]``, repeated so that condensations weigh equally despite different
    numbers of draws."""
    runs = Counter(one.seed for one in ranked)
    times = math.lcm(*runs.values())
    return np.repeat(np.asarray(values, float), [times // runs[one.seed] for one in ranked], axis=0)


class Samples:
    """Spearman's correlations with a truth on many samples of cells at once.

    Ranks are multiples of one half, which single precision holds exactly.

    Args:
        truth: Full-data scores ``[n]``.
        cells: The cells of each sample ``[samples, m]``, possibly repeated.
    """

    def __init__(self, truth: Array, cells: Indices):
        self.counts = np.zeros((len(truth), len(cells)), np.float32)
        np.add.at(self.counts, (cells.T, np.arange(len(cells))), 1)
        self.middle = np.float32((cells.shape[1] + 1) / 2)
        ranks, group, self.length = self._ranks(truth)
        self.truth = self.counts * ranks[group]

    def _ranks(self, values: Array) -> tuple[Singles, NDArray[np.intp], Singles]:
        """Centred average ranks of the distinct values in each sample ``[distinct, samples]``, the value
        index of each cell ``[n]``, and the norm of each sample's rank vector ``[samples]``."""
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        passed = self.counts[np.argsort(group, kind="stable")].cumsum(0)
        if len(sizes) < len(values):
            passed = passed[sizes.cumsum() - 1]
        held = passed.copy()
        held[1:] -= passed[:-1]
        ranks: Singles = passed - (held - np.float32(1)) / np.float32(2) - self.middle
        return ranks, group, np.sqrt(np.einsum("gs,gs,gs->s", held, ranks, ranks))

    def correlations(self, scores: Array) -> Array:
        """One per sample; NaN if all its scores are equal."""
        ranks, group, length = self._ranks(scores)
        with np.errstate(invalid="ignore"):
            found: Array = np.einsum("ns,ns->s", self.truth, ranks[group]).astype(float)
            return found / self.length / length


class Regrets:
    """Points of test accuracy that a choice loses against the best of each draw.

    Args:
        truth, test: Full-data validation and test accuracy of the cells ``[n]``.
    """

    def __init__(self, truth: Array, test: Array):
        self.cells = draws(len(truth), REGRET_DRAWS)
        self.order = np.argsort(truth, kind="stable")
        place = np.empty(len(truth), np.int16)
        place[self.order] = np.arange(len(truth))
        self.place = place[self.cells]
        self.val, self.test = truth, test
        self.best = test[self.cells].max(1)

    def _best(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The best by validation among the chosen cells of each draw, ``[draws]`` from ``[draws, 100]``."""
        places: NDArray[np.int16] = (self.place * chosen).max(1)  # the worst cell has place 0
        return self.order[places]

    def _lost(self, picked: NDArray[np.intp], known: tuple[float, float] | None = None) -> Array:
        """Regret of picks ``[draws]``, or of the best probe if its validation is better."""
        reached = self.test[picked]
        if known is not None:
            reached = np.where(known[0] > self.val[picked], known[1], reached)
        lost: Array = 100 * (self.best - reached)
        return lost

    def figures(self, ranking: Ranking) -> dict[str, Array]:
        """``regret``: of the pick. ``promoted``: of the best by validation among the first 5. ``equal``: of
        the best of 25 full trainings, the 20 probes and 5 promoted cells or, without probes, 25 promoted. A
        probe may beat all cells of a draw, so regrets may be negative."""
        width = self.cells.shape[1]
        places = np.arange(width, dtype=np.int32)  # ties keep the draw's order
        _, worse = np.unique(-ranking.scores, return_inverse=True)
        key = worse.astype(np.int32)[self.cells] * 128 + places

        def foremost(number: int) -> NDArray[np.bool_]:
            last = min(number, width) - 1
            return key <= np.partition(key, last, axis=1)[:, last : last + 1]

        promoted = self._best(foremost(PROMOTED))
        more = promoted if ranking.known else self._best(foremost(PROMOTED + PROBES))
        return {
            "regret": self._lost(self.cells[np.arange(len(key)), key.min(1) % 128]),
            "promoted": self._lost(promoted),
            "equal": self._lost(more, ranking.known),
        }

    def of_probes(self, known: tuple[float, float]) -> dict[str, Array]:
        """``probes``: regret of the best probe. ``random``: of the best of the probes and 5 random cells."""
        anyone = self._best(np.arange(self.cells.shape[1]) < PROMOTED)
        return {"probes": 100 * (self.best - known[1]), "random": self._lost(anyone, known)}


def mean_text(values: Array, spread: bool = False) -> str:
    """Mean of values ``[runs, draws]`` with at most two decimals, as many as the draws support.

    Twice the standard error over draws is below one unit of the last digit shown. ``spread`` adds the 5 % and
    95 % quantiles over runs and draws.
    """
    each = values.mean(0)
    error = 2 * float(each.std()) / math.sqrt(len(each))
    digits = 2 if error < 0.01 else 1 if error < 0.1 else 0
    text = f"{float(each.mean()):.{digits}f}"
    if spread:
        least, most = np.quantile(values, [0.05, 0.95])
        text += f" [{least:.{digits}f}, {most:.{digits}f}]"
    return text


def beside(mine: Ranking, theirs: Sequence[Ranking]) -> Sequence[Ranking]:
    """What a run is compared with: the same probes, else the same condensation, else all."""
    same = [one for one in theirs if one.seed == mine.seed]
    return [one for one in same if one.draw == mine.draw] or same or theirs


class Resampled:
    """Gains in Spearman's correlation over other rankings, on all cells and on resampled ones.

    Args:
        truth: Full-data scores of the cells ``[n]``.
        ours: The rankings that gain.
    """

    def __init__(self, truth: Array, ours: Sequence[Ranking]):
        self.rng, count = numpy_stream(0, "nas201-resampled"), len(truth)
        self.cells = np.vstack([np.arange(count), self.rng.integers(count, size=(DRAWS, count))])
        self.samples, self.ours = Samples(truth, self.cells), ours
        self.reached = [self.samples.correlations(one.scores) for one in ours]
        by_seed: dict[int | None, list[int]] = {}
        for run, one in enumerate(ours):
            by_seed.setdefault(one.seed, []).append(run)
        self.condensations = list(by_seed.values())
        self.weight = self._mean_of(self.condensations)
        self.weights = np.stack([self._mean_of(self._drawn()) for _ in range(DRAWS)])

    def _drawn(self) -> list[list[int]]:
        """Resample condensations, and the runs of each, with replacement."""
        count = len(self.condensations)
        lots = [self.condensations[k] for k in self.rng.integers(count, size=count)] if count else []
        return [[lot[k] for k in self.rng.integers(len(lot), size=len(lot))] for lot in lots]

    def _mean_of(self, lots: Sequence[Sequence[int]]) -> Array:
        """Weights of the runs ``[runs]`` in the mean over condensations of their runs' means."""
        weight = np.zeros(len(self.ours))
        for lot in lots:
            np.add.at(weight, lot, 1 / (len(lot) * len(lots)))
        return weight

    def gains(self, theirs: Sequence[Ranking]) -> tuple[float, float, float]:
        """The mean paired gain (see `beside`) and its 90 % interval, from resampled cells, condensations and
        draws of probes."""
        known = {id(one): self.samples.correlations(one.scores) for one in theirs}
        gains = np.stack(
            [
                mine - np.mean([known[id(other)] for other in beside(one, theirs)], 0)
                for one, mine in zip(self.ours, self.reached)
            ]
        )
        means = (self.weights * gains[:, 1:].T).sum(1)
        low, high = np.quantile(means, [0.05, 0.95])
        return float(self.weight @ gains[:, 0]), float(low), float(high)

    def gain(self, theirs: Sequence[Ranking]) -> str:
        """`gains` as text; empty if there is nothing to compare."""
        if not self.ours:
            return ""
        mean, low, high = self.gains(theirs)
        return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
