"""Optuna's side of a search: its distributions, and one study per rung with a trial per outcome."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from hcdc.core.configs import config_hash
from hcdc.core.errors import require
from hcdc.core.records import jsonable
from hcdc.search._distributions import Distribution, distribution
from hcdc.search._problem import Outcome

STATES = {"complete": "COMPLETE", "failed": "FAIL", "pruned": "PRUNED"}
"""Optuna's names for the states of an outcome."""
PREFIX = "search/"
"""The study of a rung is named after it: ``search/full``."""


def to_optuna(dist: Distribution) -> Any:
    """A distribution as Optuna's of the same name."""
    optuna = require("optuna", "hpo")
    with warnings.catch_warnings():  # a range that is no multiple of its step is cut, as ours is
        warnings.simplefilter("ignore", UserWarning)
        return optuna.distributions.json_to_distribution(json.dumps(dist.describe()))


def from_optuna(dist: Any) -> Distribution:
    """A distribution of Optuna as ours of the same name."""
    text = require("optuna", "hpo").distributions.distribution_to_json(dist)
    return distribution(json.loads(text))


@contextlib.contextmanager
def quiet() -> Iterator[Any]:
    """Optuna without its lines about every new study."""
    optuna = require("optuna", "hpo")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield optuna
    finally:
        optuna.logging.set_verbosity(before)


def opened(storage: Any, name: str) -> Any:
    """A study of a storage, created to be maximised if absent."""
    with quiet() as optuna:
        try:
            return optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            return optuna.create_study(study_name=name, storage=storage, direction="maximize")


def to_trial(outcome: Outcome, distributions: Mapping[str, Distribution], attrs: Mapping[str, Any]) -> Any:
    """A finished Optuna trial.

    Its parameters are those that the objective read; parameters without a distribution are in the attribute
    ``config`` only.

    Args:
        outcome: What came out.
        distributions: Known distributions.
        attrs: User attributes.
    """
    optuna = require("optuna", "hpo")
    read = outcome.told.get("params", outcome.config)
    params = {k: v for k, v in read.items() if k in distributions and distributions[k].contains(v)}
    state = outcome.state if outcome.complete or outcome.state != "complete" else "failed"
    trial = optuna.create_trial(
        state=optuna.trial.TrialState[STATES[state]],
        value=outcome.score if outcome.complete else None,
        params=params,
        distributions={name: to_optuna(distributions[name]) for name in params},
        user_attrs=jsonable(attrs),
        intermediate_values={int(step): value for step, value in outcome.told.get("reports", ())},
    )
    trial.datetime_start = trial.datetime_complete - datetime.timedelta(seconds=outcome.seconds)
    return trial


def from_trial(trial: Any) -> Outcome:
    """The outcome that a trial of `Studies` was made from."""
    attrs, states = trial.user_attrs, {theirs: ours for ours, theirs in STATES.items()}
    state = states[trial.state.name]
    return Outcome(
        attrs["config"],
        trial.value if state == "complete" else math.nan,
        attrs["seconds"],
        state,
        attrs["values"],
        attrs["note"],
        attrs["parts"],
        attrs["told"],
    )


class Studies:
    """One study per rung, always maximised, with a trial per outcome.

    A trial has the user attributes ``rung``, ``repeat`` (-1: to learn the parameters, 0: the score that the
    search ranks by, 1 and 2: finalists with fresh seeds), ``data`` (the fingerprint), ``seconds``,
    ``config``, and ``below``: the rung and the number of the trial from which it was promoted.

    Args:
        storage: An Optuna storage; None keeps the studies in memory.
        distributions: Distributions known beforehand; others come with the outcomes.

    Attributes:
        data: By rung, the fingerprint of its data; ``""`` for any other rung.
    """

    def __init__(self, storage: Any = None, distributions: Mapping[str, Distribution] | None = None):
        self._storage = storage or require("optuna", "hpo").storages.InMemoryStorage()
        self.distributions: dict[str, Distribution] = dict(distributions or {})
        self.data: Mapping[str, str] = {}
        self._studies: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._numbers: dict[str, dict[str, int]] = {}

    def study(self, rung: str) -> Any:
        """The study of a rung, created if absent."""
        if rung not in self._studies:
            study = opened(self._storage, PREFIX + rung)
            if not study.user_attrs:
                study.set_user_attr("rung", rung)
                study.set_user_attr("data", self.fingerprint(rung))
            self._studies[rung] = study
            self._counts[rung] = len(study.get_trials(deepcopy=False))
        return self._studies[rung]

    @property
    def by_rung(self) -> dict[str, Any]:
        """The studies so far."""
        return dict(self._studies)

    def fingerprint(self, rung: str) -> str:
        """What a rung's data is known by."""
        return self.data.get(rung, self.data.get("", ""))

    def learn(self, outcome: Outcome) -> None:
        """Take over distributions that came with an outcome."""
        for name, given in outcome.told.get("distributions", ()):
            self.distributions.setdefault(name, distribution(given))

    def link(self, rung: str, repeat: int, outcome: Outcome, number: int) -> None:
        """Remember a trial, so that later ones of its configuration point to it."""
        if repeat == 0:
            self._numbers.setdefault(config_hash(outcome.config), {})[rung] = number

    def add(self, rung: str, repeat: int, outcome: Outcome) -> None:
        """Write an outcome as a trial."""
        self.learn(outcome)
        below = [
            {"rung": name, "trial": number}
            for name, number in self._numbers.get(config_hash(outcome.config), {}).items()
            if name != rung
        ]
        attrs = {
            **outcome.told.get("user_attrs", {}),
            "rung": rung,
            "repeat": repeat,
            "data": self.fingerprint(rung),
            "below": below[-1] if below else None,
            **{k: getattr(outcome, k) for k in ("config", "seconds", "values", "note", "parts", "told")},
        }
        self.study(rung).add_trial(to_trial(outcome, self.distributions, attrs))
        self.link(rung, repeat, outcome, self._counts[rung])
        self._counts[rung] += 1
