"""Reads and names the evaluations that `hcdc evaluate` writes, and groups those that are comparable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError
from hcdc.core.results import Evaluation, Rival

NEEDED = ("dataset", "method", "candidates", "truth", "proxy", "spearman", "interval", "rivals")
"""Keys that every evaluation has."""

IDENTITY = ("dataset", "method", "train_method", "val_method", "train_size", "val_size", "seed")
"""Fields that an evaluation shares with the condensed file it judges."""

TELLING = ("dataset", "preset", "train_method", "train_size", "val_method", "val_size", "seed", "judge_seed")
"""Fields that tell evaluations apart, in order; the method is always named first."""


def _is_evaluation(value: Any) -> bool:
    """Whether a parsed JSON value has the keys and lists of an evaluation."""
    return (
        isinstance(value, dict)
        and all(key in value for key in NEEDED)
        and all(isinstance(value[key], list) for key in ("truth", "proxy", "rivals"))
        and len(value["truth"]) == len(value["proxy"]) > 0
    )


def read_evaluation(path: str | os.PathLike[str]) -> Evaluation:
    """Read an evaluation from its JSON file; refuses anything else."""
    name = os.fspath(path)
    advice = "pass a file that 'hcdc search --json' or 'hcdc evaluate' wrote"
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"the file '{name}' does not exist; {advice}") from error
    except OSError as error:
        raise InputError(f"'{name}' cannot be read: {error.strerror or error}; {advice}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{name}' is not JSON, or is truncated; {advice}") from error
    if not _is_evaluation(value):
        raise InputError(f"'{name}' is JSON, but not an evaluation; {advice}")
    return Evaluation.from_json(value)


def belongs(evaluation: Evaluation, meta: Mapping[str, Any]) -> bool:
    """Whether the evaluation judges the condensed file described by ``meta``."""
    wanted = {**meta, "dataset": (meta.get("data") or {}).get("name")}
    own = vars(evaluation)
    return all(own[key] == wanted.get(key) for key in IDENTITY if key in wanted)


def evaluations_of(meta: Mapping[str, Any], paths: Iterable[Path]) -> list[tuple[Path, Evaluation]]:
    """The files among ``paths`` that evaluate the condensed file described by ``meta``."""
    found = []
    for path in paths:
        try:
            evaluation = read_evaluation(path)
        except InputError:
            continue
        if belongs(evaluation, meta):
            found.append((path, evaluation))
    return found


def short_names(evaluations: Sequence[Evaluation]) -> list[str]:
    """A name for each evaluation: its method, and whatever distinguishes it from the others."""

    def varying(among: Sequence[Evaluation], keys: Iterable[str]) -> list[str]:
        return [key for key in keys if len({str(vars(e)[key]) for e in among}) > 1]

    names = []
    for evaluation in evaluations:
        alike = [e for e in evaluations if e.method == evaluation.method]
        differing = varying(evaluations, TELLING)
        keys = [key for key in differing if key == "dataset" or key in varying(alike, differing)]
        told = [f"{key.replace('_', ' ')} {vars(evaluation)[key]}" for key in keys]
        names.append(", ".join([evaluation.method, *told]))
    return [
        name if names.count(name) == 1 else f"{name} #{names[: k + 1].count(name)}"
        for k, name in enumerate(names)
    ]


def comparable(evaluations: Sequence[Evaluation]) -> list[list[int]]:
    """Group the positions of evaluations with the same candidates and the same truth."""
    groups: list[list[int]] = []
    for k, e in enumerate(evaluations):
        for group in groups:
            first = evaluations[group[0]]
            if (first.dataset, first.configs, first.truth) == (e.dataset, e.configs, e.truth):
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def rivals_once(evaluations: Sequence[Evaluation]) -> list[list[Rival]]:
    """The rivals of each evaluation, without those that scored the same in an earlier one.

    Rivals that do not use the copy, such as early stopping, are the same for several copies.
    """
    seen: list[tuple[str, Any]] = []
    lists = []
    for evaluation in evaluations:
        own = [rival for rival in evaluation.rivals if (rival.name, rival.proxy) not in seen]
        seen += [(rival.name, rival.proxy) for rival in own]
        lists.append(own)
    return lists


def is_fraction(evaluation: Evaluation) -> bool:
    """Whether scores are accuracies in 0 .. 1, shown in percent, rather than e.g. negative errors."""
    if evaluation.accuracy is not None:
        return evaluation.accuracy
    return all(0 <= value <= 1 for value in evaluation.truth if value is not None)
