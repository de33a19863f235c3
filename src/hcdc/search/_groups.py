"""Declared groups of hyperparameters, such as the length of a step, as text: ``log lr - log batch``."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.search._problem import Array

NAME = r"[^\W\d][\w.]*"
TERM = re.compile(
    rf"\s*([+-]?)\s*(?:(\d+\.?\d*|\.\d+)\s*\*\s*)?"
    rf"(?:log\s*\(\s*1\s*-\s*({NAME})\s*\)|log\s*\(\s*({NAME})\s*\)|log\s+({NAME})|({NAME}))\s*"
)


@dataclass(frozen=True)
class Term:
    """One term of a sum: ``weight`` times a hyperparameter, its logarithm, or log(1 - it)."""

    weight: float
    name: str
    log: bool = False
    rest: bool = False

    def of(self, config: Config) -> float:
        """Its value; NaN where the configuration has no such number."""
        value = config.get(self.name)
        if not isinstance(value, int | float):
            return math.nan
        found = 1 - value if self.rest else float(value)
        if self.log:
            found = math.log(found) if found > 0 else math.nan
        return self.weight * found


def parse_groups(groups: Mapping[str, str] | None) -> dict[str, list[Term]]:
    """The terms of each group.

    Args:
        groups: Sums by name. A term is a hyperparameter, ``log lr`` or ``log(1 - momentum)``, perhaps with a
            factor as in ``2 * log width``.

    Example:
        >>> from hcdc.search._groups import parse_groups
        >>> [term.name for term in parse_groups({"step": "log lr - log batch"})["step"]]
        ['lr', 'batch']
    """
    return {name: _terms(name, text) for name, text in (groups or {}).items()}


def _terms(group: str, text: str) -> list[Term]:
    found, place = list[Term](), 0
    while (match := TERM.match(str(text), place)) and (match[1] or not found):
        sign, factor, rest, inside, after, plain = match.groups()
        weight = float(factor or 1) * (-1 if sign == "-" else 1)
        found.append(Term(weight, rest or inside or after or plain, plain is None, rest is not None))
        place = match.end()
    if not found or place < len(str(text)):
        raise InputError(
            f"group '{group}': '{text}' is no sum of hyperparameters; write e.g. 'log lr - log batch' or "
            "'log lr - log(1 - momentum)'"
        )
    return found


def check_groups(groups: Mapping[str, Sequence[Term]], names: Collection[str]) -> None:
    """Refuse a group of hyperparameters that are not searched."""
    for group, terms in groups.items():
        for term in terms:
            if term.name not in names:
                raise unknown_name(f"group '{group}': hyperparameter", term.name, names)


def group_values(groups: Mapping[str, Sequence[Term]], configs: Sequence[Config]) -> dict[str, Array]:
    """The value of each group ``[n]``; NaN where a configuration lacks a part of it."""
    return {
        name: np.array([sum(term.of(config) for term in terms) for config in configs], np.float64)
        for name, terms in groups.items()
    }
