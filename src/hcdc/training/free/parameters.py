"""The number of parameters."""

from __future__ import annotations

from hcdc.training.free._base import FreeScore, Untrained, register_free


@register_free
class Parameters(FreeScore):
    """How many numbers a candidate learns."""

    name = "parameters"

    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        return (float(sum(p.numel() for p in candidate.params.values())),)
