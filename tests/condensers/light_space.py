"""A space of images whose relaxed network has three operations, for tests where only counts matter."""

import torch
from torch.nn import functional as F

from hcdc.networks import Network, gumbel_one_hot
from hcdc.spaces import NASBench201


class Light(Network):
    """Two layers on four pixels per channel; lambda ``[30]`` scales the hidden units."""

    takes = "image"

    def __init__(self, channels, classes, cell, tau=0.0):
        self.channels, self.classes, self.cell, self.tau = channels, classes, cell, tau

    def drawn(self, tau):
        return Light(self.channels, self.classes, self.cell, tau)

    def init(self, generator):
        first, second = (4 * self.channels, 5), (5, self.classes)
        return {name: torch.randn(size, generator=generator) for name, size in zip("uv", (first, second))}

    def forward(self, params, lam, inputs):
        lam = lam if self.cell is None else self.cell
        lam = gumbel_one_hot(lam, self.tau) if self.cell is None and self.tau else lam
        hidden = F.adaptive_avg_pool2d(inputs, 2).flatten(1) @ params["u"]
        return torch.tanh(hidden * lam.view(6, 5).sum(0)) @ params["v"]

    def forward_with_reference(self, params, lam, inputs, reference):
        return self.forward(params, lam, inputs)


class LightSpace(NASBench201):
    """The cells of NAS-Bench-201 by name; each has a light network."""

    def network(self, features, classes, config=None):
        return Light(features, classes, None if config is None else self.encode(config).float())
