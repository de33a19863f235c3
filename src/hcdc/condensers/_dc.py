"""DC and DSA: condense images by matching the gradients of ConvNets on them, class by class.

Usually autograd differentiates the matching distance with respect to the pixels, twice through one graph per
class. Here the network's derivatives are written out (see `Pass`). With g the gradient of the loss on the
synthetic images of a class, D its distance to the real one and v = dD/dg, the chain rule gives
dD/dX = d/dX <v, g(theta, X)>: one pass forward and back, then the same pass for the tangents along v, for
all classes together. No step needs autograd, so each is recorded as one CUDA graph. On a CPU nothing is
compiled and autograd is faster, so it is used there (`PlainPass`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hcdc.condensers._base import Iterate, Iterative
from hcdc.core.checkpoint import Checkpoint, Loop, Resumable
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive, stream
from hcdc.core.settings import setting
from hcdc.datasets import Images
from hcdc.networks import ConvNet, Params, Pass, PlainPass, pays
from hcdc.tasks import ImageTask, Task
from hcdc.training import (
    Augmentation,
    augment_back,
    draw_augmentation,
    draw_each,
    recorded,
    shown,
)

IMAGES = 2560
"""Most images in one pass of the matching step (at least one class); bounds the memory."""

COSINE_EPS = 1e-6
"""Added to the product of two norms, as in the published distance; damps rows of tiny gradients."""


def row_distance(found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over rows of 1 - cosine, and its derivative with respect to ``found``.

    A row belongs to one output: weights ``[groups, out, ...]`` are flattened to ``[groups, out, rest]``, and
    cosine = <f, w> / (|f| |w| + 1e-6).
    """
    f, w = found.flatten(2), wanted.flatten(2)
    f_norm, w_norm = f.norm(dim=-1, keepdim=True), w.norm(dim=-1, keepdim=True)
    size = f_norm * w_norm + COSINE_EPS
    cosine = (f * w).sum(-1, keepdim=True) / size
    unit = f / f_norm.clamp_min(torch.finfo(f.dtype).tiny)
    return (1 - cosine).sum(), ((cosine * w_norm * unit - w) / size).view_as(found)


@dataclass(frozen=True)
class ImageMatching(Iterative):
    """What DC and DSA share: the loops.

    Each iteration takes a fresh ConvNet and repeats ``outer`` times: one SGD step on the pixels brings, for
    every class, the loss gradient on its synthetic images closer to the one on ``batch_real`` real images
    (row-wise cosine distances of the weights, summed over layers and classes, without biases and norms); then
    the network takes ``inner`` epochs of SGD on the synthetic images. The last iterate is returned.

    On CUDA the real side and the network's epochs use bfloat16, the synthetic side float32 (TF32 if torch's
    convolution settings allow it, as by default).

    Attributes:
        iterations: Number of fresh networks.
        outer: Image steps per iteration; published: 50 at 50 images per class, 10 at 10, 1 at 1.
        inner: Network epochs between two image steps; published: 10, 50 and 1.
        lr_img: Learning rate of the pixels.
        momentum: Momentum of the steps on the pixels.
        lr_net: Learning rate of the network.
        batch_real: Real images drawn per class and step; all if a class has fewer.
        batch_train: Synthetic images per network step.
        width, depth: Size of the ConvNet.
    """

    iterations: int = setting(1000, least=1)
    outer: int = setting(50, least=1)
    inner: int = setting(10, least=0)
    lr_img: float = setting(0.1, above=0)
    momentum: float = setting(0.5, least=0, below=1)
    lr_net: float = setting(0.01, above=0)
    batch_real: int = setting(256, least=1)
    batch_train: int = setting(256, least=1)
    width: int = setting(128, least=1)
    depth: int = setting(3, least=1)

    takes = ("image",)
    title: ClassVar[str]
    augmented: ClassVar[bool]

    @abstractmethod
    def start(self, task: ImageTask, part: str, size: int, seed: int) -> Tensor:
        """The initial pixels ``[size, c, h, w]``, sorted by class, in the normalised space."""

    def iterates(
        self, task: Task, part: str, size: int, seed: int, *,
        progress: Progress, checkpoint: Checkpoint, every: int = 0,
    ) -> Iterator[Iterate]:  # fmt: skip
        run = Matching(self, self.check_task(task), part, size, seed)
        loop = Loop(run, checkpoint, self.iterations, self.title, "iteration")
        if every and loop.done % every == 0 and loop.done < self.iterations:
            yield Iterate(loop.done, run.images())
        if loop.done < self.iterations:
            run.record()
        distance = None
        for iteration in loop.steps(progress.phase(self.title, self.iterations)):
            run.begin(iteration)
            for step in range(self.outer):
                if step:
                    run.train(step - 1)
                run.match(step)
            distance = run.distance()
            loop.check(
                f"NaN or infinity at learning rate {self.lr_img} of the pixels and {self.lr_net} of the "
                "network; try smaller ones",
                distance,
            )
            loop.made(f"matching distance {distance:.3f}")
            if every and loop.done % every == 0 and loop.done < self.iterations:
                yield Iterate(loop.done, run.images(), figure=distance)
        yield Iterate(None, run.images(), figure=distance)


