"""DC and DSA: condense images by matching, class by class, the gradients that ConvNets take on them.

The derivative of a matching distance by the pixels is usually left to autograd, which differentiates twice
through one graph a class. Here the network's derivatives are written out. With g the gradient of the loss on
the synthetic images of a class, D its distance to the real one and v = dD/dg, the chain rule gives

    dD/dX = d/dX <v, dL/dtheta (theta, X)> = d/de [dL/dX (theta + e v, X)] at e = 0:

one pass forward and back, then the same pass for the tangents along v. Norms act on each image alone, so all
classes share every pass and only products with v, and sums over images, are taken class by class. No step
needs autograd, so each is recorded as one CUDA graph, with the work between convolutions fused by torch's
compiler.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.condensers._base import Reducer
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive, stream
from hcdc.datasets._images import Images
from hcdc.spaces._base import Params
from hcdc.spaces._convnet import ConvNet
from hcdc.tasks._base import Task
from hcdc.tasks._image import ImageTask
from hcdc.training._augment import Augmentation, augment, augment_each, draw_augmentation, draw_each
from hcdc.training._captured import Captured

SAVE_SECONDS = 5.0
"""Seconds between two checkpoints: what an interruption can lose, rounded up to whole iterations."""

IMAGES = 2560
"""Images of one pass of the matching step, at most (at least one class); bounds the memory."""

NORM_EPS = 1e-5
COSINE_EPS = 1e-6
"""Added to the product of two norms, as the published distance does; it damps rows of tiny gradients."""


# One block between convolutions: instance norm, ReLU, 2x2 average pool. Tensors are [n, h, w, c].


def _wide(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _pool(a: Tensor) -> Tensor:
    """2x2 averages; an odd last row or column is dropped, as `avg_pool2d` does."""
    n, h, w, c = a.shape
    a = a[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)
    return a.sum((2, 4)) * 0.25


def _unpool(dy: Tensor, height: int, width: int) -> Tensor:
    """The transpose of `_pool`."""
    n, h, w, c = dy.shape
    spread = (dy * 0.25)[:, :, None, :, None].expand(n, h, 2, w, 2, c).reshape(n, 2 * h, 2 * w, c)
    if (2 * h, 2 * w) == (height, width):
        return spread
    return F.pad(spread, (0, 0, 0, width - 2 * w, 0, height - 2 * h))


def _mean(x: Tensor) -> Tensor:
    return x.mean((1, 2), keepdim=True)


def block(u: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y = pool(relu(z)), z = scale xhat + shift, xhat = (u - mean) r, r = 1 / sqrt(variance + eps).

    Args:
        u: Output of a convolution ``[n, h, w, c]``.
        scale, shift: Of each channel ``[c]``.

    Returns:
        y ``[n, h/2, w/2, c]``, mean and r ``[n, 1, 1, c]``.
    """
    x = _wide(u)
    variance, mean = torch.var_mean(x, (1, 2), correction=0, keepdim=True)
    r = torch.rsqrt(variance + NORM_EPS)
    return _pool(F.relu((x - mean) * r * scale + shift)).to(u.dtype), mean, r


