"""Proposals of an Optuna sampler."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, require
from hcdc.core.seeds import derive
from hcdc.search._distributions import Distribution
from hcdc.search._optuna import quiet, to_optuna, to_trial
from hcdc.search._problem import Outcome

FEWEST = 8
"""Proposals that are asked for even if they take too long."""


class Sampler:
    """An Optuna sampler that proposes configurations.

    A sampler is copied and seeded anew for every proposal, so that a search that was stopped goes on as if it
    had not been.

    Args:
        sampler: ``"tpe"`` or an ``optuna.samplers.BaseSampler``.
        seed: Decides every draw.
    """

    def __init__(self, sampler: Any, seed: int):
        optuna = require("optuna", "hpo")
        self._seed = seed
        self._sampler = optuna.samplers.TPESampler() if sampler == "tpe" else sampler
        if not isinstance(self._sampler, optuna.samplers.BaseSampler):
            raise InputError(
                f"sampler {sampler!r}: choose 'tpe' or pass one of Optuna's, such as "
                "optuna.samplers.GPSampler()"
            )

    def propose(
        self,
        rung: str,
        outcomes: Sequence[Outcome],
        distributions: Mapping[str, Distribution],
        count: int,
        seconds: float,
    ) -> list[Config]:
        """Ask for configurations.

        Args:
            rung: The rung to learn from.
            outcomes: Its outcomes.
            distributions: The parameters.
            count: How many.
            seconds: Stop asking after so long.
        """
        if not distributions:
            raise InputError("a sampler needs the distributions of the parameters, and none is known here")
        sampler = copy.deepcopy(self._sampler)
        with quiet() as optuna:
            study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([to_trial(outcome, distributions, {}) for outcome in outcomes])
        asked = {name: to_optuna(dist) for name, dist in distributions.items()}
        begun = time.perf_counter()
        found: list[Config] = []
        while len(found) < count and (len(found) < FEWEST or time.perf_counter() < begun + seconds):
            reseed(sampler, derive(self._seed, "sampler", rung, len(outcomes), len(found)) % 2**32)
            try:
                trial = study.ask(asked)
            except Exception as error:  # whatever a sampler says of these parameters
                why = f"{type(error).__name__}: {error}"
                raise InputError(f"sampler {type(sampler).__name__} cannot propose here ({why})") from error
            # not pending, so the next is asked as if first; `tell` would let a finished grid stop the study
            study._storage.set_trial_state_values(trial._trial_id, optuna.trial.TrialState.FAIL)
            found.append(dict(trial.params))
        return found


def reseed(sampler: Any, seed: int) -> None:
    """Seed the random streams of a sampler and of those that it uses itself."""
    base = require("optuna", "hpo").samplers.BaseSampler
    for value in vars(sampler).values():
        if isinstance(value, base):
            reseed(value, seed)
        elif isinstance(getattr(value, "rng", None), np.random.RandomState):
            value.rng.seed(seed)
