"""Where a search keeps what it has done, so that the same command continues it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from hcdc.core import records
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import HcdcError, InputError
from hcdc.core.files import is_special
from hcdc.search._distributions import Distribution
from hcdc.search._problem import STATES, Outcome

OPTUNA_SUFFIXES = (".log", ".journal")
CODE = "code"
"""Where a search keeps the fingerprint of its objective's code; storages of earlier versions have none."""
START = b'{"event": "'
"""How a storage of JSON lines begins."""
CRASHES = 2
"""Times that the process may end during one trial of a continued search; then the trial has failed."""


class Store:
    """Outcomes and decisions of one search, in memory.

    Attributes:
        continued: Whether it held anything when it was opened. Then trials are noted before they begin, so
            that one that ends the process, for want of memory say, does not do so for ever.
    """

    continued: bool = False

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, int, str], Outcome] = {}
        self._notes: dict[str, Any] = {}
        self._distributions: Mapping[str, Distribution] = {}
        self._data: Mapping[str, str] = {}

    def outcome(self, rung: str, repeat: int, config: Config) -> Outcome | None:
        """The outcome of a candidate on a rung, if it is known."""
        return self._outcomes.get((rung, repeat, config_hash(config)))

    @property
    def waited(self) -> float:
        """Seconds for which others kept the storage locked."""
        return 0.0

    def outcomes(self, rung: str) -> list[Outcome]:
        """The outcomes that a rung ranks by, in the order in which they came."""
        return [outcome for key, outcome in self._outcomes.items() if key[:2] == (rung, 0)]

    def tell(self, rung: str, repeat: int, outcome: Outcome) -> None:
        """Keep an outcome."""
        self._outcomes[rung, repeat, config_hash(outcome.config)] = outcome

    def known(self, rung: str, repeat: int, config: Config) -> Outcome | None:
        """The outcome of a candidate; a failed one if the process ended during its trial again and again."""
        found = self.outcome(rung, repeat, config)
        if found is None and sum(self._open(rung, repeat, config)) >= CRASHES:
            note = f"the process ended during this trial {CRASHES} times, so it is left out"
            return Outcome(config, math.nan, 0.0, "failed", note=note)
        return found

    @contextlib.contextmanager
    def begun(self, rung: str, repeat: int, config: Config) -> Iterator[None]:
        """Note in a continued search that a trial begins, and that it ended if it ends in any way."""
        if not self.continued:
            yield
            return
        key = f"{rung} {repeat} {config_hash(config)} {len(self._open(rung, repeat, config))}"
        self.note(f"begun {key}", True)
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit):  # what can be caught is no crash
            self.note(f"ended {key}", True)
            raise

    def _open(self, rung: str, repeat: int, config: Config) -> list[bool]:
        """For each time that a trial was noted to begin, whether nothing is known of its end."""
        key = f"{rung} {repeat} {config_hash(config)}"
        times = itertools.takewhile(lambda k: self.noted(f"begun {key} {k}"), itertools.count())
        return [not self.noted(f"ended {key} {k}") for k in times]

    def noted(self, key: str) -> Any:
        """The decision that was kept under a key, else None."""
        return self._notes.get(key)

    def note(self, key: str, value: Any) -> Any:
        """Keep a decision under a key; if the key is known, return what was kept instead."""
        return self._notes.setdefault(key, value)

    def open(self, spec: Mapping[str, Any], distributions: Mapping[str, Distribution] | None = None) -> None:
        """Refuse to continue the search of another problem.

        Where no trial succeeded there is nothing to continue: the objective, or what it calls, was mended, so
        the search begins anew.

        Args:
            spec: What is searched.
            distributions: Distributions of its parameters, as far as they are known.
        """
        plain, old = records.jsonable(spec), self.noted("problem")
        worthless = all(outcome.state == "failed" for outcome in self._outcomes.values())
        changed = old is not None and any(old.get(key, value) != value for key, value in plain.items())
        if worthless and (self._outcomes or changed):
            self.clear()
        self._distributions, self._data = distributions or {}, fingerprints(spec)
        kept = self.note("problem", plain)
        for key, value in plain.items():
            if key == CODE and value != kept.get(key, value):
                raise InputError(
                    "the storage holds trials of an objective with different code, defaults or enclosed "
                    "values; name another storage, or undo the change to continue (a new version of Python "
                    "is a change too)"
                )
            if key != CODE and kept.get(key) != value:
                raise InputError(
                    f"the storage holds a search with {key} = {kept.get(key)}, this one has {value}; "
                    "name another storage"
                )

    def clear(self) -> None:
        """Forget everything."""
        self._outcomes, self._notes, self.continued = {}, {}, False

    def studies(self) -> dict[str, Any]:
        """The outcomes as Optuna studies by rung, see `Studies`; needs Optuna."""
        from hcdc.search._optuna import Studies

        made = Studies(None, self._distributions)
        made.data = self._data
        for (rung, repeat, _), outcome in self._outcomes.items():
            made.add(rung, repeat, outcome)
        return made.by_rung


