"""The search for a user's own objective: rungs that run it on a copy, a subset, briefly or in full."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import HcdcError, InputError
from hcdc.core.memory import PeakMemory
from hcdc.core.records import jsonable
from hcdc.core.seeds import derive, numpy_stream
from hcdc.core.told import counted
from hcdc.datasets import CondensedDataset, Effort, FullData, TrialData
from hcdc.search._code import code_fingerprint
from hcdc.search._distributions import Distribution, distribution
from hcdc.search._executor import Executor, Job, MakeData, Objective, Ran
from hcdc.search._free import KIND as FREE
from hcdc.search._learned_space import MOST_VALUES, LearnedSpace
from hcdc.search._problem import Array, Outcome, Problem, Rung
from hcdc.search._pruning import UNPRUNED, MedianRule, OptunaPruning
from hcdc.search._short import UNKNOWN_SHARE, short_training
from hcdc.search._store import Store
from hcdc.search._trial import Rule

log = logging.getLogger("hcdc")

RUNGS = ("subset:0.1", "short:0.25")
"""Rungs by default, after the copies and before the full training."""
WHOLE_RUNGS = ("short:0.1",)
"""The same for graphs: a subset would cost as much as the whole."""
QUICK = 2.0
"""Seconds of a trial after which the next dearer rung is measured too, not extrapolated."""
MOST_TIMED, TIMING = 16, 4.0
"""Configurations that a forecast is made from at most, and the seconds after which no other one is begun."""
BRIEF = 5.0
"""Seconds of an epoch on the full data up to which one is run to see what memory it takes."""
EXPLORING = 10.0
"""Seconds for trials that look for conditional parameters before a space is called finite."""
SCOUTS = 5
"""Trials that may fail before the search gives up on an objective."""
NO_SHORT = (
    "the objective calls neither data.epochs nor data.steps, so a short training cannot be told from a full "
    "one; train for data.epochs(n) epochs to make it possible"
)


class ObjectiveRung(Rung):
    """One way to run the objective.

    Args:
        name: Its name.
        share: Expected price as a share of one full training.
        data: Makes the data of a trial.
        rows: Share of the training examples that a trial gets.
    """

    def __init__(self, name: str, share: float, data: MakeData, rows: float = 1.0):
        self.name, self.share, self.data, self.rows = name, share, data, rows
        self.trials: Callable[[ObjectiveRung, Sequence[Config], int], Iterator[Outcome]]

    def run(self, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        return self.trials(self, configs, seed)


class ObjectiveProblem(Problem):
    """A user's objective on its full data.

    Args:
        objective: ``objective(trial, data)`` reads parameters from ``trial``, trains on ``data.train`` and
            returns ``data.score(outputs)`` or a number of its own, higher is better.
        full: The full data.
        copies: Condensed data sets, or their files, that stand in for it. Their features have the units in
            which they were condensed (tables and images: standardised), so the full data must have them too.
        rungs: Names of the rungs, cheapest first: ``"subset:0.1"`` (a tenth of the training examples),
            ``"short:0.25"`` (a quarter of the epochs), ``"short:3"`` (3 epochs), ``"copy:FILE"``, ``"full"``.
        executor: Where trials run; in this process by default.
        pruner: A pruner of Optuna that decides which full trainings to give up, instead of the median rule.

    Attributes:
        space: What is known of the search space.
        dropped: Why stand-ins were left out before the search, by name.
        warnings: What to tell the user with the result.
    """

    def __init__(
        self,
        objective: Objective,
        full: FullData,
        copies: Sequence[CondensedDataset | str | os.PathLike[str]] = (),
        rungs: Sequence[str] | None = None,
        executor: Executor | None = None,
        pruner: Any = None,
    ):
        if not callable(objective):
            raise InputError(
                f"objective is a {type(objective).__name__}; pass a function objective(trial, data)"
            )
        if not isinstance(full, FullData):
            raise InputError(f"full is a {type(full).__name__}; pass hcdc.FullData(train, val)")
        self.objective, self.full, self.executor = objective, full, executor or Executor()
        if pruner is not None and self.executor.elsewhere:
            raise InputError("pruner= works in one process only; leave out the pruner or the backend")
        self._given = None if pruner is None else OptunaPruning(pruner)
        self.code = code_fingerprint(objective)
        self.space = LearnedSpace()
        self.warnings: list[str] = [full.doubt] if full.doubt else []
        self.dropped: dict[str, str] = {}
        self._copies: dict[str, str] = {}
        self._params: dict[str, Mapping[str, Any]] = {}
        self._full_scored: set[str] = set()
        self._reports: list[Mapping[int, float]] = []
        self._heard, self._asked, self._settled = 0, 1, False
        self._peaks: dict[float, list[PeakMemory]] = {}
        numbers = [""] if len(copies) == 1 else [f":{k}" for k in range(1, len(copies) + 1)]
        found = [self._copy(f"copy{number}", copy) for number, copy in zip(numbers, copies)]
        divisible = full.parts["train"].divisible
        names = (RUNGS if divisible else WHOLE_RUNGS) if rungs is None else rungs
        found += [self._rung(name) for name in names if name != "full"]
        self.rungs: list[ObjectiveRung] = [*found, ObjectiveRung("full", 1.0, whole)]
        for rung in self.rungs:
            rung.trials, rung.batch = self.trials, self.executor.batch
        self._names = [rung.name for rung in self.rungs]
        if len(set(self._names)) < len(self._names):
            raise InputError(f"rungs {', '.join(self._names)}: each may appear once")

    # --- rungs --------------------------------------------------------------------------------------------

    def _rung(self, name: str) -> ObjectiveRung:
        kind, _, text = name.partition(":")
        if kind == "copy" and text:
            return self._copy(name, text)
        if kind == FREE:
            raise InputError(
                f"rung '{name}': training-free scores need the networks of a task and its space, and an "
                "objective builds its own; leave it out"
            )
        size = _number(text)
        if kind == "subset" and 0 < size < 1:
            share = size if self.full.parts["train"].divisible else 1.0
            return ObjectiveRung(name, share, partial(part, fraction=size, effort=Effort(steps=size)), share)
        if kind == "short" and (0 < size < 1 or (size >= 1 and size.is_integer())):
            short = Effort(steps=size, epochs=size) if size < 1 else Effort(most=int(size))
            share = size if size < 1 else UNKNOWN_SHARE
            return ObjectiveRung(name, share, partial(part, fraction=1.0, effort=short))
        raise InputError(
            f"rung '{name}' is not known; write 'subset:0.1', 'short:0.25' (a share of the epochs), "
            "'short:3' (epochs), 'copy:FILE' or 'full'"
        )

    def _copy(self, name: str, copy: CondensedDataset | str | os.PathLike[str]) -> ObjectiveRung:
        small = copy if isinstance(copy, CondensedDataset) else CondensedDataset.load(copy)
        TrialData.of_copy(small, 0, self.full)  # refuse now what every trial would refuse
        self._copies[name] = hashlib.sha256(small.to_bytes()).hexdigest()[:32]
        share = min(0.9, len(small.train) / len(self.full.parts["train"]))
        rung = ObjectiveRung(name, share, partial(copied, small=small), share)
        rung.file = small.file
        return rung

    # --- the space ----------------------------------------------------------------------------------------

    def candidates(self) -> None:
        return None

    def propose(self, count: int, rng: np.random.Generator, near: Sequence[Config] = ()) -> list[Config]:
        return self.space.propose(count, rng, near)

    @property
    def fingerprint(self) -> str:
        """What the full data is known by."""
        return self.full.fingerprint

    @property
    def distributions(self) -> Mapping[str, Distribution]:
        return self.space.distributions

    def candidate(self, params: Config) -> Config:
        config: Config = {}
        for name in self.space.distributions:
            if name in params and self.space.reads(config, name):
                config[name] = params[name]
        return config

    def features(self, configs: Sequence[Config]) -> Array:
        return self.space.features(configs)

    def described(self, configs: Sequence[Config]) -> Mapping[str, Array]:
        return self.space.described(configs)

    def spec(self) -> dict[str, Any]:
        return {
            "objective": _name(self.objective),
            "data": self.full.fingerprint,
            "metric": None if self.full.metric is None else _name(self.full.metric),
            "rungs": self._names,
            "copies": dict(self._copies),
        }

    def scout(self, store: Store, seed: int, budget: float = math.inf) -> None:
        """Run one trial on the cheapest rung to learn the parameters and whether there is a short training.

        If it fails, up to four others follow. A stand-in on which all of them fail is dropped, and the next
        rung is tried. The seconds of these trials are the price to enter the first rung that is left.
        """
        seconds, failed = 0.0, ""
        while True:
            outcome, spent = self._scouted(self.rungs[0], store, seed, failed)
            seconds, failed = seconds + spent, outcome.note
            if outcome.complete or len(self.rungs) == 1:
                break
            self._drop(self.rungs[0], f"the objective fails on it ({failed})")
        if not outcome.complete:
            raise HcdcError(f"the first trials all failed, also on rung '{self.rungs[0].name}': {failed}")
        if not self.space.distributions:
            raise InputError("the objective asks the trial for no parameter, so there is nothing to search")
        self._settle(outcome.told, self.rungs[0].rows == 1)
        self.rungs[0].once += seconds

    def _scouted(self, rung: ObjectiveRung, store: Store, seed: int, failed: str) -> tuple[Outcome, float]:
        """The first trial on a rung that is complete, else the last one, and the seconds of all.

        A trial that fails as those on the rung below did (``failed``) says enough.
        """
        seconds, fresh = 0.0, list[Outcome]()
        for attempt in range(SCOUTS):
            config: Config = {} if not attempt else {"scout": attempt}
            kept = store.known(rung.name, -1, config)
            if kept is None:
                with store.begun(rung.name, -1, config):
                    outcome = self.trial(rung, config, derive(seed, "scout", attempt))
                store.tell(rung.name, -1, outcome)
                fresh.append(outcome)
            else:
                outcome = kept
            seconds += outcome.seconds
            self._learn(outcome)
            if outcome.complete or outcome.note == failed:
                break
        _log_failures(fresh, f"on rung '{rung.name}'")
        return outcome, seconds

    def _drop(self, rung: ObjectiveRung, why: str) -> None:
        """Leave out a stand-in, and say so."""
        self.rungs.remove(rung)
        self.dropped[rung.name] = why
        self.warnings.append(f"rung '{rung.name}' is left out: {why}")
        log.warning("%s", self.warnings[-1])

    def forecast(self, budget: float, seed: int) -> dict[str, float]:
        """Mean seconds per trial by rung, from the same configurations on all rungs that are quick enough."""
        self.scout(Store(), seed)
        rng = numpy_stream(seed, "forecast")
        taken, timed = dict[str, list[float]](), list[Outcome]()
        for config in self.propose(MOST_TIMED, rng):
            for rung in self.rungs if not taken else [r for r in self.rungs if r.name in taken]:
                with PeakMemory() as peak:
                    trial = self.trial(rung, config, derive(seed, "forecast", rung.name))
                self._peaks.setdefault(rung.rows, []).append(peak)
                timed.append(trial)
                taken.setdefault(rung.name, []).append(max(trial.seconds, 1e-9))
                if trial.seconds > QUICK:
                    break
            if sum(map(sum, taken.values())) > TIMING:
                break
        known = [rung for rung in self.rungs if rung.name in taken][-1]
        measured = {name: float(np.mean(seconds)) for name, seconds in taken.items()}
        for rung in self.rungs:
            measured.setdefault(rung.name, measured[known.name] * rung.share / known.share)
        timed += self._explore(budget / measured[self.rungs[-1].name], rng, seed)
        _log_failures(timed, "while the plan was made")
        return measured

    def full_memory_gib(self, prices: Mapping[str, float], seed: int) -> float:
        """Peak memory of a training on all rows, after `forecast`.

        If none was timed, a single epoch (or step) is run if that is quick. Otherwise what a trial took
        beside what was held already is expected to grow with the rows.
        """
        if 1.0 not in self._peaks and prices[self.rungs[-1].name] / self._asked <= BRIEF:
            shortest = Effort(steps=0.0, epochs=0.0)
            brief = ObjectiveRung("brief", 1.0, partial(part, fraction=1.0, effort=shortest))
            brief.trials = self.trials
            config = self.propose(1, numpy_stream(seed, "memory"))[0]
            with PeakMemory() as peak:
                ran = self.trial(brief, config, derive(seed, "memory"))
            if ran.complete:
                self._peaks[1.0] = [peak]
        rows = max(self._peaks)
        return max(peak.gib + (1 / rows - 1) * peak.rise for peak in self._peaks[rows])

    def _explore(self, affordable: float, rng: np.random.Generator, seed: int) -> list[Outcome]:
        """Where all configurations seem affordable in full, look for parameters that few of them read."""
        found: list[Outcome] = []
        for number in range(MOST_VALUES):
            spent = sum(outcome.seconds for outcome in found)
            if spent > EXPLORING or self.space.combinations > affordable or math.isfinite(self.size()):
                break
            config = self.space.unexplored(rng)
            found.append(self.trial(self.rungs[0], config, derive(seed, "explore", number)))
            self._learn(found[-1])
        return found

    def free_prices(self) -> dict[str, float]:
        """Seconds per candidate by free rung: an objective has none."""
        return {}

    def size(self) -> float:
        """Number of configurations; infinite where a parameter is real, or may not always be read."""
        return self.space.size()

    def _settle(self, told: Mapping[str, Any], whole: bool) -> None:
        """Drop the short rungs that mean nothing for this objective; set what a number of epochs means.

        Args:
            told: What the first trial told.
            whole: Whether it had all training examples, on which the number of steps may depend.
        """
        asked = told["asked"]
        self._asked, self._settled = max([1, *asked.values()]), True
        short = [rung for rung in self.rungs if rung.name.startswith("short:")]
        if short and not asked:
            self.rungs = [rung for rung in self.rungs if rung not in short]
            self.dropped.update({rung.name: NO_SHORT for rung in short})
            self.warnings.append(NO_SHORT)
            log.warning("%s", NO_SHORT)
            return
        for rung in short:
            if (most := _number(rung.name.partition(":")[2])) < 1:  # of few epochs, whole ones are trained
                rung.share = max(max(1, round(n * most)) / max(1, n) for n in asked.values())
                continue
            try:
                rung.share, effort = short_training(int(most), told, self.full, whole)
            except InputError as error:
                self._drop(rung, str(error))
            else:
                rung.data = partial(part, fraction=1.0, effort=effort)

    # --- trials -------------------------------------------------------------------------------------------

    def trial(self, rung: ObjectiveRung, config: Config, seed: int) -> Outcome:
        """Run the objective once, before the ladder does; see `trials`."""
        return next(self._run(rung, [config], seed))

    def trials(self, rung: ObjectiveRung, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        """Run the objective on configurations, in order.

        An exception or a value that is not a finite number makes a failed trial. A search that cannot go on
        with this objective raises `InputError`.
        """
        for number, outcome in enumerate(self._run(rung, configs, seed), self._heard):
            if outcome.state == "failed":
                log.info("trial %d failed on rung '%s': %s", number, rung.name, outcome.note)
            yield outcome

    def _run(self, rung: ObjectiveRung, configs: Sequence[Config], seed: int) -> Iterator[Outcome]:
        jobs = [
            Job(config, self._heard + k, seed, self._pruner(rung, config)) for k, config in enumerate(configs)
        ]
        for job, ran in zip(jobs, self.executor.run(self.objective, self.full, rung.data, jobs)):
            yield self._outcome(rung, job.config, ran)

    def _outcome(self, rung: ObjectiveRung, config: Config, ran: Ran) -> Outcome:
        trial = ran.trial
        self._check(rung, config, ran)
        known = self.space.distributions
        fresh = [[name, d.describe()] for name, d in trial.distributions.items() if name not in known]
        told = {
            "params": trial.params, "distributions": fresh, "asked": ran.asked,
            "reports": [[k, v] for k, v in trial.reports.items() if math.isfinite(v)],
            "user_attrs": trial.user_attrs, "error": ran.error,
        }  # fmt: skip
        if ran.batch:
            told["batch"] = ran.batch
        parts = {name: value for name, value in ran.parts.items() if name != "val"}
        return Outcome(
            config, ran.score, ran.seconds, ran.state, note=ran.note, parts=parts, told=jsonable(told)
        )

    def _check(self, rung: ObjectiveRung, config: Config, ran: Ran) -> None:
        """Refuse what would make rungs incomparable."""
        trial = ran.trial
        if trial.refusal is not None:
            raise trial.refusal
        self.space.check(trial.distributions, rung.name)
        before = self._params.get(config_hash(config))
        if ran.state != "complete":
            return
        if before is not None and dict(before) != jsonable(trial.params):
            raise InputError(
                f"the objective read {_listed(before)} before and {_listed(trial.params)} on rung "
                f"'{rung.name}' for one configuration; what it reads must depend on other parameters only, "
                "not on the data"
            )
        if ran.doubt and self._settled:  # the first trial tells what is needed
            raise InputError(f"rung '{rung.name}': {ran.doubt}")
        if ran.weighted and "val" not in ran.parts:
            raise InputError(
                f"the validation set of rung '{rung.name}' is weighted, which a value of your own ignores; "
                "return data.score(outputs)"
            )

    def tell(self, rung: Rung, outcome: Outcome) -> None:
        self._heard += 1
        self._learn(outcome)
        if outcome.complete:
            self._params[config_hash(outcome.config)] = outcome.told["params"]
        if rung is self.rungs[-1] and self._given and config_hash(outcome.config) not in self._full_scored:
            self._given.tell(outcome)
        if rung is self.rungs[-1] and outcome.complete:
            self._full_scored.add(config_hash(outcome.config))
            self._reports.append({int(step): value for step, value in outcome.told["reports"]})
            if outcome.error is not None and self.full.classes is not None:
                self.bounds = (0.0, 1.0)  # accuracy: the error of a user's metric is not known

    def _learn(self, outcome: Outcome) -> None:
        told = outcome.told  # nothing, of a trial during which the process ended
        listed = told.get("distributions", [])
        new = {name: distribution(given) for name, given in listed}  # in order, also from a file
        self.revision += self.space.learn(new, told.get("params", {}), outcome.complete)

    def params(self, config: Config) -> Config:
        """The parameters that the objective read for a configuration, in the order of the space."""
        read = self._params.get(config_hash(config), config)
        return {name: read[name] for name in self.space.distributions if name in read}

    def _pruner(self, rung: ObjectiveRung, config: Config) -> Rule | None:
        """When to give up a full training.

        Lower rungs and fresh trainings of finalists are never given up: their scores are needed.
        """
        if rung is not self.rungs[-1] or config_hash(config) in self._full_scored:
            return None
        if self._given is not None:
            return self._given.rule(config) if len(self._full_scored) >= UNPRUNED else None
        return MedianRule(tuple(self._reports))


def whole(full: FullData, draw: int, seed: int) -> TrialData:
    """The full data of a trial."""
    return full.trial(seed)


def part(full: FullData, draw: int, seed: int, fraction: float, effort: Effort) -> TrialData:
    """A part of the data, or of the training."""
    return full.trial(seed, fraction=fraction, effort=effort, draw=draw)


def copied(full: FullData, draw: int, seed: int, small: CondensedDataset) -> TrialData:
    """A copy."""
    return TrialData.of_copy(small, seed, full)


def _log_failures(outcomes: Sequence[Outcome], where: str) -> None:
    """Log once how many trials failed before the ladder, whose own are numbered, and why the last one did."""
    if failed := [outcome for outcome in outcomes if outcome.state == "failed"]:
        log.info("%s failed %s: %s", counted(len(failed), "trial"), where, failed[-1].note)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _name(function: Any) -> str:
    return (
        f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
    )


def _listed(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in params.items()) or "nothing"