class Matching(Resumable):
    """One run: tensors at fixed addresses, and the two steps on them, recorded on CUDA.

    Synthetic images are stored as ``[classes, most, c, h, w]``, where ``most`` is the size of the largest
    class; unused slots have weight 0 and never change.
    """

    def __init__(self, method: ImageMatching, task: ImageTask, part: str, size: int, seed: int):
        self.method, self.task, self.key = method, task, (seed, method.name, part)
        self.real, self.classes = task.part(part), task.num_classes
        self.device = device = self.real.y.device
        self.y = task.labels(part, size).to(device)
        start = method.start(task, part, size, seed).to(device)
        channels, height, width = start.shape[1:]
        self.net = ConvNet(channels, self.classes, (height, width), method.width, method.depth)
        self.dtype = start.dtype
        self.first_order = torch.bfloat16 if device.type == "cuda" else self.dtype
        self.form = Pass if pays(device) else PlainPass
        self.generator = torch.Generator(device)

        filled = _filled(self.y, self.classes)
        self.weight, self.slots = _mean_weights(filled, start), filled.flatten().nonzero().flatten()
        self.x = start.new_zeros(*filled.shape, channels, height, width)
        self.x[filled] = start
        self.velocity = torch.zeros_like(self.x)
        self.total = start.new_zeros(())
        self.params: Params = {name: start.new_zeros(shape) for name, shape in self.net.shapes().items()}

        self.members = _filled(self.real.y, self.classes)
        self.pool = torch.zeros_like(self.members, dtype=torch.int64)
        self.pool[self.members] = self.real.y.argsort(stable=True)
        most = min(method.batch_real, self.pool.shape[1])
        self.real_weight = _mean_weights(self.members[:, :most], start)
        self.picked = self.pool[:, :most].clone()
        self.order = torch.arange(size, device=device).repeat(method.inner, 1)
        self.shared = Augmentation.identity(self.classes, (height, width), device)
        self.own = Augmentation.identity(
            method.inner * size if method.augmented else 0, (height, width), device
        )
        self.batches = range(0, size, method.batch_train)
        self.match_step: Callable[[], object] = self._match
        self.train_step: Callable[[], object] = self._train

    def record(self) -> None:
        """Record the two steps as CUDA graphs; on the CPU they stay plain functions."""
        self.match_step = recorded(self._match, self.device, (self.x, self.velocity, self.total))
        if self.method.outer > 1 and self.method.inner:
            self.train_step = recorded(self._train, self.device, tuple(self.params.values()))

    def begin(self, iteration: int) -> None:
        """Draw a fresh network and all random numbers of one iteration."""
        method, seed = self.method, self.key[0]
        generator = self.generator.manual_seed(derive(seed, *self.key[1:], iteration))
        for name, values in self.net.init(generator).items():
            self.params[name].copy_(values)
        self.total.zero_()
        keys = torch.rand(method.outer, *self.pool.shape, generator=generator, device=self.device)
        first = keys.masked_fill_(~self.members, 2.0).topk(self.picked.shape[1], largest=False).indices
        self.all_picked = self.pool.expand(method.outer, -1, -1).gather(2, first)
        shape = (method.outer - 1, method.inner, len(self.y))
        self.all_orders = torch.rand(shape, generator=generator, device=self.device).argsort(-1)

    def match(self, step: int) -> None:
        """One step on the pixels."""
        self.picked.copy_(self.all_picked[step])
        if self.method.augmented:
            self.shared.copy_from(draw_augmentation(self.generator, self.classes, self.net.size))
        self.match_step()

    def train(self, step: int) -> None:
        """Train the network after match ``step``."""
        if not self.method.inner:
            return
        self.order.copy_(self.all_orders[step])
        if self.method.augmented:
            self.own.copy_from(self._draw_own())
        self.train_step()

    def _draw_own(self) -> Augmentation:
        """Draw one operation per batch, with separate parameters for each image."""
        inner, size = self.method.inner, len(self.y)
        count = min(self.method.batch_train, size)
        drawn = draw_each(self.generator, count, self.net.size, batches=inner * len(self.batches))

        def filled(tensor: Tensor) -> Tensor:
            return tensor.view(inner, -1, *tensor.shape[1:])[:, :size].flatten(0, 1)

        return Augmentation(*map(filled, drawn.tensors()))

    @torch.no_grad()
    def _match(self) -> None:
        at_once = max(1, IMAGES // max(self.picked.shape[1], self.x.shape[1]))
        slopes = [
            self._slope(slice(first, min(first + at_once, self.classes)))
            for first in range(0, self.classes, at_once)
        ]
        self.velocity.mul_(self.method.momentum).add_(torch.cat(slopes))
        self.x.add_(self.velocity, alpha=-self.method.lr_img)

    def _slope(self, some: slice) -> Tensor:
        """The pixel derivative of some classes' matching distance; also adds up the distance."""
        classes = torch.arange(some.start, some.stop, device=self.device)
        groups = len(classes)

        def passed(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Pass | PlainPass:
            labels = classes[:, None].expand(x.shape[:2]).flatten()
            augmented = self.method.augmented
            images = shown(x, self.shared[some], dtype) if augmented else x.flatten(0, 1)
            return self.form(self.net, self.params, images, labels, weight[some].flatten(), dtype)

        real, x = self.task.inputs(self.real.x[self.picked[some]]), self.x[some]
        wanted = passed(real, self.real_weight, self.first_order).weight_gradients(groups)
        synthetic = passed(x, self.weight, self.dtype)
        matched = [row_distance(f, w) for f, w in zip(synthetic.weight_gradients(groups), wanted)]
        self.total.add_(torch.stack([distance for distance, _ in matched]).sum())
        slope = synthetic.pixel_slope([v for _, v in matched]).reshape(x.shape)
        return augment_back(slope, self.shared[some]) if self.method.augmented else slope

    @torch.no_grad()
    def _train(self) -> None:
        size, step = len(self.y), self.method.batch_train
        for epoch, order in enumerate(self.order):
            x, y = self.x.flatten(0, 1)[self.slots[order]], self.y[order]
            if self.method.augmented:
                x = shown(x[:, None], self.own[epoch * size : (epoch + 1) * size], self.first_order)
            for xs, ys in zip(torch.split(x, step), torch.split(y, step)):
                weight = torch.full_like(xs[:, 0, 0, 0], 1 / len(ys))
                found = self.form(self.net, self.params, xs, ys, weight, self.first_order).gradients()
                params = [self.params[name] for name in found]
                torch._foreach_add_(params, list(found.values()), alpha=-self.method.lr_net)

    def distance(self) -> float:
        """This iteration's matching distance per step and class; NaN if a pixel is not finite."""
        total = torch.where(self.x.isfinite().all(), self.total, torch.nan)
        return float(total) / (self.method.outer * self.classes)

    def images(self) -> Images:
        """A copy of the current synthetic images."""
        return Images(self.x.flatten(0, 1)[self.slots], self.y.clone())

    def tensors(self) -> dict[str, Tensor]:
        return {"x": self.x, "velocity": self.velocity}


def _filled(y: Tensor, classes: int) -> Tensor:
    """Which slots of a table ``[classes, most]`` hold an image, one row per class."""
    counts = y.bincount(minlength=classes)
    return torch.arange(int(counts.max()), device=y.device) < counts[:, None]


def _mean_weights(filled: Tensor, like: Tensor) -> Tensor:
    """Weights that turn a row's sum into the mean over its filled slots."""
    filled = filled.to(like)
    return filled / filled.sum(1, keepdim=True)


@dataclass(frozen=True)
class DC(ImageMatching):
    """Dataset condensation with gradient matching; starts from Gaussian noise, without augmentation.

    Example:
        >>> DC(outer=10, inner=50).settings()["inner"]  # the published loops at 10 images per class
        50
    """

    name = "dc"
    title = "DC"
    augmented = False

    def start(self, task: ImageTask, part: str, size: int, seed: int) -> Tensor:
        noise = torch.randn(size, *task.data.shape, generator=stream(seed, self.name, part, "start"))
        return noise.to(task.inputs(task.part(part).x[:1]).dtype)


@dataclass(frozen=True)
class DSA(ImageMatching):
    """DC with differentiable siamese augmentation; starts from real images.

    At every step, real and synthetic images of a class share one operation and its parameters (see
    `draw_augmentation`). The network's epochs draw one operation per batch and parameters for each image.
    """

    name = "dsa"
    title = "DSA"
    augmented = True

    def start(self, task: ImageTask, part: str, size: int, seed: int) -> Tensor:
        return task.sample(part, size, derive(seed, self.name, part, "start")).x
