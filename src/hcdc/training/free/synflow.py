"""Synaptic flow."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from hcdc.training.free._base import FreeScore, Untrained, register_free

NORMS = frozenset({F.batch_norm, F.instance_norm, F.layer_norm, F.group_norm, F.rms_norm, torch.batch_norm})


class WithoutNorms(TorchFunctionMode):
    """Turns normalisation off: torch's norms return their input, and ``var_mean`` 1 and 0."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in NORMS:
            return args[0]
        found = func(*args, **(kwargs or {}))
        return tuple(map(torch.full_like, found, (1.0, 0.0))) if func is torch.var_mean else found


@register_free
class Synflow(FreeScore):
    """log sum |theta dR/dtheta| (Tanaka et al., NeurIPS 2020; as a score: Abdelfattah et al., ICLR 2021).

    R is the sum of the logits of an input of ones, with all parameters replaced by their absolute values and
    normalisation off; otherwise it would undo what the weights do. The outer sum is over weights, not over
    biases and scales. In float64, since R grows exponentially with depth. -inf if nothing flows, as through
    graph filters with negative coefficients.
    """

    name = "synflow"

    def measure(self, candidate: Untrained) -> tuple[float, ...]:
        one = candidate.first(1).double()
        params = {name: p.abs().requires_grad_() for name, p in one.params.items()}
        with WithoutNorms():
            total = one.outputs(torch.ones_like(one.inputs), params).sum()
        weights = [p for p in params.values() if p.dim() > 1]
        gradients = torch.autograd.grad(total, weights, materialize_grads=True)
        flow = torch.stack([(p * g).abs().sum() for p, g in zip(weights, gradients)]).sum()
        return (float(flow.detach().log()),)
