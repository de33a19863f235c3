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
        network: Its network; None if the task has its own model.
        recipe: What differs from the task's recipe: settings of `hcdc.core.recipe.Recipe` by name,
            ``"epochs"`` (converted to steps once the number of examples is known), and names that only a
            user's model reads. Empty if candidates differ only in their networks.
        shape: Candidates with equal shape can train in one batch; ``""`` if all candidates of a space can.
    """

    config: Config
    network: Network | None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    shape: str = ""

    @property
    def training(self) -> str:
        """Equal for candidates with equal recipes."""
        return config_hash(dict(self.recipe)) if self.recipe else ""

    @property
    def group(self) -> tuple[str, str]:
        """Equal for candidates that can train in one batch: same shape, same recipe."""
        return self.shape, self.training
