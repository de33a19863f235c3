"""Run a user's objective: one trial in this process, and the interface for running many elsewhere."""

from __future__ import annotations

import logging
import math
import os
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hcdc.core.configs import Config, config_hash
from hcdc.core.seeds import derive, global_streams
from hcdc.datasets import FullData, TrialData
from hcdc.search._trial import Rule, Trial, is_pruned

log = logging.getLogger("hcdc")
Made = TypeVar("Made")
Objective = Callable[[Any, TrialData], float]
MakeData = Callable[[FullData, int, int], TrialData]
"""The data of a trial, from the full data, the seed of the rung and the seed of the trial."""

LIBRARIES = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]), "<frozen ")
"""How the file names of code begin that is not the user's."""


@dataclass(frozen=True)
class Job:
    """One trial to run.

    Attributes:
        config: The configuration.
        number: Number of the trial.
        seed: Seed of the rung.
        rule: When to give up.
    """

    config: Config
    number: int
    seed: int
    rule: Rule | None = None


@dataclass(frozen=True)
class Ran:
    """What came out of a trial.

    Attributes:
        trial: The trial, with what the objective read and said.
        score, state, note: See `Outcome`.
        seconds: Its own seconds, wherever it ran.
        asked, batch, doubt, parts, weighted: What `TrialData` noted.
        error: Standard error of the score over the validation rows; None for a value of the user's own.
    """

    trial: Trial
    score: float = math.nan
    state: str = "failed"
    note: str = ""
    seconds: float = 0.0
    asked: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    weighted: bool = False
    error: float | None = None
    batch: int = 0
    doubt: str = ""


class Executor:
    """Runs trials in this process, one after another.

    Attributes:
        batch: Trials that are handed over together; what a search does depends on it.
        elsewhere: Whether trials run in other processes.
    """

    batch: int = 1
    elsewhere: bool = False

    def run(self, objective: Objective, full: FullData, data: MakeData, jobs: Sequence[Job]) -> Iterator[Ran]:
        """Run trials; what came out of them, in their order."""
        return self.map(run_job, (objective, full, data), jobs, _lost)

    def map(
        self,
        function: Callable[..., Made],
        shared: Sequence[Any],
        jobs: Sequence[Any],
        lost: Callable[[Any, str], Made],
    ) -> Iterator[Made]:
        """``function(*shared, job)`` for each job, in their order.

        Args:
            function: Runs one job.
            shared: What all jobs need; sent once if they run elsewhere.
            jobs: The jobs.
            lost: What a job gives whose process died, from the job and what happened.
        """
        for job in jobs:
            yield function(*shared, job)


def _lost(job: Job, note: str) -> Ran:
    return Ran(Trial(job.config, job.number), note=note)


def run_job(objective: Objective, full: FullData, data: MakeData, job: Job) -> Ran:
    """Run the objective once; an exception or a value that is no finite number makes a failed trial."""
    begun = time.perf_counter()
    given = data(full, job.seed, derive(job.seed, "trial", config_hash(job.config)))
    trial = Trial(job.config, job.number, job.rule)
    score, state, note = math.nan, "complete", ""
    try:
        with global_streams(given.seed):
            value = objective(trial, given)
        score, note = _score(value)
        state = "failed" if note else "complete"
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        state = "pruned" if is_pruned(error) else "failed"
        note = " ".join(f"{type(error).__name__}: {error}".split())[:300] + _place(error)
        if state == "failed":
            log.debug("trial %d failed", job.number, exc_info=error)
    seconds = time.perf_counter() - begun
    noted = given.asked, given.parts_scored, given.weighted, given.errors.get(score), given.batch, given.doubt
    return Ran(trial, score, state, note, seconds, *noted)


def _place(error: BaseException) -> str:
    """Where in the user's own code an exception arose, e.g. " [objective.py:12]"."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is `run_job`
    own = [f for f in frames if not f.filename.startswith(LIBRARIES) and "site-packages" not in f.filename]
    last = (own or frames[:1])[-1:]
    return "".join(f" [{os.path.basename(frame.filename)}:{frame.lineno}]" for frame in last)


def _score(value: Any) -> tuple[float, str]:
    """What the objective returned as a number, and why it cannot be used."""
    try:
        score = float(value)
    except (TypeError, ValueError):
        return math.nan, f"the objective returned {str(value)[:60]}, not a number"
    return (score, "") if math.isfinite(score) else (math.nan, f"the objective returned {score}")
