"""Adam as an object on plain tensors (torch.optim loads its compiler for seconds, and hides its state)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hcdc.networks import Params
from hcdc.training._many import adam_step


class Adam:
    """Adam with its usual constants on named tensors that it changes in place; its state is plain tensors.

    Args:
        tensors: What is learned.
        lr: Learning rate.
        weight_decay: Coefficient w of ``w/2 ||t||^2``, added to what is minimised.
    """

    def __init__(self, tensors: Params, lr: float, weight_decay: float = 0.0):
        self.tensors, self.lr, self.weight_decay, self.steps = tensors, lr, weight_decay, 0
        self.first = {name: torch.zeros_like(t) for name, t in tensors.items()}
        self.second = {name: torch.zeros_like(t) for name, t in tensors.items()}

    @torch.no_grad()
    def step(self, *gradients: torch.Tensor) -> None:
        """One step; gradients in the order of the tensors."""
        named = dict(zip(self.tensors, gradients, strict=True))
        if self.weight_decay:
            named = {name: g.add(self.tensors[name], alpha=self.weight_decay) for name, g in named.items()}
        self.steps += 1
        adam_step(self.tensors, named, self.first, self.second, self.steps, self.lr)

    @contextmanager
    def differentiated(self) -> Iterator[list[torch.Tensor]]:
        """Inside the block gradients can be taken of the tensors, which are yielded in order."""
        for t in self.tensors.values():
            t.requires_grad_()
        try:
            yield list(self.tensors.values())
        finally:
            for t in self.tensors.values():
                t.requires_grad_(False)
