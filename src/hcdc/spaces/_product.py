"""Products: a configuration has a value from each of several spaces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.networks import Network, Params, check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._finite import draw
from hcdc.spaces._registry import from_spec, register


@dataclass(frozen=True)
class _PartNetwork(Network):
    """The network of one part, which reads its own slice of lambda."""

    network: Network
    part: slice

    @property
    def takes(self) -> str:  # type: ignore[override]
        return self.network.takes

    def prepare(self, inputs: Any) -> None:
        self.network.prepare(inputs)

    def init(self, generator: torch.Generator) -> Params:
        return self.network.init(generator)

    def forward(self, params: Params, lam: Tensor, inputs: Any) -> Tensor:
        return self.network.forward(params, lam[self.part], inputs)


@register
class Product(Space):
    """The product of several spaces: lambda is the concatenation of theirs, a configuration the union.

    Finite where every part is. At most one part may build a network; it sees its own slice of lambda.

    Args:
        spaces: Two or more spaces whose configurations have no name in common.
    """

    name = "product"

    def __init__(self, *spaces: Space):
        if len(spaces) < 2:
            raise InputError(f"a product needs at least 2 spaces, got {len(spaces)}")
        self.spaces = spaces
        self.batched = all(space.batched for space in spaces)
        self._keys = [_names(space) for space in spaces]
        for (i, first), (j, second) in itertools.combinations(enumerate(self._keys), 2):
            if clash := sorted(first & second):
                raise InputError(
                    f"spaces {i} and {j} of a product both have a value named '{clash[0]}'; rename one"
                )
        ends = list(itertools.accumulate(space.dimension for space in spaces))
        self._slices = [slice(end - space.dimension, end) for end, space in zip(ends, spaces)]
        counts = [space.candidates() for space in spaces]
        self._finite = None if any(c is None for c in counts) else [c for c in counts if c is not None]

    @classmethod
    def from_settings(cls, spaces: Sequence[Mapping[str, Any]]) -> Product:
        """From the specifications of the parts."""
        return cls(*(from_spec(spec) for spec in spaces))

    @property
    def dimension(self) -> int:
        return self._slices[-1].stop

    def candidates(self) -> list[Config] | None:
        if self._finite is None:
            return None
        return [_merge(parts) for parts in itertools.product(*self._finite)]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        if self._finite is None:
            return [_merge([space.sample(1, rng)[0] for space in self.spaces]) for _ in range(count)]
        shape = tuple(len(candidates) for candidates in self._finite)
        rows = [np.unravel_index(i, shape) for i in draw(math.prod(shape), count, rng)]
        return [_merge([c[i] for c, i in zip(self._finite, row)]) for row in rows]

    def _split(self, config: Config) -> list[Config]:
        if unknown := sorted(set(config) - set().union(*self._keys)):
            allowed = ", ".join(sorted(set().union(*self._keys)))
            raise InputError(
                f"configuration value '{unknown[0]}' belongs to no part of the product; it has: {allowed}"
            )
        return [{key: value for key, value in config.items() if key in keys} for keys in self._keys]

    def encode(self, config: Config) -> Tensor:
        return torch.cat([space.encode(part) for space, part in zip(self.spaces, self._split(config))])

    def decode(self, lam: Tensor) -> Config:
        check_lam(lam, self.dimension)
        return _merge([space.decode(lam[part]) for space, part in zip(self.spaces, self._slices)])

    def project(self, lam: Tensor) -> Tensor:
        check_lam(lam, self.dimension)
        return torch.cat([s.project(lam[..., part]) for s, part in zip(self.spaces, self._slices)], dim=-1)

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "spaces": [space.spec() for space in self.spaces]}

    def network(self, features: int, classes: int, config: Config | None = None) -> Network | None:
        parts: Sequence[Config | None] = [None] * len(self.spaces) if config is None else self._split(config)
        built = [
            _PartNetwork(network, lam)
            for space, part, lam in zip(self.spaces, parts, self._slices)
            if (network := space.network(features, classes, part)) is not None
        ]
        if len(built) > 1:
            raise InputError(f"{len(built)} parts of the product build a network; at most one may")
        return built[0] if built else None


def _names(space: Space) -> set[str]:
    """The names that configurations of a space have."""
    candidates = space.candidates()
    if candidates is None:
        candidates = [space.decode(space.project(torch.zeros(space.dimension, dtype=torch.float64)))]
    return set().union(*candidates)


def _merge(parts: Sequence[Config]) -> Config:
    return {key: value for part in parts for key, value in part.items()}
