"""What a search is expected to do with its budget, and whether a ladder is worth climbing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hcdc.core.records import jsonable
from hcdc.core.told import in_columns, plan_lines

ODDS = 2.0
"""How much the odds of a search exceed those in the simulated worlds of its plan: it learns from audits and
from full trainings, and the worlds do not. From replays on eleven pools (``docs/results/trust.md``)."""


def raised(chance: float, factor: float) -> float:
    """A chance whose odds are multiplied by a factor."""
    return factor * chance / (factor * chance + 1 - chance)


@dataclass(frozen=True, kw_only=True)
class RungPlan:
    """One rung of a planned search.

    Attributes:
        name: Its name.
        price: Seconds per candidate, from a short trial.
        candidates: How many candidates it is expected to score.
    """

    name: str
    price: float
    candidates: int = 0

    @property
    def seconds(self) -> float:
        """Seconds it is expected to take."""
        return self.price * self.candidates


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """What `hcdc.plan` expects of a search.

    Attributes:
        budget: Seconds that may be spent.
        rungs: The rungs, cheapest first.
        memory_gib: Peak memory that the search should need: what the process holds, and what a batch of full
            trainings takes. GPU memory if a GPU is in use.
        pays: Whether a ladder should beat plain random search with full trainings here.
        why: The reason, in one sentence.
        candidates: Configurations in the space; None if they are endless.
        full_trainings: Full trainings that the budget pays for.
        overhead: Seconds that no rung gets: before the first candidate, and, of a ladder that pays, for its
            decisions.
        gain: Expected gain of the ladder over random search, in standard deviations of the full score, if its
            stand-ins get all the seconds that they are worth.
        chance: Probability that the ladder with the candidates of ``rungs`` finds a better configuration than
            random search with full trainings does in the same time, with odds multiplied by `ODDS`; None
            where no ladder is compared. Protocol ``plan-reliability`` judges it.
        environment: Where the trial ran.
    """

    budget: float
    rungs: Sequence[RungPlan] = ()
    memory_gib: float = 0.0
    pays: bool = False
    why: str = ""
    candidates: int | None = None
    full_trainings: int = 0
    overhead: float = 0.0
    gain: float = 0.0
    chance: float | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return in_columns(plan_lines(self))

    @property
    def seconds(self) -> dict[str, float]:
        """Expected seconds by rung."""
        return {rung.name: rung.seconds for rung in self.rungs}

    def to_json(self) -> dict[str, Any]:
        """The JSON document that ``hcdc plan --json`` writes."""
        found: dict[str, Any] = jsonable({**dataclasses.asdict(self), "seconds": self.seconds})
        for told, rung in zip(found["rungs"], self.rungs):
            told["seconds"] = rung.seconds
        return found
