"""DM: condense images by matching the mean embeddings of each class under random networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.condensers._base import Reducer
from hcdc.condensers._class_images import Grouped, RealBatches, convnet
from hcdc.core.checkpoint import Checkpoint, Loop, Resumable
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.core.settings import setting
from hcdc.datasets import Images
from hcdc.networks import ConvNet, Features, Initialiser, Params, compute_type, pays
from hcdc.tasks import ImageTask, Task
from hcdc.training import (
    Augmentation,
    augment,
    augment_back,
    draw_augmentation,
    recorded,
    shown,
)

BLOCK = 10
"""Iterations whose random numbers are drawn at once; between blocks the loss is read and the state saved."""

AT_ONCE = {"cuda": 4096, "cpu": 64}
"""Images embedded at once, in whole classes: bounds GPU memory, fits into a CPU's cache."""


@dataclass(frozen=True)
class DM(Reducer):
    """Distribution matching.

    Each iteration takes a fresh random ConvNet psi and, for each class, one augmentation A that original and
    synthetic images share. It makes one SGD step on the pixels of all classes to reduce::

        sum over classes of || mean of psi(A(original batch)) - mean of psi(A(synthetic images)) ||^2

    Synthetic images start as original ones, and the last iterate is returned. Only labels of the condensed
    part are used. On CUDA an iteration is one recorded graph, and networks compute in bfloat16.

    Attributes:
        iterations: Number of fresh networks.
        lr_img: Learning rate of the pixels.
        momentum: Momentum of SGD on the pixels.
        batch: Original images drawn per class and iteration.
        width, depth: Size of the ConvNet.
    """

    iterations: int = setting(20_000, least=1)
    lr_img: float = setting(1.0, above=0)
    momentum: float = setting(0.5, least=0, below=1)
    batch: int = setting(256, least=1)
    width: int = setting(128, least=1)
    depth: int = setting(3, least=1)

    name = "dm"
    takes = ("image",)

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Images:
        images: ImageTask = self.check_task(task)
        start = images.sample(part, size, derive(seed, self.name, part, "start"))
        match = _Matching(self, images, part, start)
        loop = Loop(match, checkpoint, self.iterations, "DM", "iteration")
        for done in loop.steps(progress.phase("DM", self.iterations)):
            count = min(BLOCK, self.iterations - done)
            loss = match.run(derive(seed, self.name, part, done), count)
            loop.check(f"NaN or infinity at lr_img {self.lr_img}; try a smaller one", loss, count=count)
            loop.made(f"matching loss {loss:.4g}", count)
        return match.small.images()


def matching_loss(
    net: ConvNet,
    params: Params,
    real: tuple[Tensor, Tensor],
    synthetic: tuple[Tensor, Tensor],
    a: Augmentation,
) -> Tensor:
    """Squared distances of mean embeddings, summed over classes; autograd gives its derivative.

    Args:
        net: The network.
        params: Its parameters.
        real: Original images ``[C, b, c, h, w]`` and their weights in the mean ``[C, b]``; no derivatives.
        synthetic: The same for the synthetic images.
        a: One augmentation per class.
    """

    def mean(images: Tensor, weight: Tensor) -> Tensor:
        points = net.embed(params, augment(images, a).flatten(0, 1)).to(images.dtype)
        return torch.bmm(weight[:, None], points.view(*weight.shape, -1))

    with torch.no_grad():
        wanted = mean(*real)
    return (mean(*synthetic) - wanted).square().sum()


