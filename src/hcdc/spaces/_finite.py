"""Finite sets of configurations, relaxed onto the probability simplex, and their two halves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.core.seeds import numpy_stream
from hcdc.networks import check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import Dimension, check_names, check_visibility, free
from hcdc.spaces._registry import register


def project_simplex(lam: Tensor) -> Tensor:
    """Euclidean projection of the last dimension onto ``{v >= 0, sum v = 1}``.

    The projection is ``max(lam - t_r, 0)`` with t_r = (u_1 + ... + u_r - 1) / r, where u are the entries in
    descending order and r is the last index with u_r > t_r. A common shift of lam changes nothing.

    Args:
        lam: ``[..., H]``.
    """
    lam = lam - lam.amax(-1, keepdim=True)
    ordered = lam.sort(dim=-1, descending=True).values
    rank = torch.arange(1, lam.shape[-1] + 1, dtype=lam.dtype, device=lam.device)
    threshold = (ordered.cumsum(-1) - 1) / rank
    kept = (ordered > threshold).sum(-1, keepdim=True)
    return (lam - threshold.gather(-1, kept.clamp_min(1) - 1)).clamp_min(0)


@register
class Finite(Space):
    """A finite set of configurations; lambda is a point of the simplex they span, one-hot at each.

    Between vertices, a model mixes its candidates with the weights lambda. The nearest vertex is the largest
    entry of lambda. A subclass whose candidates have different networks sets ``batched = False``.

    Args:
        choices: The configurations; or one name, with ``values``: ``Finite("depth", [2, 4])`` is
            ``Finite([{"depth": 2}, {"depth": 4}])``.
        values: The values for that name.
        visibility: Overrides by name, as in `Box`.
    """

    name = "finite"
    batched = True

    def __init__(
        self,
        choices: str | Sequence[Config],
        values: Sequence[Any] | None = None,
        visibility: Mapping[str, str] | None = None,
    ):
        if isinstance(choices, str) != (values is not None):
            raise InputError("Finite takes a name with its values, or a list of configurations")
        configs = [{choices: value} for value in values or ()] if isinstance(choices, str) else list(choices)
        if not configs:
            raise InputError("a finite space needs at least one configuration, got none")
        try:
            self._configs: list[Config] = json.loads(json.dumps(configs, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"the configurations of a finite space must be plain JSON: {error}") from error
        if not all(isinstance(config, dict) for config in self._configs):
            raise InputError("every configuration of a finite space must be a dict of names and values")
        self._index = {config_hash(config): i for i, config in enumerate(self._configs)}
        if len(self._index) < len(configs):
            raise InputError(
                f"{len(configs)} configurations, {len(self._index)} of them different; leave out the copies"
            )
        found: dict[str, dict[str, Any]] = {}
        for config in self._configs:
            for name, value in config.items():
                found.setdefault(name, {})[json.dumps(value, sort_keys=True)] = value
        self.visibility = check_visibility(visibility, found)
        self._dimensions = tuple(
            free(name, "choice", self.visibility, choices=tuple(met.values())) for name, met in found.items()
        )
        self._needed = set(found).intersection(*self._configs)
        self._full = math.prod(len(d.choices) for d in self._dimensions) == len(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    @property
    def dimension(self) -> int:
        return len(self._configs)

    def dimensions(self) -> tuple[Dimension, ...]:
        """One per key of any configuration; a configuration need not have all keys."""
        return self._dimensions

    def check(self, config: Config) -> None:
        check_names(self.name, config, [d.name for d in self._dimensions], self._needed)
        try:
            known = config_hash(config) in self._index
        except TypeError:  # a value that is not JSON
            known = False
        if not known:
            shown = ", ".join(json.dumps(c) for c in self._configs[:5]) + (", ..." if len(self) > 5 else "")
            raise InputError(f"configuration {config} is not one of the {len(self)} of this space: {shown}")

    def candidates(self) -> list[Config]:
        return [dict(config) for config in self._configs]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` configurations in random order; each comes once before any repeats."""
        return [dict(self._configs[i]) for i in draw(len(self), count, rng)]

    def decisions(self) -> tuple[int, ...]:
        """One per dimension if all combinations are configurations; otherwise one choice among all."""
        sizes = tuple(len(d.choices) for d in self._dimensions)
        return sizes if self._full else (len(self),)

    def to_numbers(self, config: Config) -> tuple[int, ...]:
        self.check(config)
        return super().to_numbers(config) if self._full else (self._index[config_hash(config)],)

    def from_numbers(self, numbers: Sequence[int]) -> Config:
        return super().from_numbers(numbers) if self._full else dict(self._configs[numbers[0]])

    def encode(self, config: Config) -> Tensor:
        self.check(config)
        lam = torch.zeros(self.dimension, dtype=torch.float64)
        lam[self._index[config_hash(config)]] = 1
        return lam

    def decode(self, lam: Tensor) -> Config:
        """The configuration of the nearest vertex; ties go to the first."""
        check_lam(lam, self.dimension)
        return dict(self._configs[int(lam.argmax())])

    def project(self, lam: Tensor) -> Tensor:
        check_lam(lam, self.dimension)
        return project_simplex(lam)

    def spec(self) -> dict[str, Any]:
        given = {"visibility": dict(self.visibility)} if self.visibility else {}
        return {"name": self.name, "choices": self.candidates(), **given}


def draw(size: int, count: int, rng: np.random.Generator) -> list[int]:
    """``count`` of the numbers 0 .. size - 1 in random order; each comes once before any repeats."""
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += rng.choice(size, min(size, count - len(drawn)), replace=False).tolist()
    return drawn


def halves(space: Space, seed: int) -> tuple[list[Config], list[Config]]:
    """Split the candidates of a finite space into halves ``(condense, judge)``, each in the space's order.

    Candidates used to make a condensed set must not judge it. For an odd number, ``judge`` has one fewer.

    Args:
        space: A finite space of at least two candidates.
        seed: The user's seed; the stream has the role ``"halves"``.
    """
    candidates = space.candidates()
    if candidates is None:
        raise InputError(
            f"space '{space.name}' is not finite and has no halves; draw fresh samples to judge it"
        )
    if len(candidates) < 2:
        raise InputError(f"space '{space.name}' has {len(candidates)} candidate; two halves need at least 2")
    order = numpy_stream(seed, "halves").permutation(len(candidates))
    cut = (len(candidates) + 1) // 2
    condense, judge = sorted(order[:cut].tolist()), sorted(order[cut:].tolist())
    return [candidates[i] for i in condense], [candidates[i] for i in judge]
