"""DARTS-PT: a supernet, and a choice of operations by what their removal costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.settings import setting
from hcdc.networks import EDGES, OPERATIONS
from hcdc.search.searchers._registry import register_searcher
from hcdc.search.searchers._supernet import SupernetSearcher, SupernetSettings
from hcdc.spaces import genotype


@dataclass(frozen=True)
class DartsPTSettings(SupernetSettings):
    """Settings of `DartsPT`; defaults are the authors' for NAS-Bench-201 (Wang et al., 2021).

    Attributes:
        tune_epochs: Epochs of fine-tuning after each choice but the last, at a tenth of the learning rate.
    """

    name = "darts-pt"

    tune_epochs: int = setting(5, least=0)


@register_searcher
class DartsPT(SupernetSearcher):
    """Train the softmax mixture, then fix one edge after the other, in random order.

    At an edge, each operation in turn gets weight 0 (the others keep theirs), and the operation whose removal
    lowers the validation accuracy most is kept; ties go to the largest loss.
    """

    name = "darts-pt"
    Settings = DartsPTSettings
    settings: DartsPTSettings
    recordable = True

    def search(self) -> Config:
        s = self.settings
        self._kept = torch.zeros_like(self.alpha, requires_grad=False)  # one-hot at the edges that are fixed
        self.fit(s.epochs, s.lr, s.lr_end)
        for fixed, edge in enumerate(torch.randperm(len(EDGES), generator=self._chance).tolist()):
            self._kept[edge, self._needed(edge)] = 1
            if fixed + 1 < len(EDGES):
                self.fit(s.tune_epochs, s.lr / 10, s.lr / 10)
        return genotype(self._kept.flatten().cpu())

    def mixture(self, progress: float) -> Tensor:
        free = 1 - self._kept.sum(-1, keepdim=True)
        return (self._kept + free * self.alpha.softmax(-1)).flatten()

    @torch.no_grad()
    def _needed(self, edge: int) -> int:
        """The operation at ``edge`` that the supernet needs most."""
        found = []
        for operation in range(len(OPERATIONS)):
            lam = self.mixture(1.0).clone()
            lam[edge * len(OPERATIONS) + operation] = 0
            accuracy, loss = self._validate(lam)
            found.append((accuracy, -loss, operation))
        return min(found)[2]

    def _validate(self, lam: Tensor) -> tuple[float, float]:
        """Accuracy and loss on the validation set, batch by batch."""
        totals = torch.zeros(2, dtype=torch.float64)
        every = torch.arange(len(self.val), device=self.device)
        for start in range(0, len(self.val), self.settings.batch):
            index = every[start : start + self.settings.batch]
            some = self.task.subset(self.val, index)
            outputs = self.net.forward(self.params, lam, self.task.inputs(some.x))
            both = self.task.score(outputs, some), self.task.loss(outputs, some)
            totals += len(index) * torch.stack(both).double().cpu()
        accuracy, loss = (totals / len(self.val)).tolist()
        return accuracy, loss


@dataclass(frozen=True)
class DartsPTSmallSettings(DartsPTSettings):
    """As `DartsPTSettings`, with one cell per stage."""

    name = "darts-pt-small"

    cells: int = setting(1, least=1, most=1)


@register_searcher
class DartsPTSmall(DartsPT):
    """DARTS-PT on a supernet with one cell per stage."""

    name = "darts-pt-small"
    Settings = DartsPTSmallSettings
    settings: DartsPTSmallSettings
