"""Products: a configuration combines values from several spaces."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.networks import Dropout, Network, Params, check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._candidate import Candidate
from hcdc.spaces._dimension import Dimension, check_names
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

    def with_dropout(self, dropout: Dropout) -> Self:
        return dataclasses.replace(self, network=self.network.with_dropout(dropout))

    def forward(self, params: Params, lam: Tensor, inputs: Any) -> Tensor:
        return self.network.forward(params, lam[self.part], inputs)


@register
class Product(Space):
    """The product of several spaces: lambdas are concatenated, configurations merged.

    It is finite if every part is. At most one part may build a network, which sees its own slice of lambda.
    ``Product(NASBench201(), Training(["lr"]))`` searches cells and their learning rates.

    Args:
        spaces: Two or more spaces whose configurations have no name in common.
    """

    name = "product"

    def __init__(self, *spaces: Space):
        if len(spaces) < 2:
            raise InputError(f"a product needs at least 2 spaces, got {len(spaces)}")
        self.spaces = spaces
        self.batched = all(space.batched for space in spaces)
        self.plain = any(s.plain for s in spaces) and all(s.network(1, 2) is None for s in spaces)
        self._keys = [{d.name for d in space.dimensions()} for space in spaces]
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

    def dimensions(self) -> tuple[Dimension, ...]:
        return tuple(d for space in self.spaces for d in space.dimensions())

    def check(self, config: Config) -> None:
        """Each part checks its own values."""
        for space, part in zip(self.spaces, self._split(config)):
            space.check(part)

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

    def counterpart(self, config: Config) -> Config:
        return _merge([s.counterpart(part) for s, part in zip(self.spaces, self._split(config))])

    def decisions(self) -> tuple[int, ...] | None:
        each = [space.decisions() for space in self.spaces]
        found = [sizes for sizes in each if sizes is not None]
        return tuple(itertools.chain(*found)) if len(found) == len(each) else None

    def to_numbers(self, config: Config) -> tuple[int, ...]:
        parts = zip(self.spaces, self._split(config))
        return tuple(number for space, part in parts for number in space.to_numbers(part))

    def from_numbers(self, numbers: Sequence[int]) -> Config:
        left, parts = list(numbers), []
        for space in self.spaces:
            count = len(space.decisions() or ())
            parts.append(space.from_numbers(left[:count]))
            left = left[count:]
        return _merge(parts)

    def neighbours(self, config: Config) -> list[Config]:
        """The neighbours within each part, the other parts unchanged."""
        parts = self._split(config)
        return [
            _merge([*parts[:k], near, *parts[k + 1 :]])
            for k, space in enumerate(self.spaces)
            for near in space.neighbours(parts[k])
        ]

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """Mutate one part, chosen at random by its number of dimensions."""
        parts = self._split(config)
        sizes = np.array([len(part) for part in parts])
        k = int(rng.choice(len(parts), p=sizes / sizes.sum()))
        return _merge([*parts[:k], self.spaces[k].mutate(parts[k], rng), *parts[k + 1 :]])

    def _split(self, config: Config) -> list[Config]:
        """The values of each part; refuse unknown keys here, and leave missing ones to the parts."""
        check_names(self.name, config, [d.name for d in self.dimensions()], ())
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
        """The network of the part that builds one.

        A relaxed network, and any network of a batched part, reads its slice of lambda. Other candidates do
        not read lambda, so they are the part's own network.
        """
        if config is None:
            return self._one([space.network(features, classes) for space in self.spaces])
        parts = zip(self.spaces, self._split(config))
        return self._one([space.network(features, classes, part) for space, part in parts], relaxed=False)

    def _one(self, networks: Sequence[Network | None], relaxed: bool = True) -> Network | None:
        """The only network among the parts, with its slice of lambda if it reads lambda."""
        built = [(k, network) for k, network in enumerate(networks) if network is not None]
        if len(built) > 1:
            raise InputError(f"{len(built)} parts of the product build a network; at most one may")
        for k, network in built:
            reads = relaxed or self.spaces[k].batched
            return _PartNetwork(network, self._slices[k]) if reads else network
        return None

    def candidate(self, config: Config, features: int, classes: int) -> Candidate:
        """The network of the part that builds one, and the recipe differences of all parts."""
        parts = zip(self.spaces, self._split(config))
        each = [space.candidate(part, features, classes) for space, part in parts]
        network = self._one([candidate.network for candidate in each], relaxed=False)
        recipe = _merge([dict(candidate.recipe) for candidate in each])
        return Candidate(config, network, recipe, self._shape(config, recipe))

    def features(self, config: Config) -> list[float]:
        """The features of the parts, concatenated."""
        return [v for space, part in zip(self.spaces, self._split(config)) for v in space.features(part)]

    def parameter_count(self, config: Config, features: int, classes: int) -> int | None:
        parts = zip(self.spaces, self._split(config))
        counts = [space.parameter_count(part, features, classes) for space, part in parts]
        return next((count for count in counts if count is not None), None)


def _merge(parts: Sequence[Config]) -> Config:
    return {key: value for part in parts for key, value in part.items()}
