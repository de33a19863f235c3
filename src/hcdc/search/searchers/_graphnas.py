"""The controller of GraphNAS."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hcdc.core.configs import Config
from hcdc.core.seeds import stream
from hcdc.core.settings import setting
from hcdc.search.searchers._base import Searcher, SearcherSettings, discrete
from hcdc.search.searchers._registry import register_searcher
from hcdc.spaces import Space

RECENT = 10
"""Advantages are scaled by the largest among this many."""


@dataclass(frozen=True)
class GraphNASSettings(SearcherSettings):
    """Settings of the controller; defaults are the authors' (Gao et al., 2020).

    Attributes:
        hidden: Units of the LSTM, and size of the embeddings.
        temperature: Divides logits.
        tanh: Logits are ``tanh * tanh(logits)``, so that no option dies out.
        lr: Learning rate of Adam.
        entropy: Weight of the entropy that is added to the reward.
        momentum: Of the moving average of rewards that serves as baseline.
        scale: Largest advantage, after scaling.
    """

    name = "graphnas"

    hidden: int = setting(100, least=1)
    temperature: float = setting(5.0, above=0)
    tanh: float = setting(2.5, above=0)
    lr: float = setting(3.5e-4, above=0)
    entropy: float = setting(1e-4, least=0)
    momentum: float = setting(0.95, least=0, below=1)
    scale: float = setting(0.5, above=0)


@register_searcher
class GraphNASController(Searcher):
    """An LSTM that makes one decision after the other, trained by REINFORCE.

    Each decision sees the embedding of the one before. Decisions of one kind (``heads1``, ``heads2``) share a
    decoder and embeddings. Advantages are divided by the largest recent one in absolute value; the authors
    divide by the largest with its sign, which turns the gradient round when all are negative.
    """

    name = "graphnas"
    Settings = GraphNASSettings
    settings: GraphNASSettings

    def __init__(self, space: Space, seed: int = 0, **settings: Any):
        sizes = discrete(space, self.name)
        super().__init__(space, seed, **settings)
        named = [d.name.rstrip("0123456789") for d in space.dimensions()]
        names = named if len(named) == len(sizes) else ["choice"] * len(sizes)
        self._kinds = [f"{name}-{size}" for name, size in zip(names, sizes)]
        hidden, known = self.settings.hidden, dict(zip(self._kinds, sizes))
        self._cell = nn.LSTMCell(hidden, hidden)
        self._embeddings = nn.ModuleDict({kind: nn.Embedding(size, hidden) for kind, size in known.items()})
        self._decoders = nn.ModuleDict({kind: nn.Linear(hidden, size) for kind, size in known.items()})
        modules = nn.ModuleList([self._cell, self._embeddings, self._decoders])
        generator = stream(seed, "search", self.name, "controller")
        for name, parameter in modules.named_parameters():
            bias = name.startswith("2.") and name.endswith(".bias")
            start = torch.rand(parameter.shape, generator=generator) * 0.2 - 0.1
            parameter.data = torch.zeros_like(start) if bias else start
        self._adam = torch.optim.Adam(modules.parameters(), lr=self.settings.lr)
        self._baseline: Tensor | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)

    def propose(self) -> Config:
        rng = self.stream()

        def draw(place: int, log_p: Tensor) -> int:
            p = log_p.detach().double().exp().numpy()
            return int(rng.choice(len(p), p=p / p.sum()))

        return self.space.from_numbers(self._walk(draw)[0])

    def _walk(self, choose: Callable[[int, Tensor], int]) -> tuple[list[int], Tensor, Tensor]:
        """Make all decisions by ``choose``: their numbers, log probabilities and entropies ``[D]``."""
        hidden = self.settings.hidden
        inputs, state = torch.zeros(1, hidden), (torch.zeros(1, hidden), torch.zeros(1, hidden))
        numbers, chosen, entropies = [], [], []
        for place, kind in enumerate(self._kinds):
            state = self._cell(inputs, state)
            logits = self._decoders[kind](state[0])[0] / self.settings.temperature
            log_p = (self.settings.tanh * torch.tanh(logits)).log_softmax(0)
            number = choose(place, log_p)
            numbers.append(number)
            chosen.append(log_p[number])
            entropies.append(-(log_p.exp() * log_p).sum())
            inputs = self._embeddings[kind](torch.tensor([number]))
        return numbers, torch.stack(chosen), torch.stack(entropies)

    def learn(self, config: Config, score: float) -> None:
        found = self.reward(score)
        if found is None:
            return
        told = self.space.to_numbers(config)
        _, log_p, entropies = self._walk(lambda place, _: told[place])
        rewards = found + self.settings.entropy * entropies.detach()
        keep = self.settings.momentum
        self._baseline = rewards if self._baseline is None else keep * self._baseline + (1 - keep) * rewards
        advantage = rewards - self._baseline
        self._recent.append(float(advantage.abs().max()))
        largest = max(self._recent)
        if largest > 0:
            advantage = self.settings.scale / largest * advantage
        self._adam.zero_grad()
        (-log_p * advantage).sum().backward()  # type: ignore[no-untyped-call]
        self._adam.step()
