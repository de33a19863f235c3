"""GDAS: a differentiable search that samples one cell per step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.settings import setting
from hcdc.networks import CellNetwork, gumbel_noise, gumbel_one_hot, split_edges
from hcdc.search.searchers._registry import register_searcher
from hcdc.search.searchers._supernet import SupernetSearcher, SupernetSettings
from hcdc.spaces import genotype


@dataclass(frozen=True)
class GDASSettings(SupernetSettings):
    """Settings of `GDAS`; defaults are the authors' for NAS-Bench-201 (Dong and Yang, 2019).

    Attributes:
        tau, tau_end: First and last temperature, linear in the epochs.
    """

    name = "gdas"

    epochs: int = setting(250, least=1)
    weight_decay: float = setting(5e-4, least=0)
    tau: float = setting(10.0, above=0)
    tau_end: float = setting(0.1, above=0)


@register_searcher
class GDAS(SupernetSearcher):
    """Draw a cell by Gumbel noise in every step, and take alpha's gradient through the soft sample.

    A weight step runs only the drawn operations. A step of alpha runs all of them, so its gradient is exact
    for the soft sample; the authors run only the drawn ones there too. The answer is the largest logit at
    each edge.
    """

    name = "gdas"
    Settings = GDASSettings
    settings: GDASSettings

    def search(self) -> Config:
        self.fit(self.settings.epochs, self.settings.lr, self.settings.lr_end)
        return genotype(self.alpha.detach().flatten().cpu())

    def mixture(self, progress: float) -> Tensor:
        tau = self.settings.tau + (self.settings.tau_end - self.settings.tau) * progress
        return gumbel_one_hot(self.alpha.flatten(), tau, gumbel_noise(self._chance))

    def network_at(self, lam: Tensor) -> CellNetwork:
        """The drawn cell alone: at a one-hot lambda it computes what the supernet does."""
        return dataclasses.replace(self.net, cell=tuple(split_edges(lam).argmax(-1).tolist()))
