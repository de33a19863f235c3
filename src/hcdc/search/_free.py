"""The free rung: training-free scores of every candidate, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.progress import timed
from hcdc.search._problem import Outcome, Rung
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training.free import free_score, free_scores

if TYPE_CHECKING:
    from hcdc.search._ladder import Ladder

KIND = "free"
USUAL = ("jacov", "naswot", "synflow")
"""Scores by default, as far as they are defined for the networks of a space."""
MOST = 0.1
"""Largest share of the budget for a free rung."""
FEW = 4
"""Candidates whose scores are timed for a plan."""


class FreeRung(Rung):
    """Scores untrained candidates; the model uses all its scores, the first is the rung's own.

    Args:
        task, space: What would be trained. All candidates are scored, so the space must be finite, and their
            networks must differ.
        name: ``"free"`` or the scores to use, as in ``"free:jacov+naswot"``; see `hcdc.training.free`.
        seed: Draws the minibatch and the initialisation.

    Attributes:
        scores: Names of its training-free scores.
    """

    share, batch = 0.0, 8

    def __init__(self, task: Task, space: Space, name: str = KIND, seed: int = 0):
        self.name, self.task, self.space, self.seed = name, task, space, seed
        self.scores = self._checked([text for text in name.partition(":")[2].split("+") if text])

    def _checked(self, asked: Sequence[str]) -> list[str]:
        """The scores that were asked for, or those that are defined here."""
        space = f"space '{self.space.name}'"
        every = self.space.candidates()
        if every is None:
            raise self._refusal(f"every candidate would be scored, and {space} has endless ones")
        if why := self.task.one_network(self.space):
            raise self._refusal(why)
        if all(dimension.read_by == "recipe" for dimension in self.space.dimensions()):
            raise self._refusal(f"the networks of {space} differ in their training alone")
        for score in map(free_score, asked):
            if not score.alone:
                raise self._refusal(f"'{score.name}' compares all candidates at once, a rung but a few")
        defined, why = [], ""
        for score_name in asked or USUAL:
            try:
                free_scores(self.task, self.space, every[:1], [score_name], self.seed)
                defined.append(score_name)
            except InputError as error:
                why = str(error)
        if len(defined) < len(asked) or not defined:
            networks = f"the networks of {space} for this {self.task.kind} task"
            raise self._refusal(f"{networks} have no such score: {why}")
        return defined

    def _refusal(self, why: str) -> InputError:
        return InputError(f"rung '{self.name}': {why}; leave it out")

    def run(self, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        if not configs:
            return
        with timed() as spent:
            found = free_scores(self.task, self.space, configs, self.scores, self.seed)
        for config, values in zip(configs, zip(*found.values())):
            figures = {name: value for name, value in zip(self.scores, values) if math.isfinite(value)}
            own, each = figures.pop(self.scores[0], math.nan), spent[0] / len(configs)
            if math.isfinite(own):
                yield Outcome(config, own, each, values=figures)
            else:
                note = f"{self.scores[0]} is undefined for this network"
                yield Outcome(config, own, each, "failed", values=figures, note=note)

    def price(self) -> float:
        """Seconds per candidate, from a few."""
        some = (self.space.candidates() or [])[:FEW]
        return sum(outcome.seconds for outcome in self.run(some, self.seed)) / len(some)


def score_free(ladder: Ladder) -> None:
    """Score all candidates on the free rungs that the budget allows; drop the others."""
    everything = range(len(ladder.board.configs))
    for rung in [rung for rung in ladder.problem.rungs if rung.name in ladder.free]:
        ladder.evaluate(rung, everything[: 2 * rung.batch])
        needed = ladder.prices.of(rung) * len(everything)
        if not len(everything) or needed > MOST * ladder.budget:
            reason = f"all candidates would take {needed:,.0f} s" if len(everything) else "endless candidates"
            ladder.dropped[rung.name] = f"too expensive: {reason}"
        else:
            ladder.evaluate(rung, everything[2 * rung.batch :])
        if rung.name in ladder.dropped:
            ladder.free.remove(rung.name)
