"""Evaluations as `hcdc evaluate` writes them: reading, naming, and which of them can stand in one figure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hcdc.core.errors import InputError

Evaluation = Mapping[str, Any]

NEEDED = ("dataset", "method", "candidates", "truth", "proxy", "spearman", "interval", "rivals")
"""Keys without which a JSON file is not an evaluation."""

IDENTITY = ("dataset", "method", "train_method", "val_method", "train_size", "val_size", "seed")
"""What an evaluation and the condensed file it judges have in common."""

TELLING = ("dataset", "preset", "train_method", "train_size", "val_method", "val_size", "seed", "judge_seed")
"""Fields that tell evaluations apart, in the order they are named; the method always is."""


def is_evaluation(value: Any) -> bool:
    """Whether a parsed JSON value has the keys and lists of an evaluation."""
    return (
        isinstance(value, dict)
        and all(key in value for key in NEEDED)
        and all(isinstance(value[key], list) for key in ("truth", "proxy", "rivals"))
        and len(value["truth"]) == len(value["proxy"]) > 0
    )


def read_evaluation(path: str | os.PathLike[str]) -> dict[str, Any]:
    """An evaluation from its JSON file; anything else is refused in a sentence."""
    name = os.fspath(path)
    advice = "pass a file that 'hcdc evaluate --json' wrote"
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"the file '{name}' does not exist; {advice}") from error
    except OSError as error:
        raise InputError(f"'{name}' cannot be read: {error.strerror or error}; {advice}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{name}' is not a JSON file, or only a part of one; {advice}") from error
    if not is_evaluation(value):
        raise InputError(f"'{name}' is JSON, but not an evaluation; {advice}")
    found: dict[str, Any] = value
    return found


def belongs(evaluation: Evaluation, meta: Mapping[str, Any]) -> bool:
    """Whether the evaluation is one of the condensed file described by ``meta``."""
    wanted = {**meta, "dataset": (meta.get("data") or {}).get("name")}
    return all(evaluation.get(key) == wanted.get(key) for key in IDENTITY if key in wanted)


def evaluations_of(meta: Mapping[str, Any], paths: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Those of the JSON files ``paths`` that are evaluations of the condensed file described by ``meta``."""
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
    """A name for each evaluation: its method, and whatever tells it from the others."""
    varying = [key for key in TELLING if len({str(e.get(key)) for e in evaluations}) > 1]
    names = []
    for evaluation in evaluations:
        alike = [e for e in evaluations if e["method"] == evaluation["method"]]
        keys = [key for key in varying if key == "dataset" or len({str(e.get(key)) for e in alike}) > 1]
        told = [f"{key.replace('_', ' ')} {evaluation.get(key)}" for key in keys]
        names.append(", ".join([str(evaluation["method"]), *told]))
    return [
        name if names.count(name) == 1 else f"{name} #{names[: k + 1].count(name)}"
        for k, name in enumerate(names)
    ]


def comparable(evaluations: Sequence[Evaluation]) -> list[list[int]]:
    """Positions of evaluations that judged the same candidates against the same truth, group by group."""
    groups: list[list[int]] = []
    for k, evaluation in enumerate(evaluations):
        for group in groups:
            first = evaluations[group[0]]
            if all(first.get(key) == evaluation.get(key) for key in ("dataset", "configs", "truth")):
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def rivals_once(evaluations: Sequence[Evaluation]) -> list[list[Mapping[str, Any]]]:
    """The rivals of each evaluation; one that scored alike for an earlier evaluation is not named again.

    Early stopping and the parameter count do not look at the copy, so several copies share them.
    """
    seen: list[Mapping[str, Any]] = []
    lists = []
    for evaluation in evaluations:
        own = []
        for rival in evaluation["rivals"]:
            if not any(
                rival["name"] == other["name"] and rival.get("proxy") == other.get("proxy") for other in seen
            ):
                own.append(rival)
                seen.append(rival)
        lists.append(own)
    return lists


def is_image(evaluation: Evaluation) -> bool:
    """Whether the copy holds images."""
    return evaluation.get("kind") == "image"


SCORES = ("selected_test_accuracy", "best_test_accuracy", "regret")
"""Keys of an evaluation or a rival with one accuracy, or a difference of two."""


def in_shares(evaluation: Evaluation) -> Evaluation:
    """The evaluation with accuracies in 0 .. 1.

    Tables of results have percent; images have no score but accuracy, so of them it is known which it is.
    """
    known = [value for value in evaluation["truth"] if value is not None]
    if not is_image(evaluation) or not known or min(known) < 0 or not 1 < max(known) <= 100:
        return evaluation

    def shares(entry: Evaluation) -> dict[str, Any]:
        return {**entry, **{key: entry[key] / 100 for key in SCORES if entry.get(key) is not None}}

    lists = {
        key: [None if value is None else value / 100 for value in evaluation[key]]
        for key in ("truth", "test")
        if key in evaluation
    }
    return {**shares(evaluation), **lists, "rivals": [shares(rival) for rival in evaluation["rivals"]]}


def is_fraction(evaluation: Evaluation) -> bool:
    """Whether scores are accuracies in 0 .. 1 (shown in percent) and not, say, minus squared errors."""
    return all(0 <= value <= 1 for value in evaluation["truth"] if value is not None)
