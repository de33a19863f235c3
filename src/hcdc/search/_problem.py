"""What a ladder climbs: candidates, the rungs that score them, and what a rung returned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core.configs import Config

if TYPE_CHECKING:
    from hcdc.search._distributions import Distribution

Array = NDArray[np.float64]

STATES = ("complete", "failed", "pruned")
STEEP = 0.15
"""The cheapest rung may cost this share of a full training; else the same seconds teach more in full."""


@dataclass(frozen=True)
class Outcome:
    """One candidate on one rung.

    Attributes:
        config: The candidate.
        score: What the rung ranks by, higher is better; NaN unless complete.
        seconds: What it cost.
        state: ``"complete"``, ``"failed"`` or ``"pruned"``; only complete outcomes count in agreement.
        values: Further figures of the same training that may predict the next rung (loss, jacov, ...).
        note: Why it failed.
        parts: Scores on other parts of the data (``"test"``), shown and never used to choose.
        told: What else is known of it, as plain JSON: parameters that a user's trial read, new distributions,
            reports; ``"error"``, the standard error of the score over the validation rows.
    """

    config: Config
    score: float
    seconds: float
    state: str = "complete"
    values: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether it was known before the search, so that its seconds say nothing."""
        return bool(self.told.get("known"))

    @property
    def error(self) -> float | None:
        """Standard error of the score over the validation rows, if it is known."""
        return self.told.get("error")

    @property
    def complete(self) -> bool:
        return self.state == "complete" and math.isfinite(self.score)


class Rung(ABC):
    """A way to score candidates at a price.

    Attributes:
        name: Unique on the ladder, e.g. ``"subset:0.1"``.
        share: Expected price as a share of one full training; used until seconds have been measured.
        once: Seconds before the first candidate, e.g. to make a copy.
        batch: How many candidates are scored together at no extra cost per candidate.
        file: The file of its copy, if it has one.
    """

    name: str
    share: float = 1.0
    once: float = 0.0
    batch: int = 1
    file: str = ""

    @abstractmethod
    def run(self, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        """Score candidates, in order; ``seed`` decides initialisations and mini-batches."""


class Problem(ABC):
    """Candidates, and the rungs that score them, cheapest first; the last rung is the full training.

    Attributes:
        rungs: The rungs.
        bounds: The least and the greatest possible full score.
        revision: Changes whenever `features` describes candidates in another way.
        groups: Declared groups of hyperparameters, whose agreement is measured too; see `parse_groups`.
        code: Fingerprint of the user's code that scores candidates, if any does; a storage refuses another.
    """

    rungs: Sequence[Rung]
    bounds: tuple[float, float] = (-math.inf, math.inf)
    revision: int = 0
    groups: Mapping[str, Sequence[Any]] = MappingProxyType({})
    code: str | None = None

    @abstractmethod
    def candidates(self) -> list[Config] | None:
        """All candidates of a finite space, else None."""

    @abstractmethod
    def propose(self, count: int, rng: np.random.Generator, near: Sequence[Config] = ()) -> list[Config]:
        """Draw candidates of an infinite space: at random, or each close to one of ``near``."""

    @abstractmethod
    def features(self, configs: Sequence[Config]) -> Array:
        """Numbers that describe candidates to the model, ``[n, f]``; no rung is needed to know them."""

    def described(self, configs: Sequence[Config]) -> Mapping[str, Array]:
        """Numbers of each dimension by name, ``[n]`` or ``[n, choices]``, to measure agreement per dimension.

        NaN, or no choice, where a candidate does not have it. By default no dimension is known.
        """
        return {}

    def hint(self, configs: Sequence[Config]) -> Array | None:
        """A figure that tends to rise with the score, ``[n]``, such as the number of parameters; if any."""
        return None

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What is searched, as plain JSON; a storage refuses another problem under the same name."""

    @property
    def distributions(self) -> Mapping[str, Distribution]:
        """Distributions of the parameters, as far as they are known; needed by samplers."""
        return {}

    def candidate(self, params: Config) -> Config:
        """The candidate with the parameters that a sampler proposed, without those that are not read."""
        return params

    def tell(self, rung: Rung, outcome: Outcome) -> None:  # noqa: B027
        """Hear of every outcome in order, those that a store kept included; nothing to do by default."""
