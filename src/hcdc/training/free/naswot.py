"""Log-determinant of the kernel of ReLU codes."""

from __future__ import annotations

import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.training.free._base import FreeScore, Untrained, register_free


def agreements(relu: Tensor) -> Tensor:
    """On how many units of a ReLU ``[n, ...]`` two examples are both active or both not: ``[n, n]``."""
    signs = (relu > 0).to(relu.dtype).flatten(1) * 2 - 1
    return (signs @ signs.t()).double() / 2 + signs.shape[1] / 2


@register_free
class NASWOT(FreeScore):
    """How well the ReLUs tell examples apart (Mellor et al., ICML 2021).

    An example's code has one bit per unit of each ReLU: whether it is active. K_ij counts the units on which
    examples i and j agree; the score is log |det K|. Equal codes score -inf. A ReLU that several layers read
    counts once per layer, as in the published networks, where each layer has its own.
    """

    name = "naswot"

    @torch.no_grad()
    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        relus = candidate.watched.relus
        if not relus:
            raise InputError("naswot compares ReLU codes, and this network has no ReLU; leave it out")
        kernel = torch.stack([agreements(relu) * max(1, readers) for relu, readers in relus]).sum(0)
        return (float(torch.linalg.slogdet(kernel).logabsdet),)
