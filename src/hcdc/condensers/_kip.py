"""KIP: condense images so that kernel ridge regression on them predicts the original labels.

Labels are centred one-hot vectors (1 for the class, minus 1/C) and stay fixed. For synthetic images X with
labels Y and a random batch b of original images, each step reduces

    1/2 mean || K_bs (K_ss + reg * trace(K_ss) / n * I)^-1 Y - Y_b ||^2

in X. The kernel K is either the closed-form neural tangent kernel of an infinitely wide fully connected
network, or a random-feature kernel of ConvNets: inner products of the embeddings of several networks at
initialisation, redrawn in every step (the idea of RFAD; the exact convolutional kernel needs many GPUs).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.condensers._base import Iterate, Iterative
from hcdc.condensers._class_images import convnet
from hcdc.core.checkpoint import Checkpoint, Loop
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.core.settings import setting
from hcdc.datasets import Images
from hcdc.networks import ConvNet, Initialiser, Params, compute_type
from hcdc.tasks import ImageTask, Task
from hcdc.training import Adam

CHUNK = 1000
"""Images embedded at once; bounds the memory."""

KERNELS = ("conv", "fc")


def arc_cosine(rho: Tensor) -> tuple[Tensor, Tensor]:
    """Arc-cosine kernels of degree 0 and 1 at a correlation rho in [-1, 1].

    For standard normal u and v with correlation rho, kappa_0 = (pi - arccos rho) / pi = 2 P(u > 0, v > 0) and
    kappa_1 = (sqrt(1 - rho^2) + rho (pi - arccos rho)) / pi = 2 E[relu(u) relu(v)]. At rho = -1 and 1, where
    arccos has no derivative, values are exact and derivatives are 0.
    """
    edge = 1 - 8 * torch.finfo(rho.dtype).eps
    inside = rho.abs() < edge
    safe = torch.where(inside, rho, 0.0)
    angle = math.pi - torch.arccos(safe)
    zero = torch.where(inside, angle / math.pi, (rho > 0).to(rho.dtype))
    one = torch.where(inside, ((1 - safe.square()).sqrt() + safe * angle) / math.pi, rho.clamp_min(0).round())
    return zero, one


def ntk(x: Tensor, z: Tensor, depth: int) -> Tensor:
    """Neural tangent kernel of an infinitely wide ReLU network without biases, ``[n, m]``.

    With S_0 = T_0 = <x, z> / d, and rho_l the correlation S_l / sqrt(S_l(x, x) S_l(z, z)):
    S_{l+1} = sqrt(S_l(x, x) S_l(z, z)) kappa_1(rho_l),  T_{l+1} = S_{l+1} + kappa_0(rho_l) T_l.
    Weights have variance 2 / fan-in (1 / d in the first layer), so S(x, x) is the same in all layers.

    Args:
        x, z: Inputs ``[n, ...]`` and ``[m, ...]``.
        depth: Number of hidden layers.
    """
    x, z = x.flatten(1), z.flatten(1)
    own_x, own_z = (t.square().mean(1).clamp_min(torch.finfo(t.dtype).tiny) for t in (x, z))
    size = own_x.sqrt()[:, None] * own_z.sqrt()
    s = x @ z.t() / x.shape[1]
    tangent = s
    for _ in range(depth):
        zero, one = arc_cosine(s / size)
        s = size * one
        tangent = s + zero * tangent
    return tangent


def ridge_loss(ss: Tensor, bs: Tensor, y: Tensor, y_b: Tensor, reg: float) -> Tensor:
    """Half the mean squared error of kernel ridge regression.

    Args:
        ss: Kernel among the synthetic images ``[n, n]``.
        bs: Kernel between the batch and them ``[b, n]``.
        y, y_b: Labels ``[n, C]`` and ``[b, C]``.
        reg: Ridge, relative to the mean of the diagonal of ``ss``.
    """
    ridge = reg * ss.diagonal().mean() * torch.eye(len(ss), dtype=ss.dtype, device=ss.device)
    coefficients: Tensor = torch.linalg.solve(ss + ridge, y)
    return 0.5 * (bs @ coefficients - y_b).square().mean()


def fc_slope(
    x: Tensor, y: Tensor, batch: Tensor, y_b: Tensor, depth: int, reg: float
) -> tuple[Tensor, Tensor]:
    """The loss with the closed-form kernel, in float64, and its derivative with respect to x."""
    leaf = x.detach().double().requires_grad_()
    loss = ridge_loss(ntk(leaf, leaf, depth), ntk(batch.double(), leaf, depth), y, y_b, reg)
    (slope,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), slope.to(x.dtype)


def conv_slope(
    net: ConvNet, networks: list[Params], x: Tensor, y: Tensor, batch: Tensor, y_b: Tensor, reg: float
) -> tuple[Tensor, Tensor]:
    """The loss with the random-feature kernel, and its derivative with respect to x.

    The kernel is solved in float64. The derivative with respect to the embeddings is pulled back to the
    pixels network by network, so only one network's graph on `CHUNK` images is kept at a time.

    Args:
        net: The network.
        networks: Parameters of several networks.
        x, y: Synthetic images and their labels ``[n, C]``, float64.
        batch, y_b: The same for original images.
        reg: See `ridge_loss`.
    """
    scale = 1 / math.sqrt(len(networks) * net.features_out)

    def features(images: Tensor) -> Tensor:
        with torch.no_grad():
            rows = [
                torch.cat([net.embed(params, chunk) for params in networks], 1)
                for chunk in torch.split(images, CHUNK)
            ]
        return torch.cat(rows).double() * scale

    phi = features(x).requires_grad_()
    loss = ridge_loss(phi @ phi.t(), features(batch) @ phi.t(), y, y_b, reg)
    (dphi,) = torch.autograd.grad(loss, phi)
    slope = torch.zeros_like(x)
    for params, wanted in zip(networks, (dphi * scale).chunk(len(networks), 1)):
        for first in range(0, len(x), CHUNK):
            rows = slice(first, first + CHUNK)
            leaf = x[rows].detach().requires_grad_()
            out = net.embed(params, leaf)
            slope[rows] += torch.autograd.grad(out, leaf, wanted[rows].to(out.dtype))[0]
    return loss.detach(), slope


@dataclass(frozen=True)
class KIP(Iterative):
    """Kernel inducing points: learned images, fixed labels.

    Synthetic images start as original ones, and the last iterate is returned. Only labels of the condensed
    part are used. Images are learned for kernel regression, but usually judged by training a finite network,
    for which they become worse the further they move from natural images. Steps are therefore few and small.
    On CUDA networks compute in bfloat16.

    Attributes:
        kernel: ``"conv"``: random features of ConvNets; ``"fc"``: the closed-form fully connected kernel.
        steps: Adam steps.
        lr: Learning rate of the (normalised) pixels.
        batch: Original images per step.
        reg: Ridge, relative to the mean of the kernel's diagonal.
        networks: Fresh ConvNets per step (conv).
        width: Width of the ConvNets (conv).
        depth: Blocks of the ConvNets (conv), or hidden layers (fc).
    """

    kernel: str = setting("conv", choices=KERNELS)
    steps: int = setting(1000, least=1)
    lr: float = setting(0.01, above=0)
    batch: int = setting(2000, least=1)
    reg: float = setting(5e-3, above=0)
    networks: int = setting(8, least=1)
    width: int = setting(128, least=1)
    depth: int = setting(3, least=1)

    name = "kip"
    takes = ("image",)

    def iterates(
        self, task: Task, part: str, size: int, seed: int, *,
        progress: Progress, checkpoint: Checkpoint, every: int = 0,
    ) -> Iterator[Iterate]:  # fmt: skip
        images: ImageTask = self.check_task(task)
        start = images.sample(part, size, derive(seed, self.name, part, "start"))
        x = start.x.clone()
        adam = Adam({"x": x}, self.lr)
        loop = Loop(adam, checkpoint, self.steps, "KIP")
        if loop.done < self.steps:
            regression = _Regression(self, images, part, start.y)
            for step in loop.steps(progress.phase("KIP", self.steps)):
                loss, slope = regression.slope(x, derive(seed, self.name, part, step))
                adam.step(slope)
                loop.check(
                    f"NaN or infinity at learning rate {self.lr} and ridge {self.reg}; try a smaller lr or a "
                    "larger reg",
                    loss,
                    x,
                )
                loop.made(f"squared error {2 * loss:.4f}")
                if every and loop.done % every == 0 and loop.done < self.steps:
                    yield Iterate(loop.done, Images(x.clone(), start.y))
        yield Iterate(None, Images(x, start.y))


class _Regression:
    """What stays the same in all steps: original images, labels, the network."""

    def __init__(self, config: KIP, task: ImageTask, part: str, y: Tensor):
        self.config, self.task, self.images = config, task, task.part(part)
        self.device = y.device
        self.y, self.targets = self._centred(y), self._centred(self.images.y)
        self.batch = min(config.batch, len(self.images))
        self.generator = torch.Generator(self.device)
        if config.kernel == "conv":
            self.net = convnet(task, config.width, config.depth)
            self.initialiser = Initialiser(self.net, self.device)

    def _centred(self, y: Tensor) -> Tensor:
        """Labels for the regression ``[n, C]``, float64."""
        classes = self.task.num_classes
        return torch.eye(classes, dtype=torch.float64, device=self.device)[y] - 1 / classes

    def slope(self, x: Tensor, seed: int) -> tuple[float, Tensor]:
        """The loss on a random batch (with random networks) and its derivative by x ``[n, c, h, w]``."""
        config, generator = self.config, self.generator.manual_seed(seed)
        rows = torch.randperm(len(self.images), generator=generator, device=self.device)[: self.batch]
        batch, y_b = self.task.inputs(self.images.x[rows]), self.targets[rows]
        try:
            if config.kernel == "fc":
                loss, slope = fc_slope(x, self.y, batch, y_b, config.depth, config.reg)
            else:
                networks = [self._network(generator, x.dtype) for _ in range(config.networks)]
                loss, slope = conv_slope(self.net, networks, x, self.y, batch, y_b, config.reg)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise NumericalError(
                f"KIP: the kernel of the synthetic images is singular at ridge {config.reg}; try a larger reg"
            ) from error
        return float(loss), slope

    def _network(self, generator: torch.Generator, like: torch.dtype) -> Params:
        vector = torch.empty(self.initialiser.length, device=self.device)
        u = torch.rand(self.initialiser.length, generator=generator, device=self.device)
        self.initialiser.write(vector, u)
        return self.net.views(vector.to(compute_type(self.device, like)))
