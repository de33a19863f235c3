"""How far the ranking of a stand-in can be believed: overall, among survivors and per dimension."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from hcdc.core.records import jsonable
from hcdc.core.told import in_columns, trust_lines

Interval = Sequence[float | None]

VERDICTS = ("trust", "keep open", "no", "unknown")
"""Choose here; use it to discard but not to choose; do not use it; too few probes to tell."""
DIMENSION_VERDICTS = ("choose here", "keep open", "unknown")
"""An unknown dimension counts as open."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure estimated from probes.

    Attributes:
        value: The estimate; None if undefined.
        interval: Its interval at the level of the `Trust` that holds it.
        probes: How many probes it rests on.
    """

    value: float | None = None
    interval: Interval = (None, None)
    probes: int = 0


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What is kept, and what is lost, if only the best share k by the stand-in goes on.

    Attributes:
        recall: Share of the truly best k that is kept: recall@k.
        regret: Truth lost, on average, between the best of ``of`` random candidates and the best of the
            ``kept`` that the stand-in prefers: regret@k.
        kept, of: How many of how many; the share k, rounded down.
    """

    recall: Estimate = field(default_factory=Estimate)
    regret: Estimate = field(default_factory=Estimate)
    kept: int = 0
    of: int = 0

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `Trust.to_json` wrote."""
        return cls(**_estimates(_known(cls, document), "recall", "regret"))


@dataclass(frozen=True, kw_only=True)
class DimensionTrust:
    """One hyperparameter, or a declared group of them.

    Attributes:
        name: Its name.
        tau, interval: Correlation of its main effect on the stand-in with that on the truth.
        importance: Share of the truth's variance that its main effect explains.
        verdict: One of `DIMENSION_VERDICTS`.
    """

    name: str
    tau: float | None
    interval: Interval = (None, None)
    importance: float = 0.0
    verdict: str = "unknown"


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far to believe the ranking of a stand-in.

    Attributes:
        spearman, interval: Rank correlation with the truth over all candidates.
        verdict: One of `VERDICTS`.
        why: The reason for the verdict, in one sentence.
        against: What stands for the truth: the full training, or the next rung of a search.
        probes, candidates: How many candidates have both scores, and how many have the stand-in's.
        uniform: Whether the probes were drawn uniformly; else each stands for the candidates nearest to it.
            Known results stand for configurations like them.
        level: Level of all intervals.
        survivors: Rank correlation among the ``keep`` best by the stand-in.
        keep: The share of candidates that survive.
        recall: Share of the ``keep`` truly best candidates that survive.
        regret: Truth lost, on average, if the stand-in picks one of ``of`` random candidates.
        of: Size of these groups.
        k: The share of candidates that ``at_k`` and ``survivors_at_k`` keep.
        at_k: Recall and regret among all candidates.
        survivors_at_k: The same among the survivors.
        dimensions: Agreement per dimension and group.
        confirmed: The same against full trainings, from a few of the probes, where another rung stands for
            the truth.
    """

    spearman: float | None
    interval: Interval = (None, None)
    verdict: str = "unknown"
    why: str = ""
    against: str = "full"
    probes: int = 0
    candidates: int = 0
    uniform: bool = True
    level: float = 0.9
    survivors: Estimate = field(default_factory=Estimate)
    keep: float = 0.5
    recall: Estimate = field(default_factory=Estimate)
    regret: Estimate = field(default_factory=Estimate)
    of: int = 0
    k: float = 0.5
    at_k: Cut = field(default_factory=Cut)
    survivors_at_k: Cut = field(default_factory=Cut)
    dimensions: Sequence[DimensionTrust] = ()
    confirmed: Trust | None = None

    def __str__(self) -> str:
        return in_columns(trust_lines(self))

    def dimension(self, name: str) -> DimensionTrust:
        """The dimension or group with this name."""
        return next(d for d in self.dimensions if d.name == name)

    def to_json(self) -> dict[str, Any]:
        """The JSON document that ``hcdc trust --json`` writes."""
        found: dict[str, Any] = jsonable(dataclasses.asdict(self))
        return found

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; unknown keys are ignored."""
        given = _estimates(_known(cls, document), "survivors", "recall", "regret")
        for name in ("at_k", "survivors_at_k"):
            if name in given:
                given[name] = Cut.from_json(given[name])
        given["dimensions"] = [
            DimensionTrust(**_known(DimensionTrust, d)) for d in document.get("dimensions", [])
        ]
        if document.get("confirmed") is not None:
            given["confirmed"] = cls.from_json(document["confirmed"])
        return cls(**given)


def _known(kind: type, document: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(kind)}
    return {key: value for key, value in document.items() if key in names}


def _estimates(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Arguments with those of these names, where they are given, read as estimates."""
    read = {name: Estimate(**_known(Estimate, given[name])) for name in names if name in given}
    return {**given, **read}
