"""REINFORCE without parameter sharing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.seeds import stream
from hcdc.core.settings import setting
from hcdc.search.searchers._base import Searcher, SearcherSettings, discrete
from hcdc.search.searchers._registry import register_searcher
from hcdc.spaces import Space


@dataclass(frozen=True)
class ReinforceSettings(SearcherSettings):
    """Settings of `Reinforce`.

    Attributes:
        lr: Learning rate of Adam. Published scripts use .001, .01 and .5, so try several.
        momentum: Of the moving average of rewards that serves as baseline.
    """

    name = "reinforce"

    lr: float = setting(0.1, above=0)
    momentum: float = setting(0.9, least=0, below=1)


@register_searcher
class Reinforce(Searcher):
    """Independent categorical distributions, one per decision, trained by REINFORCE (as in NAS-Bench-201).

    The loss is -log p(config) (reward - baseline). The baseline is the bias-corrected moving average of
    rewards, with the current one in it. The answer is the best configuration seen, not the mode.
    """

    name = "reinforce"
    Settings = ReinforceSettings
    settings: ReinforceSettings

    def __init__(self, space: Space, seed: int = 0, **settings: Any):
        sizes = discrete(space, self.name)
        super().__init__(space, seed, **settings)
        generator = stream(seed, "search", self.name, "logits")
        self._logits = [
            (1e-3 * torch.randn(size, generator=generator, dtype=torch.float64)).requires_grad_()
            for size in sizes
        ]
        self._adam = torch.optim.Adam(self._logits, lr=self.settings.lr)
        self._mean, self._count = 0.0, 0

    @property
    def probabilities(self) -> list[Tensor]:
        """The probabilities of the options of each decision."""
        return [logits.detach().softmax(0) for logits in self._logits]

    def propose(self) -> Config:
        rng = self.stream()
        return self.space.from_numbers([int(rng.choice(len(p), p=p.numpy())) for p in self.probabilities])

    def learn(self, config: Config, score: float) -> None:
        reward, keep = self.reward(score), self.settings.momentum
        if reward is None:
            return
        self._mean, self._count = keep * self._mean + (1 - keep) * reward, self._count + 1
        baseline = self._mean / (1 - keep**self._count)
        chosen = zip(self._logits, self.space.to_numbers(config))
        loss = -torch.stack([logits.log_softmax(0)[n] for logits, n in chosen]).sum() * (reward - baseline)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
