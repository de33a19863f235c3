"""Random float64 instances for the theory tests, drawn from a seed that hypothesis chooses."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from hcdc.theory import LeastSquares

SEEDS = st.integers(0, 2**32 - 1)


class Draw:
    """Normal tensors, one after another."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def regression(self, rows: int, features: int) -> LeastSquares:
        return LeastSquares(self(rows, features), self(rows))

    def graph(self, nodes: int) -> Tensor:
        """A symmetric 0/1 adjacency with edge probability .3."""
        edges = torch.rand(nodes, nodes, generator=self.generator, dtype=torch.float64) < 0.3
        upper = edges.triu(1).double()
        return upper + upper.mT
