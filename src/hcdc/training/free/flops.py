"""Multiply-adds of a forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hcdc.training.free._base import FreeScore, Untrained, register_free


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations called inside it; torch's `FlopCounterMode`, which also asks where, is slow."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # half a second, so only where it is needed

        super().__init__()  # type: ignore[no-untyped-call]
        self.total, self.formulas = 0, flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        formula = self.formulas.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=found)
        return found


@register_free
class Flops(FreeScore):
    """Multiply-adds per example in convolutions and matrix products (torch counts two per multiply-add).

    Two examples are run, since BatchNorm refuses one. A graph is run whole and divided by its nodes.
    """

    name = "flops"

    @torch.no_grad()
    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        few = candidate.first(2)
        with _Count() as count:
            few.outputs()
        return (count.total / 2 / len(few.inputs),)
