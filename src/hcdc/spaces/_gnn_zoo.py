"""The finite space of graph neural networks in the paper's appendix: ten filters, two widths, two depths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.networks import ZooNetwork, check_lam
from hcdc.spaces._base import Space
from hcdc.spaces._dimension import Dimension
from hcdc.spaces._finite import draw, project_simplex
from hcdc.spaces._registry import register

FILTERS = ("gcn", "sage-mean", "sage-max", "gat", "gin-eps", "gin-0", "sgc-2", "sgc-3", "cheb-2", "cheb-3")
"""The paper's ten filters; for SGC and ChebNet the number is K."""

FURTHER = ("gdc-ppr", "gdc-heat", "transformer")
"""GCN with a graph diffusion (personalised PageRank or heat kernel) as P, and PyG's graph transformer."""

FAMILIES = (
    ("gcn", "sgc-2", "sgc-3", "gdc-ppr", "gdc-heat"), ("sage-mean", "sage-max"), ("gat", "transformer"),
    ("gin-eps", "gin-0"), ("cheb-2", "cheb-3"),
)  # fmt: skip
"""Filters that aggregate alike: smoothing, own weights beside the neighbours', attention, sums, Chebyshev."""

WIDTHS = (128, 256)
DEPTHS = (2, 4)


@register
@dataclass(frozen=True)
class GNNZoo(Space):
    """Forty graph neural networks: ``{"filter": ..., "width": 128 | 256, "depth": 2 | 4}``.

    The relaxation mixes filters: each layer of the relaxed network outputs sum_f lambda_f f(X) with lambda
    in the simplex, so a one-hot lambda is the network of that filter. Width and depth are not relaxed. They
    are the last two of lambda's H numbers (0 smaller, 1 larger) only so that ``decode`` can return every
    candidate; the relaxed network does not read them and has no hypergradient there.

    Attributes:
        further: Add graph diffusion and the graph transformer: twelve more networks.
        relax_width: Hidden width of the relaxed network.
        relax_depth: Number of layers of the relaxed network.
    """

    further: bool = False
    relax_width: int = 128
    relax_depth: int = 2

    name = "gnn-zoo"

    def __post_init__(self) -> None:
        if min(self.relax_width, self.relax_depth) < 1:
            raise InputError(
                "GNNZoo needs relax_width and relax_depth of at least 1, "
                f"got {self.relax_width} and {self.relax_depth}"
            )

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters, in the order of lambda."""
        return FILTERS + FURTHER if self.further else FILTERS

    @property
    def dimension(self) -> int:
        return len(self.filters) + 2

    def dimensions(self) -> tuple[Dimension, ...]:
        """Alignment sees the filter, which lambda mixes, but not width and depth."""
        return (
            Dimension("filter", "choice", choices=self.filters, read_by="network"),
            Dimension("width", "choice", choices=WIDTHS, visibility="copy", read_by="network"),
            Dimension("depth", "choice", choices=DEPTHS, visibility="copy", read_by="network"),
        )

    def candidates(self) -> list[Config]:
        """Ordered by filter, then width, then depth."""
        return [{"filter": f, "width": w, "depth": d} for f in self.filters for w in WIDTHS for d in DEPTHS]

    def sample(self, count: int, rng: np.random.Generator) -> list[Config]:
        """``count`` candidates in random order; each comes once before any repeats."""
        every = self.candidates()
        return [dict(every[i]) for i in draw(len(every), count, rng)]

    def encode(self, config: Config) -> Tensor:
        """One-hot filter, then width and depth as 0 or 1."""
        self.check(config)
        lam = torch.zeros(self.dimension, dtype=torch.float64)
        lam[self.filters.index(config["filter"])] = 1
        lam[-2], lam[-1] = WIDTHS.index(config["width"]), DEPTHS.index(config["depth"])
        return lam

    def decode(self, lam: Tensor) -> Config:
        """The nearest candidate."""
        check_lam(lam, self.dimension)
        width, depth = (lam[-2:] > 0.5).long().tolist()
        return {
            "filter": self.filters[int(lam[:-2].argmax())],
            "width": WIDTHS[width],
            "depth": DEPTHS[depth],
        }

    def project(self, lam: Tensor) -> Tensor:
        """Project the filter weights onto the simplex, and clamp width and depth to [0, 1]."""
        check_lam(lam, self.dimension)
        return torch.cat([project_simplex(lam[..., :-2]), lam[..., -2:].clamp(0, 1)], -1)

    def features(self, config: Config) -> list[float]:
        """lambda, and the family of the filter."""
        return super().features(config) + [float(config["filter"] in family) for family in FAMILIES]

    def spec(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "further": self.further,
            "relax_width": self.relax_width,
            "relax_depth": self.relax_depth,
        }

    def network(self, features: int, classes: int, config: Config | None = None) -> ZooNetwork:
        """The network of a candidate, or the mixture of filters if ``config`` is None."""
        if config is None:
            filters, width, depth = self.filters, self.relax_width, self.relax_depth
        else:
            self.check(config)
            filters, width, depth = (config["filter"],), config["width"], config["depth"]
        return ZooNetwork(filters, (features, *[width] * (depth - 1), classes))

    def parameter_count(self, config: Config, features: int, classes: int) -> int:
        return self.network(features, classes, config).parameter_count()
