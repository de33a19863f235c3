"""Typed results of an evaluation: how well the copy and each rival rank, and what they cost.

Attributes are named as the keys of the JSON document that `hcdc evaluate` writes. Every value is plain JSON;
an undefined or unmeasured figure is None.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from hcdc.core.configs import Config
from hcdc.core.records import jsonable

Scores = Sequence[float | None]


@dataclass(frozen=True)
class Cost:
    """Seconds that one way of ranking candidates takes; None if unknown.

    Attributes:
        once: Seconds before the first trial.
        each: Seconds per candidate.
        words: What the time is spent on.
    """

    once: float | None
    each: float | None
    words: str = ""

    def seconds(self, trials: int) -> float | None:
        """Seconds for this many trials."""
        return None if self.once is None or self.each is None else self.once + trials * self.each

    def break_even(self, other: Cost) -> int | None:
        """Number of trials from which this costs no more than ``other``; None if it always costs more."""
        if self.once is None or self.each is None or other.once is None or other.each is None:
            return None
        if not self.each < other.each:
            return 1 if self.each == other.each and self.once <= other.once else None
        return max(1, math.ceil((self.once - other.once) / (other.each - self.each)))


@dataclass(frozen=True)
class Pick:
    """The configuration that a ranking puts first, beside the best one judged.

    Attributes:
        config, best: The picked configuration and the one with the best full-data validation score.
        score, best_score: Their full-data validation scores.
        test, best_test: Their full-data test scores.
        rank: Rank of the pick by full-data validation score; 1 is best.
        judged: How many candidates were judged.
    """

    config: Config
    score: float | None
    test: float | None
    rank: int
    best: Config
    best_score: float | None
    best_test: float | None
    judged: int


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Scores of candidates (higher is better) and how well they agree with the full data.

    Attributes:
        proxy: The scores, one per candidate.
        repeats: ``"loss"`` and ``"score"`` of each candidate, one per initialisation; empty if not trained.
        spearman, kendall: Rank correlation with full-data validation scores.
        calibration: Share of pairs of candidates in their full-data order, eq. (HC); .5 is chance.
        interval: Interval of ``spearman`` at ``level``, by Fisher's z; -1 to 1 below five candidates.
        test_spearman, test_interval: The same against full-data test scores.
        top_k_overlap: Share of the true top ten in its own top ten.
        upper_half_spearman: Spearman within the truly better half.
        regret: Full-data validation score lost by taking its first candidate.
        selected_test_accuracy: Full-data test score of its first candidate (for regression, minus the error).
        note: Why figures are undefined; else empty.
    """

    proxy: Scores = ()
    repeats: Mapping[str, Sequence[Scores]] = field(default_factory=dict)
    spearman: float | None = None
    kendall: float | None = None
    calibration: float | None = None
    interval: Scores = (None, None)
    level: float = 0.9
    test_spearman: float | None = None
    test_interval: Scores = (None, None)
    top_k_overlap: float | None = None
    upper_half_spearman: float | None = None
    regret: float | None = None
    selected_test_accuracy: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name, value in _values(self).items():
            object.__setattr__(self, name, jsonable(value))

    @property
    def above_chance(self) -> bool:
        """Whether the interval of the rank correlation lies above 0."""
        return self.interval[0] is not None and self.interval[0] > 0

    def to_json(self) -> dict[str, Any]:
        """The JSON document."""
        return _values(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; unknown keys are ignored, missing ones keep their defaults."""
        names = {f.name for f in dataclasses.fields(cls)}
        return cls(**{key: v for key, v in document.items() if key in names and v is not None})


@dataclass(frozen=True, kw_only=True)
class Rival(Ranking):
    """Another way to rank the same candidates.

    Attributes:
        name: The registered name.
        description: What it does, in words.
        seconds_per_candidate: Seconds per candidate.
        extra_seconds: Seconds before the first candidate.
        val_size: Number of validation examples, if it draws its own.
    """

    name: str
    description: str = ""
    seconds_per_candidate: float | None = None
    extra_seconds: float | None = None
    val_size: int | None = None

    @property
    def cost(self) -> Cost:
        return Cost(self.extra_seconds or 0.0, self.seconds_per_candidate, self.name)


@dataclass(frozen=True, kw_only=True)
class Evaluation(Ranking):
    """What `hcdc.evaluate` found: how well the copy ranks, what its pick is worth, its cost and its rivals.

    Attributes:
        dataset, kind, space: Name and kind of the data, and the specification of the search space.
        accuracy: Whether scores are accuracies in 0 .. 1; None in documents of older versions.
        truth_source: Source of the full-data results, in words; None if they were trained here.
        method, preset, train_method, val_method, train_size, val_size, seed, metric: How the copy was made,
            and what ranks candidates on it.
        judge_seed: Seed of the candidates and of their initialisations on the copy.
        candidates: Number of candidates judged.
        dropped: Number left out because they were used to make the copy.
        diverged: Number that diverged on the copy; they score just below the worst of the others.
        diverged_on_full: Configurations that diverged on the full data; they get the worst score there.
        configs, truth, test: The candidates and their full-data validation and test scores.
        best_test_accuracy: Test score of the best candidate by full-data validation.
        constant: Validation score of the best constant predictor.
        condense_seconds, proxy_seconds, full_seconds: Seconds to make the copy, and to train all candidates
            on the copy and on the full data; ``..._per_candidate`` is the time for one.
        break_even_trials: Number of trials from which the copy is the cheapest way to rank this well.
        break_even_against: The rival, or the full data, that takes the most trials to beat.
        break_even_note: Why there is no break-even.
        rivals: The rivals.
        environment: Where it was measured.
    """

    dataset: str = ""
    kind: str | None = None
    space: dict[str, Any] = field(default_factory=dict)
    accuracy: bool | None = None
    truth_source: str | None = None
    method: str = ""
    preset: str | None = None
    train_method: str | None = None
    val_method: str | None = None
    train_size: int | None = None
    val_size: int | None = None
    seed: int | None = None
    metric: str | None = None
    judge_seed: int | None = None
    candidates: int = 0
    dropped: int = 0
    diverged: int = 0
    diverged_on_full: Sequence[Config] = ()
    configs: Sequence[Config] = ()
    truth: Scores = ()
    test: Scores = ()
    best_test_accuracy: float | None = None
    constant: float | None = None
    condense_seconds: float | None = None
    proxy_seconds: float | None = None
    full_seconds: float | None = None
    proxy_seconds_per_candidate: float | None = None
    full_seconds_per_candidate: float | None = None
    break_even_trials: int | None = None
    break_even_against: str | None = None
    break_even_note: str = ""
    rivals: Sequence[Rival] = ()
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> Cost:
        """Seconds to condense, and per trial on the copy."""
        return Cost(self.condense_seconds, self.proxy_seconds_per_candidate, "the copy")

    @property
    def full_cost(self) -> Cost:
        """Seconds per trial on the full data."""
        return Cost(0.0, self.full_seconds_per_candidate, "the full data")

    @property
    def pick(self) -> Pick | None:
        """What the copy puts first; None if it has no ranking or the candidates were not kept."""
        if self.spearman is None or not self.configs or not self.test:
            return None
        proxy, truth = ([-math.inf if v is None else v for v in some] for some in (self.proxy, self.truth))
        first, best = proxy.index(max(proxy)), truth.index(max(truth))
        rank = 1 + sum(score > truth[first] for score in truth)
        return Pick(
            self.configs[first], self.truth[first], self.test[first], rank,
            self.configs[best], self.truth[best], self.test[best], len(truth),
        )  # fmt: skip

    def rival(self, name: str) -> Rival | None:
        """The rival with this name."""
        return next((rival for rival in self.rivals if rival.name == name), None)

    def to_json(self) -> dict[str, Any]:
        pick = self.pick
        return {
            **_values(self),
            "rivals": [rival.to_json() for rival in self.rivals],
            "pick": None if pick is None else jsonable(dataclasses.asdict(pick)),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        rivals = [Rival.from_json(rival) for rival in document.get("rivals") or []]
        return super().from_json({**document, "rivals": rivals})


def _values(result: Any) -> dict[str, Any]:
    return {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
