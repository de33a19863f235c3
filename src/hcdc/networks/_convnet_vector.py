"""The parameters of a ConvNet as one vector: initialisation in place and the gradient of the loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.networks._convnet import ConvNet
from hcdc.networks._convnet_pass import Pass, pays


def compute_type(device: torch.device, like: torch.dtype = torch.float32) -> torch.dtype:
    """Type that convolutions compute in: bfloat16 on CUDA, elsewhere the type of the data."""
    return torch.bfloat16 if device.type == "cuda" else like


class Initialiser:
    """Writes fresh parameters in place, distributed as in `ConvNet.init`.

    Args:
        net: The network.
        device: Device of its parameter vector.

    Attributes:
        length: P, the number of parameters.
    """

    def __init__(self, net: ConvNet, device: torch.device | str):
        bound, start = [], []
        for name, shape in net.shapes().items():
            fixed = name.endswith((".scale", ".shift"))
            full = torch.ones(math.prod(shape))
            bound.append(full * (0.0 if fixed else 1 / math.sqrt(net.fan_in(name))))
            start.append(full * float(name.endswith(".scale")))
        self.bound, self.start = torch.cat(bound).to(device), torch.cat(start).to(device)
        self.length = len(self.bound)

    def write(self, vector: Tensor, u: Tensor) -> None:
        """Write parameters into ``vector``, from uniform numbers ``u`` ``[P]`` in [0, 1)."""
        torch.addcmul(self.start, 2 * u - 1, self.bound, out=vector)


def loss_gradient(
    net: ConvNet, vector: Tensor, x: Tensor, y: Tensor, dtype: torch.dtype, weight: Tensor | None = None
) -> Tensor:
    """Gradient ``[P]`` of the mean cross-entropy, or of a weighted sum; by autograd if that is faster.

    Args:
        net: The network.
        vector: Its parameters ``[P]``.
        x, y: Images ``[n, c, h, w]`` and labels ``[n]``.
        dtype: Type that convolutions compute in.
        weight: Weight of each image in the sum ``[n]``; None means the mean.
    """
    if pays(vector.device):
        with torch.no_grad():
            each = vector.new_full((len(x),), 1 / len(x)) if weight is None else weight
            return net.flatten(Pass(net, net.views(vector), x, y, each, dtype).gradients())
    leaf = vector.detach().requires_grad_()
    with torch.enable_grad():
        outputs = net.logits(net.views(leaf.to(dtype)), x)
        if weight is None:
            loss = F.cross_entropy(outputs, y)
        else:
            loss = (F.cross_entropy(outputs, y, reduction="none") * weight).sum()
    return torch.autograd.grad(loss, leaf)[0]
