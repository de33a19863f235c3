"""Full results from before a search, which it need not pay for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, require
from hcdc.search._distributions import CategoricalDistribution, Distribution, IntDistribution
from hcdc.search._optuna import PREFIX
from hcdc.search._problem import Outcome
from hcdc.search._store import holds
from hcdc.search._trial import told
from hcdc.truth import CsvTruth, ListedTruth, StudyTruth


def known_results(known: Any, fingerprint: str) -> ListedTruth:
    """Earlier full results: a list of them, a CSV file, an Optuna study or the storage that holds one.

    Args:
        known: The results. A study of an earlier search must be that of its full rung; of a storage of an
            earlier search that one is read.
        fingerprint: What the full data is known by.
    """
    if isinstance(known, ListedTruth):
        return known
    if isinstance(known, (str, os.PathLike)):
        try:
            if not _is_storage(os.fspath(known)):
                return CsvTruth(known)
            known = _stored(os.fspath(known))
        except InputError as error:
            raise InputError(f"known: {error}") from error
    if hasattr(known, "trials") and hasattr(known, "directions"):
        tags = [known.user_attrs.get(key) for key in ("rung", "data")]
        if tags not in ([None, None], ["full", fingerprint]):
            raise InputError(
                f"known is study '{known.study_name}' of rung {tags[0]} on data {tags[1]}; pass the study of "
                f"rung full on the same data, {fingerprint}"
            )
        return StudyTruth(known)
    raise InputError(
        f"known is a {type(known).__name__}; pass a CSV file, an Optuna study or its storage, a StudyTruth "
        "or a CsvTruth"
    )


def _is_storage(name: str) -> bool:
    """Whether a text is the address of an Optuna storage, or names a journal file."""
    if "://" in name or not os.path.isfile(name):
        return "://" in name
    with open(name, "rb") as handle:
        return holds(handle.readline(), "op_code")


def _stored(name: str) -> Any:
    """The study of the full trainings in a storage, or the only study."""
    optuna = require("optuna", "hpo")
    try:
        storage: Any = name
        if "://" not in name:
            storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(name))
        names = optuna.get_all_study_names(storage)
    except Exception as error:  # whatever a database says
        raise InputError(f"the storage '{name}' cannot be read: {' '.join(str(error).split())}") from error
    full = [some for some in names if some == PREFIX + "full"] or names
    if len(full) != 1:
        raise InputError(
            f"the storage '{name}' holds {len(names)} studies ({', '.join(names[:5])}); pass one, e.g. "
            "optuna.load_study(study_name=NAME, storage=STORAGE)"
        )
    return optuna.load_study(study_name=full[0], storage=storage)


def known_outcomes(results: ListedTruth, distributions: Mapping[str, Distribution]) -> list[Outcome]:
    """The results as outcomes of the full rung that cost nothing, marked as known."""
    found = []
    for given in results.configs:
        config = _typed(given, distributions, results.name)
        parts = {part: results.score(given, part) for part in results.parts if part != "val"}
        found.append(Outcome(config, results.score(given), 0.0, parts=parts, told={"known": True}))
    return found


def unread_columns(results: ListedTruth, distributions: Mapping[str, Distribution]) -> list[str]:
    """A warning about parameters that no trial has read so far; refuses results that share none with it."""
    given = {key for config in results.configs for key in config}
    known = ", ".join(distributions)
    if not given & distributions.keys():
        raise InputError(
            f"{results.name} has none of the parameters that the objective reads ({known}), but "
            f"{', '.join(sorted(given)) or 'no column'}"
        )
    unread = sorted(given - distributions.keys())
    if not unread:
        return []
    return [f"{results.name} has {', '.join(unread)}, which the first trial did not read; it read {known}"]


def _typed(given: Mapping[str, Any], distributions: Mapping[str, Distribution], name: str) -> Config:
    """A configuration with values as the objective reads them; empty cells of a file are left out."""
    config: Config = {}
    for key, value in given.items():
        dist = distributions.get(key)
        if value == "" and not (dist and dist.contains("")):
            continue
        config[key] = typed = _value(value, dist)
        if dist is not None and not dist.contains(typed):
            raise InputError(f"{name} has {key} = {value!r}, which {told(dist)} does not contain")
    return config


def _value(value: Any, dist: Distribution | None) -> Any:
    if isinstance(dist, CategoricalDistribution):
        same = (choice for choice in dist.choices if str(choice) == str(value))
        return value if dist.contains(value) else next(same, value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    return int(number) if isinstance(dist, IntDistribution) and number.is_integer() else number
