"""What is known: candidates, their outcomes on every rung, and posterior draws of their full scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hcdc.core.configs import Config, config_hash
from hcdc.core.ranks import standard, standard_ranks
from hcdc.core.threads import one_blas_thread
from hcdc.core.warp import Warp
from hcdc.search._problem import Array, Outcome, Problem
from hcdc.search._regression import PRIOR_SLOPE, Inputs, RungModel

Index = NDArray[np.int64]
HINT_LOWEST, HINT_FULL = 0.4, 0.2
"""Expected slopes of a hint, such as the number of parameters: on the lowest rung, and on the full training
at equal scores below."""


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

    def renew(self, configs: Iterable[Config], keep: Iterable[int] = ()) -> None:
        """Enter candidates in the places of those that no rung has scored, except ``keep``."""
        used = {*keep, *(index for some in self.outcomes.values() for index in some)}
        places = [index for index in range(len(self.configs)) if index not in used]
        for config in configs:
            if (key := config_hash(config)) in self._index:
                continue
            if not places:
                self.add([config])
                continue
            place = places.pop(0)
            del self._index[config_hash(self.configs[place])]
            self._index[key], self.configs[place] = place, config
            if place < len(self._features):
                self._features[place] = self.problem.features([config])[0]

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
        raw = np.concatenate([self._features, *self._figures(free)], 1)
        keep = raw[:, raw.std(0) > 1e-12]
        return np.stack([standard(column) for column in keep.T], 1) if keep.size else np.empty((len(raw), 0))

    def hint(self, free: Sequence[str] = ()) -> Array:
        """What is hoped of candidates before any rung, as normal scores ``[n, 1]``; ``[n, 0]`` if nothing is.

        The sum of the ranks of the problem's own hint and of the figures of free rungs.
        """
        own = self.problem.hint(self.configs)
        columns = [*([] if own is None else [own[:, None]]), *self._figures(free)]
        found = np.concatenate([np.empty((len(self.configs), 0)), *columns], 1)
        varied = found[:, found.std(0) > 0]
        if not varied.size:
            return varied[:, :0]
        return standard_ranks(np.sum([standard_ranks(column) for column in varied.T], 0))[:, None]

    def _figures(self, free: Sequence[str]) -> list[Array]:
        """Figures ``[n, k]`` of each free rung that has scored all candidates."""
        known = [self.outcomes[rung] for rung in free if len(self.outcomes[rung]) == len(self.configs)]
        return [free_figures([outcomes[i] for i in range(len(outcomes))]) for outcomes in known]


def free_figures(outcomes: Sequence[Outcome]) -> Array:
    """Scores and further figures ``[n, k]`` on a free rung; where one is undefined, it is below the worst."""
    names = sorted({name for outcome in outcomes for name in outcome.values})
    rows = [[o.score, *(o.values.get(name, math.nan) for name in names)] for o in outcomes]
    table = np.array(rows, np.float64).reshape(len(outcomes), -1)
    for column in table.T:
        known = column[np.isfinite(column)]
        column[~np.isfinite(column)] = known.min() - max(float(known.std()), 1e-9) if len(known) else 0.0
    return table


class Posterior:
    """Draws of every candidate's score on every rung, given all that is known.

    Each rung is modelled given the rungs below it and the features. Candidates are promoted by what is known
    of them, so the scores that are missing do not bias these regressions.

    Args:
        board: What is known.
        rungs: Names of the rungs in use, cheapest first; the first needs scored candidates.
        free: Names of the free rungs.
        draws: Number of draws.
        rng: The random stream.
        most: Most candidates to fit a rung to, a third of them the best, the others random; None takes all.

    Attributes:
        values: By rung, normal scores ``[draws, n]``; constant over draws where the score is known.
        full: Full scores ``[draws, n]`` in their own unit, or in that of the dearest rung with scores.
        outlook: Expected normal scores of the full training ``[draws, n]`` under each draw of the model:
            what differs between draws is what the model does not know, not the noise of single candidates.
    """

    def __init__(
        self,
        board: Board,
        rungs: Sequence[str],
        free: Sequence[str],
        draws: int,
        rng: np.random.Generator,
        most: int | None = None,
    ):
        self._most = most
        self.values: dict[str, Array] = {}
        with one_blas_thread():
            self._draw(board, rungs, board.features(free), board.hint(free), draws, rng)

    def _draw(
        self,
        board: Board,
        rungs: Sequence[str],
        features: Array,
        hint: Array,
        draws: int,
        rng: np.random.Generator,
    ) -> None:
        lower: list[Array] = []
        expected: list[Array] = []
        for name in rungs:
            scores = board.scores(name)
            seen = np.flatnonzero(np.isfinite(scores))
            if len(seen):  # else its scores are given in the unit of the rung below
                warp = Warp(scores[seen], *_expected(lower[-1][0, seen] if lower else None))
            known = warp(scores)
            some = self._some(scores, seen, rng)
            fit = self._inputs([value.mean(0) for value in lower], features, hint).take(some)
            slopes = [*[0.0] * max(0, len(lower) - 1), *self._hinted(name, rungs) * hint.shape[1]]
            doubt = (
                PRIOR_SLOPE**2 * lower[-1][:, some].var(0) if lower else None
            )  # where the rung was skipped
            model = RungModel(fit, known[some], rng, slopes, doubt)
            at, ahead = (self._inputs(chain, features, hint) for chain in (lower, expected))
            for chain, value in zip((lower, expected), model.draw(at, ahead, draws, rng)):
                value[:, seen] = known[seen]
                chain.append(value)
            self.values[name] = lower[-1]
        self.outlook: Array = expected[-1]
        self.full: Array = warp.inverse(lower[-1])

    def _some(self, scores: Array, seen: Index, rng: np.random.Generator) -> Index:
        """The candidates that a rung is fitted to, among those it has scored."""
        if self._most is None or len(seen) <= self._most:
            return seen
        order = seen[np.argsort(-scores[seen], kind="stable")]
        top = self._most // 3
        return np.sort(
            np.concatenate([order[:top], rng.choice(order[top:], self._most - top, replace=False)])
        )

    @staticmethod
    def _hinted(name: str, rungs: Sequence[str]) -> list[float]:
        """Expected slope of a hint on a rung: a larger network gains more from the rest of its training.

        Full trainings alone are too few to correct a wrong hint, so there it is not believed.
        """
        if len(rungs) == 1:
            return [0.0]
        return [HINT_LOWEST if name == rungs[0] else HINT_FULL if name == rungs[-1] else 0.0]

    @staticmethod
    def _inputs(lower: Sequence[Array], features: Array, hint: Array) -> Inputs:
        if not lower:
            return Inputs(None, hint, features)
        columns = [*lower[:-1], *(np.broadcast_to(column, lower[-1].shape) for column in hint.T)]
        others = np.stack(columns, -1) if columns else np.empty((len(features), 0))
        return Inputs(lower[-1], others, features)


def _expected(below: Array | None) -> tuple[float, float]:
    """Mean and deviation that normal scores should have on a rung, given those of its candidates below.

    Promoted candidates are better than most: zero is the middle of all candidates, not of these.
    """
    if below is None:
        return 0.0, 1.0
    return PRIOR_SLOPE * float(below.mean()), math.sqrt(
        PRIOR_SLOPE**2 * float(below.var()) + 1 - PRIOR_SLOPE**2
    )
