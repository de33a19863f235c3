"""Adam on plain tensors, with a state that can be saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hcdc.core.checkpoint import Resumable
from hcdc.networks import Params
from hcdc.training._optimizers import EPSILON, FIRST, SECOND, adam_step

FUSED = frozenset({"cpu", "cuda"})
"""Devices on which torch takes a whole step in one call."""


class Adam(Resumable):
    """Adam with its usual constants, updating named tensors in place; its state is plain tensors.

    Args:
        learned: The tensors to update, by name.
        lr: Learning rate.
        weight_decay: Coefficient w of ``w/2 ||t||^2``, added to the objective.
    """

    def __init__(self, learned: Params, lr: float, weight_decay: float = 0.0):
        self.learned, self.lr, self.weight_decay, self.steps = learned, lr, weight_decay, 0
        self.first = {name: torch.zeros_like(t) for name, t in learned.items()}
        self.second = {name: torch.zeros_like(t) for name, t in learned.items()}
        self._values = [t.detach() for t in learned.values()]  # a step is no part of any derivative
        self._number = [torch.zeros((), device=t.device) for t in self._values]

    def tensors(self) -> dict[str, torch.Tensor]:
        kinds = (("value", self.learned), ("first", self.first), ("second", self.second))
        return {f"{kind}.{name}": t for kind, tensors in kinds for name, t in tensors.items()}

    def values(self) -> dict[str, int]:
        return {"steps": self.steps}

    def restore(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> bool:
        self.steps = int(values["steps"])
        return super().restore(tensors, values)

    def step(self, *gradients: torch.Tensor) -> None:
        """One step; gradients come in the order of the tensors."""
        self.steps += 1
        if not hasattr(torch, "_fused_adam_") or any(t.device.type not in FUSED for t in self._values):
            self._plain_step(gradients)
            return
        for number in self._number:
            number.fill_(self.steps)
        alike = [  # the fused step takes every array in the order of its memory
            g if g.stride() == t.stride() else torch.empty_like(t).copy_(g)
            for g, t in zip(gradients, self._values, strict=True)
        ]
        torch._fused_adam_(
            self._values, alike, list(self.first.values()), list(self.second.values()), [], self._number,
            lr=self.lr, beta1=1 - FIRST, beta2=1 - SECOND, weight_decay=self.weight_decay, eps=EPSILON,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    def _plain_step(self, gradients: Sequence[torch.Tensor]) -> None:
        theta = dict(zip(self.learned, self._values))
        decayed = {
            name: g.detach() + self.weight_decay * theta[name]
            for name, g in zip(theta, gradients, strict=True)
        }
        adam_step(theta, decayed, self.first, self.second, self.steps, self.lr)

    @contextmanager
    def differentiated(self) -> Iterator[list[torch.Tensor]]:
        """Within this block the tensors, yielded in order, require gradients."""
        for t in self.learned.values():
            t.requires_grad_()
        try:
            yield list(self.learned.values())
        finally:
            for t in self.learned.values():
                t.requires_grad_(False)
