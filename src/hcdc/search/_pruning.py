"""When to give up a full training: the median rule, or a pruner of Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.search._optuna import STATES, quiet
from hcdc.search._problem import Outcome
from hcdc.search._trial import Rule

UNPRUNED = 8
"""The first full trainings are never given up: audits are among them."""


@dataclass(frozen=True)
class MedianRule:
    """Give up if the best report so far lies below the median of earlier trials at this step.

    Attributes:
        earlier: Reports of earlier full trainings, by step.
    """

    earlier: Sequence[Mapping[int, float]]

    def __call__(self, reports: Mapping[int, float]) -> bool:
        step = max(reports)
        others = [some[step] for some in self.earlier if step in some]
        return len(others) >= UNPRUNED and max(reports.values()) < float(np.median(others))


class OptunaPruning:
    """Lets a pruner of Optuna decide, in a study that holds the full trainings of this search.

    Args:
        pruner: An ``optuna.pruners.BasePruner``.
    """

    def __init__(self, pruner: Any):
        with quiet() as optuna:
            if not isinstance(pruner, optuna.pruners.BasePruner):
                raise InputError(
                    f"pruner is a {type(pruner).__name__}; pass one of Optuna's, such as "
                    "optuna.pruners.MedianPruner()"
                )
            self._study = optuna.create_study(study_name="full", direction="maximize", pruner=pruner)
        self._live: dict[str, Any] = {}

    def rule(self, config: Config) -> Rule:
        """When to give up a configuration's first full training."""
        trial = self._live[config_hash(config)] = self._study.ask()
        seen: set[int] = set()

        def prune(reports: Mapping[int, float]) -> bool:
            for step in reports.keys() - seen:
                trial.report(reports[step], step)
            seen.update(reports)
            return bool(trial.should_prune())

        return prune

    def tell(self, outcome: Outcome) -> None:
        """Hear of a first full training; one that a storage kept is reported again."""
        from optuna.trial import TrialState

        trial = self._live.pop(config_hash(outcome.config), None)
        if trial is None:
            trial = self._study.ask()
            for step, value in outcome.told.get("reports", []):
                trial.report(value, step)
                trial.should_prune()
        state = TrialState[STATES[outcome.state]]
        self._study.tell(trial, outcome.score if outcome.complete else None, state=state)
