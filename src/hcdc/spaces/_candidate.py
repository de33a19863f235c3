"""A candidate: a network and what differs in its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hcdc.core.configs import Config, config_hash
from hcdc.networks import Network


@dataclass(frozen=True)
class Candidate:
    """What is trained for one configuration, and how.

    Attributes:
        config: The configuration.
        network: Its network; None where the task brings its own model.
        recipe: What differs from the task's recipe: settings of `hcdc.core.recipe.Recipe` by name,
            ``"epochs"``, which whoever knows the number of examples turns into steps, and any further name
            that only a user's model reads. Empty where candidates differ in their networks alone.
        shape: Candidates of one shape can train in one batch; ``""`` where all candidates of a space can.
    """

    config: Config
    network: Network | None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    shape: str = ""

    @property
    def training(self) -> str:
        """Equal for candidates whose training recipes agree."""
        return config_hash(dict(self.recipe)) if self.recipe else ""

    @property
    def group(self) -> tuple[str, str]:
        """Equal for candidates that may be trained in one batch: one shape and one recipe."""
        return self.shape, self.training
