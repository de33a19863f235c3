"""What is known: candidates, their outcomes on every rung, and posterior draws of their full scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hcdc.core.configs import Config, config_hash
from hcdc.core.ranks import standard
from hcdc.core.threads import one_blas_thread
from hcdc.search._problem import Array, Outcome, Problem
from hcdc.search._regression import PRIOR_SLOPE, Inputs, RungModel
from hcdc.search._warp import Warp

Index = NDArray[np.int64]


class Board:
    """Candidates and their outcomes.

    Args:
        problem: What is searched.

    Attributes:
        configs: The candidates, in order of arrival.
        outcomes: By rung name, the outcome of each candidate (by index) that was scored on it.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.configs: list[Config] = []
        self.outcomes: dict[str, dict[int, Outcome]] = {rung.name: {} for rung in problem.rungs}
        self._index: dict[str, int] = {}
        self._features, self._revision = np.empty((0, 0)), problem.revision

    def add(self, configs: Iterable[Config]) -> list[int]:
        """Enter candidates; the index of each, known ones included."""
        found = []
        for config in configs:
            key = config_hash(config)
            if key not in self._index:
                self._index[key] = len(self.configs)
                self.configs.append(config)
            found.append(self._index[key])
        return found

    def tell(self, rung: str, outcomes: Iterable[Outcome]) -> None:
        """Enter outcomes of candidates on a rung."""
        for outcome in outcomes:
            self.outcomes[rung][self.add([outcome.config])[0]] = outcome

    def scored(self, rung: str) -> Index:
        """Indices of the candidates that were scored on a rung, failed ones included."""
        return np.array(sorted(self.outcomes[rung]), np.int64)

    def scores(self, rung: str) -> Array:
        """Scores ``[n]`` of all candidates on a rung: NaN where unknown, below the worst where failed."""
        found = np.full(len(self.configs), np.nan)
        outcomes = self.outcomes[rung]
        for index, outcome in outcomes.items():
            found[index] = outcome.score if outcome.complete else np.nan
        known = found[np.isfinite(found)]
        worst = known.min() - max(float(known.std()), 1e-9) if len(known) else 0.0
        for index, outcome in outcomes.items():
            if not outcome.complete:
                found[index] = worst
        return found

    def features(self, free: Sequence[str] = ()) -> Array:
        """Standardised features ``[n, f]``, with the figures of free rungs where all candidates have them."""
        if self._revision != self.problem.revision:
            self._features, self._revision = np.empty((0, 0)), self.problem.revision
        if len(self._features) < len(self.configs):
            fresh = self.problem.features(self.configs[len(self._features) :])
            self._features = np.concatenate([self._features.reshape(-1, fresh.shape[1]), fresh])
        columns = [self._features]
        for outcomes in (self.outcomes[rung] for rung in free):
            if len(outcomes) == len(self.configs):
                ordered = [outcomes[i] for i in range(len(outcomes))]
                names = sorted(ordered[0].values)
                table = [[o.score, *(o.values[name] for name in names)] for o in ordered]
                columns.append(np.nan_to_num(np.array(table, np.float64)))
        raw = np.concatenate(columns, 1)
        keep = raw[:, raw.std(0) > 1e-12]
        return np.stack([standard(column) for column in keep.T], 1) if keep.size else np.empty((len(raw), 0))


class Posterior:
    """Draws of every candidate's score on every rung, given all that is known.

    Each rung is modelled given the rungs below it and the features. Candidates are promoted by what is known
    of them, so the scores that are missing do not bias these regressions.

    Args:
        board: What is known.
        rungs: Names of the rungs in use, cheapest first; each needs two scored candidates.
        free: Names of the free rungs.
        draws: Number of draws.
        rng: The random stream.

    Attributes:
        values: By rung, normal scores ``[draws, n]``; constant over draws where the score is known.
        full: Full scores ``[draws, n]`` in their own unit.
    """

    def __init__(
        self, board: Board, rungs: Sequence[str], free: Sequence[str], draws: int, rng: np.random.Generator
    ):
        self.values: dict[str, Array] = {}
        with one_blas_thread():
            self._draw(board, rungs, board.features(free), draws, rng)

    def _draw(
        self, board: Board, rungs: Sequence[str], features: Array, draws: int, rng: np.random.Generator
    ) -> None:
        lower: list[Array] = []
        below = np.ones(len(board.configs), bool)  # scored on all lower rungs; earlier results may not be
        for name in rungs:
            scores = board.scores(name)
            seen = np.flatnonzero(np.isfinite(scores))
            warp = Warp(scores[seen], *_expected(lower[-1][0, seen] if lower else None))
            known = warp(scores)
            at = self._inputs(lower, features)
            fit = self._inputs([np.broadcast_to(v, (draws, len(features)))[0] for v in lower], features)
            model = RungModel(fit.take(whole := seen[below[seen]]), known[whole], rng)
            below[np.isnan(scores)] = False
            _, value = model.draw(at, draws, rng)
            value[:, seen] = known[seen]
            self.values[name] = value
            lower.append(value)
        self.full: Array = warp.inverse(self.values[rungs[-1]])

    @staticmethod
    def _inputs(lower: Sequence[Array], features: Array) -> Inputs:
        others = np.stack(lower[:-1], -1) if len(lower) > 1 else np.empty((len(features), 0))
        return Inputs(lower[-1] if lower else None, others, features)


def _expected(below: Array | None) -> tuple[float, float]:
    """Mean and deviation that normal scores should have on a rung, given those of its candidates below.

    Promoted candidates are better than most: zero is the middle of all candidates, not of these.
    """
    if below is None:
        return 0.0, 1.0
    return PRIOR_SLOPE * float(below.mean()), math.sqrt(
        PRIOR_SLOPE**2 * float(below.var()) + 1 - PRIOR_SLOPE**2
    )
