"""The parameters of a ConvNet as one vector: initialisation in place, gradient and products of the loss."""

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
    net: ConvNet,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    dtype: torch.dtype,
    weight: Tensor | None = None,
    fixed: bool = False,
) -> Tensor:
    """Gradient ``[P]`` of the mean cross-entropy, or of a weighted sum; by autograd if that is faster.

    Args:
        net: The network.
        vector: Its parameters ``[P]``.
        x, y: Images ``[n, c, h, w]`` and labels ``[n]``.
        dtype: Type that convolutions compute in.
        weight: Weight of each image in the sum ``[n]``; None means the mean.
        fixed: Whether later calls have as many images, see `Features`.
    """
    if pays(vector.device):
        with torch.no_grad():
            each = _mean_weights(vector, x) if weight is None else weight
            return net.flatten(Pass(net, net.views(vector), x, y, each, dtype, fixed).gradients())
    leaf = vector.detach().requires_grad_()
    return torch.autograd.grad(_loss(net, leaf, x, y, dtype, weight), leaf)[0]


def _mean_weights(vector: Tensor, x: Tensor) -> Tensor:
    return vector.new_full((len(x),), 1 / len(x))


@torch.enable_grad()
def _loss(
    net: ConvNet, leaf: Tensor, x: Tensor, y: Tensor, dtype: torch.dtype, weight: Tensor | None = None
) -> Tensor:
    """The loss of `loss_gradient`, with its graph."""
    outputs = net.logits(net.views(leaf.to(dtype)), x)
    if weight is None:
        return F.cross_entropy(outputs, y)
    return (F.cross_entropy(outputs, y, reduction="none") * weight).sum()


def loss_products(
    net: ConvNet, vector: Tensor, along: Tensor, x: Tensor, y: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives of the mean cross-entropy L(theta, x) and of its gradients along a direction of theta.

    Forward over reverse mode: with g = dL/dtheta and v = ``along``, the derivatives along v of L, g and dL/dx
    are <g, v>, H v and d<g, v>/dx. On CUDA this is compiled for one number of images; elsewhere autograd
    differentiates twice, which is faster there.

    Args:
        net, vector, x, y, dtype: As in `loss_gradient`.
        along: Direction v ``[P]``.

    Returns:
        <g, v>, H v ``[P]`` and d<g, v>/dx ``[n, c, h, w]``.
    """
    if pays(vector.device):
        with torch.no_grad():
            v = {name: t[None] if name.endswith(".weight") else t for name, t in net.views(along).items()}
            made = Pass(net, net.views(vector), x, y, _mean_weights(vector, x), dtype, along=v)
            slope, curved, mixed = made.products()
            return slope, net.flatten(curved), mixed.to(x.dtype)
    leaf, pixels = vector.detach().requires_grad_(), x.detach().requires_grad_()
    (g,) = torch.autograd.grad(_loss(net, leaf, pixels, y, dtype), leaf, create_graph=True)
    by_theta, by_pixels = torch.autograd.grad(g, (leaf, pixels), along)
    return g.detach() @ along, by_theta, by_pixels
