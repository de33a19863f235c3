"""Correlation of the input Jacobian between examples."""

from __future__ import annotations

import math

import torch

from hcdc.training.free._base import FreeScore, Untrained, register_free

EPSILON = 1e-5


@register_free
class Jacov(FreeScore):
    """How little the examples' Jacobians correlate (Mellor et al., arXiv 2006.04647, version 1).

    Row i of J ``[n, d]`` is the gradient of the summed logits in example i. With v the eigenvalues of the
    correlation matrix of the rows, the score is -sum(log(v + e) + 1 / (v + e)), at most -n. If a row is
    constant, as in a network that ignores its inputs, there is no correlation and the score is -inf.
    """

    name = "jacov"

    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        seen = candidate.watched
        if not seen.outputs.requires_grad:
            return (-math.inf,)
        (jacobian,) = torch.autograd.grad(seen.outputs.sum(), seen.inputs, retain_graph=True)
        correlation = torch.corrcoef(jacobian.flatten(1).double())
        if not bool(correlation.isfinite().all()):
            return (-math.inf,)
        v = torch.linalg.eigvalsh(correlation) + EPSILON
        return (-float((v.log() + 1 / v).sum()),)
