"""The search space of GraphNAS: two layers of an attention, an aggregator, an activation and heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError
from hcdc.networks import ACTIVATIONS, AGGREGATORS, ATTENTIONS, GraphNASLayer, GraphNASNetwork, check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import Dimension
from hcdc.spaces._finite import project_simplex
from hcdc.spaces._registry import register

HEADS = (1, 2, 4, 6, 8, 16)
HIDDEN = (4, 8, 16, 32, 64, 128, 256)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "attention1": ATTENTIONS,
    "aggregator1": AGGREGATORS,
    "activation1": tuple(ACTIVATIONS),
    "heads1": HEADS,
    "hidden1": HIDDEN,
    "attention2": ATTENTIONS,
    "aggregator2": AGGREGATORS,
    "activation2": tuple(ACTIVATIONS),
    "heads2": HEADS,
}
SIZES = [len(options) for options in OPTIONS.values()]


@register
@dataclass(frozen=True)
class GraphNAS(Space):
    """The 12,644,352 two-layer networks of GraphNAS (Gao et al., 2020).

    The original has a tenth choice, the width of the last layer, which the number of classes overwrites. The
    space is too large to enumerate, so ``candidates`` is None. lambda ``[57]`` holds the weights of the
    options of each choice, one-hot at a configuration; there is no relaxed network.
    """

    name = "graphnas"

    @property
    def dimension(self) -> int:
        return sum(SIZES)

    def dimensions(self) -> tuple[Dimension, ...]:
        return tuple(
            Dimension(name, "choice", choices=options, visibility="copy", read_by="network")
            for name, options in OPTIONS.items()
        )

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` different configurations, uniform in each choice."""
        found: dict[str, Config] = {}
        while len(found) < count:
            config = self.from_numbers(rng.integers(SIZES).tolist())
            found.setdefault(config_hash(config), config)
        return list(found.values())

    def encode(self, config: Config) -> Tensor:
        """One-hot for each choice."""
        numbers = self.to_numbers(config)
        return torch.cat([torch.eye(size, dtype=torch.float64)[n] for size, n in zip(SIZES, numbers)])

    def decode(self, lam: Tensor) -> Config:
        """The option with the largest weight for each choice."""
        check_lam(lam, self.dimension)
        return self.from_numbers([int(weights.argmax()) for weights in torch.split(lam, SIZES, -1)])

    def project(self, lam: Tensor) -> Tensor:
        """Project the weights of each choice onto their simplex."""
        check_lam(lam, self.dimension)
        return torch.cat([project_simplex(weights) for weights in torch.split(lam, SIZES, -1)], -1)

    def spec(self) -> dict[str, Any]:
        return {"name": self.name}

    def network(self, features: int, classes: int, config: Config | None = None) -> GraphNASNetwork:
        """The network of a configuration; there is no relaxed one."""
        if config is None:
            raise InputError(
                "space 'graphnas' has no relaxed network, so there are no hypergradients in lambda; choose "
                "val_method 'probes', 'weighted', 'same', 'random' or 'real'"
            )
        self.check(config)
        values = [*(config[name] for name in OPTIONS), classes]
        layers = GraphNASLayer(*values[:5]), GraphNASLayer(*values[5:])
        return GraphNASNetwork(layers, features)

    def parameter_count(self, config: Config, features: int, classes: int) -> int:
        return self.network(features, classes, config).parameter_count()