def block_back(
    u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From dL/dy to dL/du = r scale (dz - a - xhat b), a = mean(dz), b = mean(dz xhat).

    Returns:
        dL/du, a and b; over the images of a batch dL/dshift = h w sum(a) and dL/dscale = h w sum(b).
    """
    xhat = (_wide(u) - mean) * r
    dz = torch.where(xhat * scale + shift > 0, _unpool(_wide(dy), u.shape[1], u.shape[2]), 0.0)
    a, b = _mean(dz), _mean(dz * xhat)
    return (r * scale * (dz - a - xhat * b)).to(u.dtype), a, b


def block_push(u: Tensor, mean: Tensor, r: Tensor, scale: Tensor, shift: Tensor, u_dot: Tensor) -> Tensor:
    """The tangent of y along that of u: xhat_dot = r (u_dot - mean(u_dot) - xhat mean(xhat u_dot))."""
    xhat = (_wide(u) - mean) * r
    tangent = _wide(u_dot)
    xhat_dot = r * (tangent - _mean(tangent) - xhat * _mean(xhat * tangent))
    return _pool(torch.where(xhat * scale + shift > 0, scale * xhat_dot, 0.0)).to(u.dtype)


def block_push_back(
    u: Tensor,
    mean: Tensor,
    r: Tensor,
    scale: Tensor,
    shift: Tensor,
    u_dot: Tensor,
    dy: Tensor,
    dy_dot: Tensor,
) -> Tensor:
    """The tangent of what `block_back` returns, along those of u and of dL/dy."""
    xhat = (_wide(u) - mean) * r
    tangent = _wide(u_dot)
    p = _mean(xhat * tangent)  # r_dot = -r^2 p
    xhat_dot = r * (tangent - _mean(tangent) - xhat * p)
    on = xhat * scale + shift > 0
    dz = torch.where(on, _unpool(_wide(dy), u.shape[1], u.shape[2]), 0.0)
    dz_dot = torch.where(on, _unpool(_wide(dy_dot), u.shape[1], u.shape[2]), 0.0)
    a, b = _mean(dz), _mean(dz * xhat)
    a_dot, b_dot = _mean(dz_dot), _mean(dz_dot * xhat + dz * xhat_dot)
    moved = dz_dot - a_dot - xhat_dot * b - xhat * b_dot - r * p * (dz - a - xhat * b)
    return (r * scale * moved).to(u.dtype)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as few kernels: values are made again where they are used, not stored in between."""
    return torch.compile(function, dynamic=False, fullgraph=True, options={"realize_reads_threshold": 64})


def _fused(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Call one of the functions above; compiled on CUDA, once for all numbers of images."""
    if not tensors[0].is_cuda:
        return function(*tensors)
    from torch import _dynamo

    for tensor in tensors:
        if tensor.dim() == 4:
            _dynamo.maybe_mark_dynamic(tensor, 0)
    with _dynamo.config.patch(recompile_limit=64):
        return _compiled(function)(*tensors)


def _conv(x: Tensor, w: Tensor) -> Tensor:
    """3x3 convolution of ``[n, h, w, c]``; w is ``[out, in, 3, 3]``."""
    return F.conv2d(x.permute(0, 3, 1, 2), w, padding=1).permute(0, 2, 3, 1)


def _conv_back(du: Tensor, x: Tensor, w: Tensor, to_weight: bool) -> Tensor:
    """dL/dw, or else dL/dx, of `_conv`."""
    down, into = (t.permute(0, 3, 1, 2) for t in (du, x))
    mask = (not to_weight, to_weight, False)
    found = torch.ops.aten.convolution_backward(
        down, into, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask
    )
    gradient: Tensor = found[1] if to_weight else found[0].permute(0, 2, 3, 1)
    return gradient


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    """``[groups * n, ...]`` as ``[groups, n, ...]``."""
    return tensor.view(groups, -1, *tensor.shape[1:])


def _each(groups: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The groups of several tensors, one after another."""
    return zip(*(_grouped(tensor, groups).unbind() for tensor in tensors))


class Pass:
    """A pass of a ConvNet over images forward and back, kept for gradients by group and their derivative.

    The bias of a convolution is left out: the norm behind it removes it, and its gradient is 0.

    Args:
        net: The network; depth and classes are read.
        params: Its parameters, at least float32.
        images: ``[n, c, h, w]``.
        y: Labels ``[n]``.
        weight: Of each image's cross-entropy in the loss ``[n]``.
        dtype: What convolutions compute in.
    """

    def __init__(
        self, net: ConvNet, params: Params, images: Tensor, y: Tensor, weight: Tensor, dtype: torch.dtype
    ):
        self.layers = range(net.depth)
        self.weights = [
            params[f"{k}.weight"].to(dtype, memory_format=torch.channels_last) for k in self.layers
        ]
        self.classifier, self.weight = params["linear.weight"], weight[:, None]
        self.inputs: list[Tensor] = []
        self.blocks: list[tuple[Tensor, ...]] = []
        x = images.to(dtype).permute(0, 2, 3, 1).contiguous()
        for k, w in enumerate(self.weights):
            u, affine = _conv(x, w), (params[f"{k}.scale"], params[f"{k}.shift"])
            self.inputs.append(x)
            x, mean, r = _fused(block, u, *affine)
            self.blocks.append((u, mean, r, *affine))
        self.shape, self.dtype = x.shape[1:], dtype
        self.features = self._flat(x)
        logits = F.linear(self.features, self.classifier, params["linear.bias"])
        self.probabilities = logits.softmax(-1)
        wanted = (y[:, None] == torch.arange(net.classes, device=y.device)).to(logits.dtype)
        self.slope = (self.probabilities - wanted) * self.weight  # dL/dlogits
        self._back()

    def _flat(self, x: Tensor) -> Tensor:
        """Features in the order of `ConvNet`: channels, rows, columns."""
        return _wide(x).permute(0, 3, 1, 2).flatten(1)

    def _unflat(self, features: Tensor) -> Tensor:
        h, w, c = self.shape
        return features.view(-1, c, h, w).permute(0, 2, 3, 1).to(self.dtype).contiguous()

    def _back(self) -> None:
        dy = self._unflat(self.slope @ self.classifier)
        self.dy = [dy]
        self.du: list[Tensor] = []
        self.sums: list[list[Tensor]] = []
        for k in reversed(self.layers):
            du, *sums = _fused(block_back, *self.blocks[k], self.dy[0])
            self.du.insert(0, du)
            self.sums.insert(0, sums)
            if k:
                self.dy.insert(0, _conv_back(du, self.inputs[k], self.weights[k], to_weight=False))

    def weight_gradients(self, groups: int) -> list[Tensor]:
        """For each layer dL/dweight by group of consecutive images ``[groups, *shape of the weight]``."""
        found = [
            torch.stack([_conv_back(d, x, w, to_weight=True) for d, x in _each(groups, du, inputs)])
            for du, inputs, w in zip(self.du, self.inputs, self.weights)
        ]
        slope, features = _grouped(self.slope, groups), _grouped(self.features, groups)
        return [_wide(g) for g in found] + [slope.mT @ features]

    def gradients(self) -> Params:
        """dL/dtheta of all images, less the biases of convolutions."""
        *convolutions, classifier = self.weight_gradients(1)
        found = {"linear.weight": classifier[0], "linear.bias": self.slope.sum(0)}
        for k, (g, (a, b)) in enumerate(zip(convolutions, self.sums)):
            pixels = math.prod(self.du[k].shape[1:3])
            found |= {
                f"{k}.weight": g[0],
                f"{k}.shift": pixels * a.sum((0, 1, 2)),
                f"{k}.scale": pixels * b.sum((0, 1, 2)),
            }
        return found

    def pixel_slope(self, v: Sequence[Tensor]) -> Tensor:
        """d/dX of the sum over groups and layers of <v, dL/dweight>, where v is held fixed.

        Args:
            v: For each layer ``[groups, *shape of the weight]``.

        Returns:
            ``[n, c, h, w]``.
        """
        groups = len(v[0])
        along = [[w.to(self.dtype, memory_format=torch.channels_last) for w in layer] for layer in v[:-1]]
        u_dots: list[Tensor] = []
        x_dots: list[Tensor] = []
        for k, x in enumerate(self.inputs):
            u_dot = torch.cat([_conv(of, w) for (of,), w in zip(_each(groups, x), along[k])])
            if k:
                u_dot = u_dot + _conv(x_dots[-1], self.weights[k])
            u_dots.append(u_dot)
            x_dots.append(_fused(block_push, *self.blocks[k], u_dot))

        slope, features = _grouped(self.slope, groups), _grouped(self.features, groups)
        logits_dot = self._flat(x_dots[-1]) @ self.classifier.mT + (features @ v[-1].mT).flatten(0, 1)
        p = self.probabilities
        slope_dot = self.weight * p * (logits_dot - (p * logits_dot).sum(-1, keepdim=True))
        dy_dot = self._unflat(slope_dot @ self.classifier + (slope @ v[-1]).flatten(0, 1))
        for k in reversed(self.layers):
            du_dot = _fused(block_push_back, *self.blocks[k], u_dots[k], self.dy[k], dy_dot)
            x, w = self.inputs[k], self.weights[k]
            dy_dot = _conv_back(du_dot, x, w, to_weight=False) + torch.cat(
                [
                    _conv_back(du, of, at, to_weight=False)
                    for (du, of), at in zip(_each(groups, self.du[k], x), along[k])
                ]
            )
        return _wide(dy_dot).permute(0, 3, 1, 2)


def row_distance(found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over rows of 1 - cosine, and its derivative by ``found``.

    A row is what belongs to one output: weights ``[groups, out, ...]`` are flattened to
    ``[groups, out, rest]``, and cosine = <f, w> / (|f| |w| + 1e-6).
    """
    f, w = found.flatten(2), wanted.flatten(2)
    f_norm, w_norm = f.norm(dim=-1, keepdim=True), w.norm(dim=-1, keepdim=True)
    size = f_norm * w_norm + COSINE_EPS
    cosine = (f * w).sum(-1, keepdim=True) / size
    unit = f / f_norm.clamp_min(torch.finfo(f.dtype).tiny)
    return (1 - cosine).sum(), ((cosine * w_norm * unit - w) / size).view_as(found)


class Iterate(NamedTuple):
    """Where a run stands: iterations made, the synthetic images, mean matching distance a class (or None)."""

    iteration: int
    images: Images
    distance: float | None


@dataclass(frozen=True)
class ImageMatching(Reducer):
    """What DC and DSA share: the loops.

    Each iteration takes a fresh ConvNet. ``outer`` times: for every class the gradient of the loss on its
    synthetic images is brought closer to that on ``batch_real`` real ones (row-wise cosine distances of the
    weights, added over layers and classes; biases and norms are skipped), by one SGD step on the pixels; then
    the network takes ``inner`` epochs of SGD on the synthetic images. The last iterate is returned.

    On CUDA the real side and the network's epochs compute in bfloat16, the synthetic side in float32 (TF32
    where torch's settings for convolutions allow it, which is their default).

    Attributes:
        iterations: Fresh networks.
        outer: Steps of the images an iteration; published: 50 at 50 images a class, 10 at 10, 1 at 1.
        inner: Epochs of the network between two of these; published: 10, 50 and 1.
        lr_img: Learning rate of the pixels.
        momentum: Of the steps on the pixels.
        lr_net: Learning rate of the network.
        batch_real: Real images drawn of each class a step; all where a class has fewer.
        batch_train: Synthetic images a step of the network.
        width, depth: Of the ConvNet.
    """

    iterations: int = 1000
    outer: int = 50
    inner: int = 10
    lr_img: float = 0.1
    momentum: float = 0.5
    lr_net: float = 0.01
    batch_real: int = 256
    batch_train: int = 256
    width: int = 128
    depth: int = 3

    title: ClassVar[str]
    augmented: ClassVar[bool]

    def __post_init__(self) -> None:
        for key in ("iterations", "outer", "batch_real", "batch_train", "width", "depth"):
            if getattr(self, key) < 1:
                raise InputError(f"{self.name}: {key} must be at least 1, got {getattr(self, key)}")
        for key in ("lr_img", "lr_net"):
            if not getattr(self, key) > 0:
                raise InputError(f"{self.name}: {key} must be positive, got {getattr(self, key)}")
        if self.inner < 0:
            raise InputError(f"{self.name}: inner must not be negative, got {self.inner}")
        if not 0 <= self.momentum < 1:
            raise InputError(f"{self.name}: momentum must be in [0, 1), got {self.momentum}")

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @abstractmethod
    def start(self, task: ImageTask, part: str, size: int, seed: int) -> Tensor:
        """The pixels ``[size, c, h, w]`` to start from, sorted by class, in the normalised space."""

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Images:
        phase = progress.phase(self.title, self.iterations)
        for now in self.iterates(task, part, size, seed, checkpoint):
            if now.distance is not None:
                phase.step(now.iteration, f"matching distance {now.distance:.3f}")
        return now.images

    def iterates(
        self, task: Task, part: str, size: int, seed: int, checkpoint: Checkpoint | None = None
    ) -> Iterator[Iterate]:
        """The run, iteration by iteration: first where it starts or continues, last what `reduce` returns."""
        if not isinstance(task, ImageTask):
            raise InputError(
                f"method '{self.name}' condenses images, and this is a {task.kind} task; use method 'random'"
            )
        checkpoint = checkpoint or Checkpoint(None)
        run = Matching(self, task, part, size, seed)
        done = run.load(checkpoint)
        yield Iterate(done, run.images(), None)
        if done < self.iterations:
            run.record()
        saved = time.monotonic()
        for iteration in range(done, self.iterations):
            run.begin(iteration)
            for step in range(self.outer):
                if step:
                    run.train(step - 1)
                run.match(step)
            distance = run.distance()
            if not math.isfinite(distance):
                raise NumericalError(
                    f"{self.title} diverged in iteration {iteration + 1} of {self.iterations}: NaN or "
                    f"infinity at learning rate {self.lr_img} of the pixels and {self.lr_net} of the "
                    "network; try smaller ones"
                )
            if iteration + 1 == self.iterations or time.monotonic() - saved >= SAVE_SECONDS:
                run.save(checkpoint, iteration + 1)
                saved = time.monotonic()
            yield Iterate(iteration + 1, run.images(), distance)


class Matching:
    """One run: tensors that stay where they are, and the two steps on them, recorded on CUDA.

    Synthetic images are kept as ``[classes, most, c, h, w]``, where ``most`` is the largest number a class
    has; a slot too many has weight 0 and never changes.

    Args:
        method: The settings.
        task: The original.
        part: Its part to condense.
        size: Number of synthetic images.
        seed: Decides every draw.
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
        """Make the two steps CUDA graphs; on the CPU they stay plain functions."""
        with _tuned_convolutions():
            self.match_step = Captured(self._match, self.device, (self.x, self.velocity, self.total))
            if self.method.outer > 1 and self.method.inner:
                self.train_step = Captured(self._train, self.device, tuple(self.params.values()))

    def begin(self, iteration: int) -> None:
        """A fresh network, and the draws of one iteration."""
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
        """One step of the pixels."""
        self.picked.copy_(self.all_picked[step])
        if self.method.augmented:
            self.shared.copy_from(draw_augmentation(self.generator, self.classes, self.net.size))
        self.match_step()

    def train(self, step: int) -> None:
        """The epochs of the network after match ``step``."""
        if not self.method.inner:
            return
        self.order.copy_(self.all_orders[step])
        if self.method.augmented:
            self.own.copy_from(self._draw_own())
        self.train_step()

    def _draw_own(self) -> Augmentation:
        """For each batch of the epochs one operation, for each image its own parameters."""
        inner, size = self.method.inner, len(self.y)
        count = min(self.method.batch_train, size)
        drawn = draw_each(self.generator, count, self.net.size, batches=inner * len(self.batches))
        return Augmentation(*(_grouped(tensor, inner)[:, :size].flatten(0, 1) for tensor in drawn.tensors()))

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
        """The derivative of the matching distance of some classes by their pixels; adds the distance up."""
        classes = torch.arange(some.start, some.stop, device=self.device)
        groups = len(classes)

        def passed(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Pass:
            labels = classes[:, None].expand(x.shape[:2]).flatten()
            return Pass(self.net, self.params, x.flatten(0, 1), labels, weight[some].flatten(), dtype)

        real = self.task.inputs(self.real.x[self.picked[some]])
        if self.method.augmented:
            real = augment(real, self.shared[some])
        wanted = passed(real, self.real_weight, self.first_order).weight_gradients(groups)
        x = shown = self.x[some]
        if self.method.augmented:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                shown = augment(x, self.shared[some])
        synthetic = passed(shown.detach(), self.weight, self.dtype)
        matched = [row_distance(f, w) for f, w in zip(synthetic.weight_gradients(groups), wanted)]
        self.total.add_(torch.stack([distance for distance, _ in matched]).sum())
        slope = synthetic.pixel_slope([v for _, v in matched]).reshape(shown.shape)
        return torch.autograd.grad(shown, x, slope)[0] if self.method.augmented else slope

    @torch.no_grad()
    def _train(self) -> None:
        size, step = len(self.y), self.method.batch_train
        for epoch, order in enumerate(self.order):
            x, y = self.x.flatten(0, 1)[self.slots[order]], self.y[order]
            if self.method.augmented:
                x = augment_each(x, self.own[epoch * size : (epoch + 1) * size])
            for xs, ys in zip(torch.split(x, step), torch.split(y, step)):
                weight = torch.full_like(xs[:, 0, 0, 0], 1 / len(ys))
                found = Pass(self.net, self.params, xs, ys, weight, self.first_order).gradients()
                for name, gradient in found.items():
                    self.params[name].add_(gradient, alpha=-self.method.lr_net)

    def distance(self) -> float:
        """The matching distance of this iteration a step and class; NaN if a pixel is not finite."""
        total = torch.where(self.x.isfinite().all(), self.total, torch.nan)
        return float(total) / (self.method.outer * self.classes)

    def images(self) -> Images:
        """A copy of the synthetic images as they are now."""
        return Images(self.x.flatten(0, 1)[self.slots], self.y.clone())

    def save(self, checkpoint: Checkpoint, iteration: int) -> None:
        checkpoint.save({"x": self.x, "velocity": self.velocity}, {"iteration": iteration})

    def load(self, checkpoint: Checkpoint) -> int:
        """Take up what a checkpoint holds; returns the iterations made."""
        if (saved := checkpoint.load()) is None:
            return 0
        self.x.copy_(saved[0]["x"])
        self.velocity.copy_(saved[0]["velocity"])
        return int(saved[1]["iteration"])


def _filled(y: Tensor, classes: int) -> Tensor:
    """Which slots hold an image in a table ``[classes, most]`` of images, one row a class."""
    counts = y.bincount(minlength=classes)
    return torch.arange(int(counts.max()), device=y.device) < counts[:, None]


def _mean_weights(filled: Tensor, like: Tensor) -> Tensor:
    """Weights that make the sum over a row the mean over its filled slots."""
    filled = filled.to(like)
    return filled / filled.sum(1, keepdim=True)


@contextmanager
def _tuned_convolutions() -> Iterator[None]:
    """cuDNN tries its algorithms the first time it meets a shape."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@dataclass(frozen=True)
class DC(ImageMatching):
    """Dataset condensation with gradient matching; starts from Gaussian noise, no augmentation.

    Example:
        >>> DC(outer=10, inner=50).settings()["inner"]  # the published loops at 10 images a class
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

    At every step the real and the synthetic images of a class are shown with one operation and one parameter
    (see `draw_augmentation`); the network's epochs draw an operation a batch and parameters for each image.
    """

    name = "dsa"
    title = "DSA"
    augmented = True

    def start(self, task: ImageTask, part: str, size: int, seed: int) -> Tensor:
        return task.sample(part, size, derive(seed, self.name, part, "start")).x