@torch.no_grad()
def matching_slope(
    net: ConvNet,
    params: Params,
    real: tuple[Tensor, Tensor],
    synthetic: tuple[Tensor, Tensor],
    a: Augmentation,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """`matching_loss` and its derivative with respect to the synthetic images, written out.

    Original and synthetic images pass through the network together; only the synthetic ones go back. With
    m_c and t_c the mean embeddings of the synthetic and original images of class c, the derivative of the
    loss with respect to the embedding of a synthetic image of weight w is 2 w (m_c - t_c).

    Args:
        net, real, synthetic, a: See `matching_loss`.
        params: The parameters, at least float32.
        dtype: Type of the convolutions.

    Returns:
        The loss, and its derivative ``[C, m, c, h, w]``.
    """
    (images, weight), (x, own) = real, synthetic
    together = torch.cat([shown(images, a, dtype), shown(x, a, dtype)])
    features = Features(net, params, together, dtype)
    first = weight.numel()
    wanted, found = (
        torch.bmm(w.to(points.dtype)[:, None], points.view(*w.shape, -1))
        for w, points in ((weight, features.values[:first]), (own, features.values[first:]))
    )
    away = found - wanted
    slope = 2 * own.to(away.dtype)[..., None] * away
    gradient = features[first:].pixels(slope.flatten(0, 1)).reshape(x.shape)
    return away.square().sum(), augment_back(gradient, a)


class _Matching(Resumable):
    """The synthetic images and everything else that an iteration reads and writes, at fixed addresses."""

    def __init__(self, config: DM, task: ImageTask, part: str, start: Images):
        self.config, classes, device = config, task.num_classes, start.x.device
        self.net = convnet(task, config.width, config.depth)
        self.dtype = compute_type(device, start.x.dtype)
        self.small, self.real = Grouped(start, classes), RealBatches(task, part, config.batch)
        self.velocity = torch.zeros_like(self.small.x)
        self.total = torch.zeros((), device=device)
        self.generator = torch.Generator(device)
        self.initialiser = Initialiser(self.net, device)
        self.vector = torch.zeros(self.initialiser.length, device=device)
        self.index = self.real.index[:, : self.real.batch].clone()
        self.augmentation = Augmentation.identity(classes, self.net.size, device)
        each = self.real.batch + self.small.x.shape[1]
        at_once = max(1, AT_ONCE.get(device.type, AT_ONCE["cuda"]) // each)
        self.chunks = [slice(first, first + at_once) for first in range(0, classes, at_once)]
        self.step = recorded(self._step, device, [self.small.x, self.velocity, self.total])

    def _step(self) -> None:
        """One iteration; the pixels of a class only enter that class's term of the loss."""
        for chunk in self.chunks:
            loss, gradient = self._slope(chunk)
            self.velocity[chunk].mul_(self.config.momentum).add_(gradient)
            self.total += loss
        self.small.x.sub_(self.velocity, alpha=self.config.lr_img)

    def _slope(self, chunk: slice) -> tuple[Tensor, Tensor]:
        """The loss of some classes and its derivative with respect to their pixels."""
        real = self.real.images_at(self.index[chunk]), self.real.weight[chunk]
        x, weight, a = self.small.x[chunk], self.small.weight[chunk], self.augmentation[chunk]
        if pays(x.device):
            return matching_slope(self.net, self.net.views(self.vector), real, (x, weight), a, self.dtype)
        leaf = x.detach().requires_grad_()
        params = self.net.views(self.vector.to(self.dtype))
        loss = matching_loss(self.net, params, real, (leaf, weight), a)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    def run(self, seed: int, count: int) -> float:
        """Make ``count`` iterations with the draws of ``seed``; returns their mean loss."""
        self.generator.manual_seed(seed)
        device, classes = self.vector.device, len(self.index)
        u = torch.rand(count, self.initialiser.length, generator=self.generator, device=device)
        index = self.real.draw(self.generator, count)
        drawn = draw_augmentation(self.generator, count * classes, self.net.size)
        self.total.zero_()
        for k in range(count):
            self.initialiser.write(self.vector, u[k])
            self.index.copy_(index[k])
            self.augmentation.copy_from(drawn[k * classes : (k + 1) * classes])
            self.step()
        return float(self.total) / count

    def tensors(self) -> dict[str, Tensor]:
        return {"x": self.small.x, "velocity": self.velocity}
