"""A search kept in an Optuna journal: one study per rung, which Optuna's plots and dashboard can open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hcdc.core.errors import InputError, require
from hcdc.core.records import jsonable
from hcdc.search._distributions import Distribution
from hcdc.search._lock import JournalLock
from hcdc.search._optuna import PREFIX, Studies, from_trial, opened
from hcdc.search._problem import Outcome
from hcdc.search._store import Store, fingerprints, holds, written

CONTROL = "search"
"""The study whose user attributes are the decisions of a search."""
START = b'{"op_code"'


class OptunaStore(Store):
    """A store in an Optuna journal file; other studies in it are left alone.

    On opening, a half-written last line is cut and trials that were still running are marked as failed.

    Args:
        path: The file; created if absent.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__()
        self.path = os.fspath(path)
        require("optuna", "hpo")
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._lock = JournalLock(self.path)
        with written(self.path):
            check_journal(self.path, self._lock)
            try:
                self._storage: Any = JournalStorage(JournalFileBackend(self.path, self._lock))
            except (AssertionError, KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"the Optuna journal '{self.path}' is damaged ({type(error).__name__}: {error}); name "
                    "another storage"
                ) from error
            self._made = Studies(self._storage)
            self._control: Any = None
            for study in self._storage.get_all_studies():
                self.continued = True
                if study.study_name == CONTROL:
                    self._notes.update(study.user_attrs)
                elif study.study_name.startswith(PREFIX):
                    self._read(study)

    @property
    def waited(self) -> float:
        return self._lock.waited

    def _read(self, study: Any) -> None:
        """Take over the trials of a study, after checking that they belong together."""
        from optuna.trial import TrialState

        rung, name = study.study_name.removeprefix(PREFIX), f"study '{study.study_name}' in '{self.path}'"
        if [direction.name for direction in study.directions] != ["MAXIMIZE"]:
            raise InputError(f"{name} is not maximised, so a search cannot continue it; name another storage")
        for trial in self._storage.get_all_trials(study._study_id, deepcopy=False):
            if trial.state == TrialState.RUNNING:
                self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            tags = [trial.user_attrs.get(key) for key in ("rung", "data")]
            if tags == [rung, study.user_attrs.get("data")]:
                outcome, repeat = from_trial(trial), trial.user_attrs["repeat"]
                self._made.learn(outcome)
                self._made.link(rung, repeat, outcome, trial.number)
                super().tell(rung, repeat, outcome)
            elif trial.state.is_finished() and trial.state != TrialState.FAIL:
                raise InputError(
                    f"{name} mixes rungs: trial {trial.number} has rung {tags[0]} and data {tags[1]}, the "
                    f"study {rung} and {study.user_attrs.get('data')}; name another storage"
                )

    def open(self, spec: Mapping[str, Any], distributions: Mapping[str, Distribution] | None = None) -> None:
        super().open(spec, distributions)
        self._made.distributions.update(distributions or {})
        self._made.data = fingerprints(spec)

    def tell(self, rung: str, repeat: int, outcome: Outcome) -> None:
        super().tell(rung, repeat, outcome)
        with written(self.path):
            self._made.add(rung, repeat, outcome)

    def note(self, key: str, value: Any) -> Any:
        if key not in self._notes:
            with written(self.path):
                self._control = self._control or opened(self._storage, CONTROL)
                self._control.set_user_attr(key, jsonable(value))
        return super().note(key, value)

    def clear(self) -> None:
        super().clear()
        with written(self.path):
            for study in self._storage.get_all_studies():
                if study.study_name == CONTROL or study.study_name.startswith(PREFIX):
                    self._storage.delete_study(study._study_id)
        self._made, self._control = Studies(self._storage), None

    def studies(self) -> dict[str, Any]:
        return {rung: self._made.study(rung) for rung, _, _ in self._outcomes}


def check_journal(path: str, lock: JournalLock) -> None:
    """Refuse a file that is not an Optuna journal; cut a half-written last line."""
    if not os.path.exists(path):
        return
    size = 0
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, 1):
            left = line.rstrip(b"\0")  # a loss of power leaves bytes of zero
            if not line.endswith(b"\n") and (left.startswith(START) or START.startswith(left)):
                return _cut(path, size, lock)
            if not holds(line, "op_code"):
                raise InputError(
                    f"line {number} of '{path}' is not a record of an Optuna journal; restore the file "
                    "from a copy of it, or name another storage"
                )
            size += len(line)


def _cut(path: str, size: int, lock: JournalLock) -> None:
    """Truncate a journal after its last newline, which is at ``size`` or later."""
    lock.acquire()  # somebody may be writing the rest of the line
    try:
        with open(path, "rb+") as handle:
            handle.seek(size)
            handle.truncate(size + handle.read().rfind(b"\n") + 1)
    finally:
        lock.release()