def fingerprints(spec: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprint of the full data under ``""``, and those of copies under the names of their rungs."""

    def text(value: Any) -> str:
        plain = json.dumps(records.jsonable(value), sort_keys=True)
        return value if isinstance(value, str) else hashlib.sha256(plain.encode()).hexdigest()[:32]

    copies = spec.get("copies")
    named = copies if isinstance(copies, Mapping) else {}
    return {"": text(spec.get("data", "")), **{rung: text(copy) for rung, copy in named.items()}}


def open_store(path: str | os.PathLike[str]) -> Store:
    """The store in a file, of the kind that its content shows.

    A new file is an Optuna journal where Optuna is installed, unless its name ends in ``.jsonl``; without
    Optuna it holds JSON lines, unless its name ends in ``.log`` or ``.journal``.
    """
    name = file_name(path)
    from hcdc.search._optuna_store import OptunaStore

    first = b""
    if os.path.isfile(name):
        with open(name, "rb") as handle:
            first = handle.readline()
    if holds(first, "op_code") or name.endswith(OPTUNA_SUFFIXES):
        return OptunaStore(path)
    lines = holds(first, "event") or name.endswith(".jsonl") or not _optuna_installed()
    return LineStore(path) if lines else OptunaStore(path)


def file_name(storage: str | os.PathLike[str]) -> str:
    """The file that a storage names; refuses what is no file."""
    if not isinstance(storage, (str, os.PathLike)):
        raise InputError(f"storage is a {type(storage).__name__}; name a file, e.g. search.log")
    name = os.fspath(storage)
    if "://" in name:
        raise InputError(f"storage '{name}' is an address; name a file, e.g. search.log")
    if is_special(name):
        raise InputError(f"storage '{name}' is a device or a pipe; name a file, e.g. search.log")
    return name


def _optuna_installed() -> bool:
    try:
        importlib.import_module("optuna")
    except ImportError:
        return False
    return True


def holds(line: bytes, key: str) -> bool:
    """Whether a line of a file is a JSON object with a key."""
    try:
        found = json.loads(line)
    except ValueError:  # not JSON, or not UTF-8
        return False
    return isinstance(found, dict) and key in found


def _begins(path: str, start: bytes) -> bool:
    """Whether a file begins with ``start``, as far as it goes; a loss of power leaves bytes of zero."""
    with open(path, "rb") as handle:
        return start.startswith(handle.read(len(start)).rstrip(b"\0"))


class LineStore(Store):
    """A store in a file of JSON lines, each on disk before the search goes on.

    Args:
        path: The file; created if absent.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__()
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            return
        for number, line in enumerate(records.read(self.path), 1):
            try:
                self._take(line)
            except (KeyError, TypeError, ValueError) as error:
                if number == 1:
                    raise self._foreign() from error
                raise InputError(
                    f"line {number} of '{self.path}' is not a record of a search; restore the file from a "
                    "copy of it, or name another storage"
                ) from error
            self.continued = True
        if not self.continued and not _begins(self.path, START):
            raise self._foreign()

    def _foreign(self) -> InputError:
        return InputError(f"'{self.path}' is not a search storage, and is left as it is; name another file")

    def _take(self, line: Mapping[str, Any]) -> None:
        """Take over a line; `ValueError` and its like if it is none of ours."""
        event = line["event"]
        if event == "note" and (line["key"] != "problem" or isinstance(line["value"], dict)):
            super().note(line["key"], line["value"])
            return
        given = {key: value for key, value in line.items() if key not in ("event", "rung", "repeat")}
        given["score"] = math.nan if given["score"] is None else given["score"]
        outcome = Outcome(**given)
        mappings = outcome.config, outcome.values, outcome.parts, outcome.told
        fine = event == "outcome" and outcome.state in STATES and math.isfinite(outcome.seconds)
        if not fine or math.isinf(outcome.score) or not all(isinstance(found, dict) for found in mappings):
            raise ValueError(event)
        super().tell(line["rung"], line["repeat"], outcome)

    def tell(self, rung: str, repeat: int, outcome: Outcome) -> None:
        super().tell(rung, repeat, outcome)
        self._append({"event": "outcome", "rung": rung, "repeat": repeat, **vars(outcome)})

    def note(self, key: str, value: Any) -> Any:
        if key not in self._notes:
            self._append({"event": "note", "key": key, "value": value})
        return super().note(key, value)

    def clear(self) -> None:
        super().clear()
        with written(self.path):
            os.truncate(self.path, 0)

    def _append(self, line: Mapping[str, Any]) -> None:
        with written(self.path):
            records.append(self.path, line)


@contextlib.contextmanager
def written(path: str) -> Iterator[None]:
    """Turn an error of the file system into a sentence."""
    try:
        yield
    except OSError as error:
        raise HcdcError(
            f"the storage '{path}' cannot be written ({error.strerror or error}); finished trials "
            "are kept, and the same call continues"
        ) from error
