"""What a search found: a configuration, its score, what it cost, and how far to believe each rung."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.records import jsonable
from hcdc.core.told import found_lines, in_columns
from hcdc.core.trusted import Trust

Interval = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class RungReport:
    """One rung of a search.

    Attributes:
        name: Its name.
        candidates: How many candidates it scored.
        failed: How many of them failed or were pruned, so that they have no score.
        pruned: How many of these were pruned.
        seconds: Seconds it took, with ``once``, audits and repeated trainings.
        once: Seconds before its first candidate: to make its copy, or to try out an objective.
        audit_seconds: Seconds for candidates that are on this rung because the audit sample has them.
        price: Mean seconds per candidate.
        audits: Size of its audit sample: drawn uniformly beforehand, scored on the next rung whatever it got.
        spearman, interval: Rank correlation with the next rung on the audit sample, and its 90 % interval.
        pays: Whether the audit, or the slope of all pairs with the next rung, shows that it may take more
            than a trial share of the budget.
        note: Why it was dropped, or what limits it.
        trust: How far its ranking can be believed, measured against the next rung; see `Found.trust`.
        file: The file of its copy, as it was named; empty if it has none.
    """

    name: str
    candidates: int = 0
    failed: int = 0
    pruned: int = 0
    seconds: float = 0.0
    once: float = 0.0
    audit_seconds: float = 0.0
    price: float | None = None
    audits: int = 0
    spearman: float | None = None
    interval: Interval = (None, None)
    pays: bool | None = None
    note: str = ""
    trust: Trust | None = None
    file: str = ""

    @property
    def complete(self) -> int:
        """How many candidates got a score."""
        return self.candidates - self.failed

    @property
    def measured(self) -> bool:
        """Whether the audit sample says anything: the interval of too few audits is -1 to 1."""
        return self.spearman is not None and tuple(self.interval) != (-1, 1)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read one rung of what `Found.to_json` wrote; unknown keys are ignored."""
        names = {f.name for f in dataclasses.fields(cls)}
        given = {key: value for key, value in document.items() if key in names}
        if given.get("trust") is not None:
            given["trust"] = Trust.from_json(given["trust"])
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class SearchCost:
    """Where the seconds of a search went.

    Attributes:
        rungs: Seconds by rung, cheapest first, with everything that was done for it.
        preparing: Of these, seconds before the first candidates: making copies, trying out an objective.
        audits: Of these, seconds for audit samples.
        overhead: Seconds of the search itself: its model, its decisions and its storage.
        total: All of them.
        budget: Seconds that were allowed.
    """

    rungs: Mapping[str, float]
    preparing: float
    audits: float
    overhead: float
    total: float
    budget: float | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What `hcdc.search` found.

    Attributes:
        best: The configuration to use.
        score: Its full score, from a training that chose nothing: one with a fresh seed, or the only full
            one. None if there was none.
        interval: 90 % interval of its expected full score, over seeds and, where ``data.score`` gave the
            score, over validation rows; luck of the choice in these rows is not removed.
        finalists: The candidates that were trained again, with all their full scores.
        parts: Its scores on other parts of the data (``"test"``), from the same training.
        seconds, budget: What the search took and what it was given.
        full_trainings: Complete full trainings, fresh ones included; pruned and failed ones are in ``rungs``.
        rungs: The rungs, cheapest first.
        curve: Best full score so far, as pairs of seconds and score.
        uniform: Full trainings of the audit sample as pairs of seconds and score; None where one failed. It
            was drawn uniformly, so it shows what plain random search would have met.
        warnings: What to know before believing it.
        spec: What was searched.
        environment: Where.
        open_studies: Opens `studies`; not part of the JSON.
    """

    best: Config | None
    score: float | None = None
    interval: Interval = (None, None)
    finalists: Sequence[Mapping[str, Any]] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    budget: float | None = None
    full_trainings: int = 0
    rungs: Sequence[RungReport] = ()
    curve: Sequence[Sequence[float]] = ()
    uniform: Sequence[Sequence[float | None]] = ()
    warnings: Sequence[str] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    open_studies: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return in_columns(found_lines(self))

    @property
    def trust(self) -> dict[str, Trust]:
        """By stand-in, cheapest first, how far its ranking can be believed.

        Each is measured on its audit sample against the next rung, which `Trust.against` names. Only the last
        is measured against full trainings: agreement of a lower one with them is not measured.
        """
        return {rung.name: rung.trust for rung in self.rungs if rung.trust is not None}

    @property
    def flattered(self) -> str:
        """Why the score is flattered by the choice, if seeds do not matter; else empty.

        Then trainings with fresh seeds repeat the scores by which the winner was chosen.
        """
        runs = [one["scores"] for one in self.finalists if len(one["scores"]) > 1]
        tried = self.rungs[-1].complete if self.rungs else 0
        if tried < 2 or not runs or any(len(set(scores)) > 1 for scores in runs):
            return ""
        chance = sum(len(scores) - 1 for scores in runs) == 1  # two accuracies may be equal by chance
        why = (
            "a fresh seed gave the same score; if that is no chance,"
            if chance
            else "seeds do not matter here, so"
        )
        advice = "believe the test score" if "test" in self.parts else "keep a test part"
        return (
            f"{why} the score is the best of {tried:,} on the validation rows, which makes it too high on "
            f"average; {advice}"
        )

    @property
    def disappointing(self) -> str:
        """That the test score lies below the interval of the score, if so; else empty."""
        low, test = self.interval[0], self.parts.get("test")
        if low is None or test is None or test >= low:
            return ""
        return f"the test score {test:.4g} lies below the interval of the score, which begins at {low:.4g}"

    @property
    def cost(self) -> SearchCost:
        """Where the seconds went."""
        return SearchCost(
            rungs={rung.name: rung.seconds for rung in self.rungs},
            preparing=sum(rung.once for rung in self.rungs),
            audits=sum(rung.audit_seconds for rung in self.rungs),
            overhead=self.seconds - sum(rung.seconds for rung in self.rungs),
            total=self.seconds,
            budget=self.budget,
        )

    @property
    def studies(self) -> dict[str, Any]:
        """One ``optuna.Study`` per rung, cheapest first; needs Optuna, which is loaded now."""
        if self.open_studies is None:
            raise InputError("this result was read from JSON; open its studies in the storage of the search")
        found = self.open_studies()
        return {rung.name: found[rung.name] for rung in self.rungs if rung.name in found}

    @property
    def study(self) -> Any:
        """The ``optuna.Study`` of the full trainings."""
        return self.studies[self.rungs[-1].name]

    def rung(self, name: str) -> RungReport:
        """The rung with this name."""
        return next(rung for rung in self.rungs if rung.name == name)

    def to_json(self) -> dict[str, Any]:
        """The JSON document that ``hcdc search --json`` writes."""
        found: dict[str, Any] = jsonable(dataclasses.asdict(dataclasses.replace(self, open_studies=None)))
        del found["open_studies"]
        found["cost"] = jsonable(dataclasses.asdict(self.cost))
        return found

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; unknown keys are ignored."""
        names = {f.name for f in dataclasses.fields(cls)}
        rungs = [RungReport.from_json(rung) for rung in document.get("rungs", [])]
        return cls(**{k: v for k, v in document.items() if k in names and k != "rungs"}, rungs=rungs)
