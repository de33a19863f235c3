"""TM: condense images so that training on them follows the trajectories of training on the original.

A student starts at the parameters theta*_t of an expert after t epochs on the original images. It takes N SGD
steps theta_{k+1} = theta_k - a g_k with g_k = dL/dtheta (theta_k, A_k X_k) on augmented synthetic images, and
should arrive where the expert is M epochs later. Pixels and step size a minimise

    D = ||theta_N - theta*_{t+M}||^2 / ||theta*_t - theta*_{t+M}||^2.

Autograd would keep the graph of all N steps. The exact derivative does not need it: with v_k = dD/dtheta_k,

    v_N = 2 (theta_N - theta*_{t+M}) / ||theta*_t - theta*_{t+M}||^2,   v_k = v_{k+1} - a H_k v_{k+1},
    dD/dX  = - a sum_k A_k^T d<g_k, v_{k+1}>/d(A_k X_k),                dD/da = - sum_k <g_k, v_{k+1}>,

where H_k is the Hessian of L at theta_k. The forward pass keeps N + 1 parameter vectors (a megabyte each),
the backward pass recomputes each step, and `loss_products` gives its three products in one pass. Memory is
that of one step for any N. (TESLA's constant-memory form is this recursion with v_k = v_N throughout: it
drops the Hessians, so it is exact for N = 1 and up to terms of order a otherwise.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.condensers._base import Iterate, Iterative
from hcdc.condensers._class_images import convnet
from hcdc.condensers._experts import (
    AUGMENTED,
    PULLED_BACK,
    ExpertTrainer,
    forget_experts,
    train_experts,
)
from hcdc.condensers._forecast import made_once, measured
from hcdc.core.checkpoint import Checkpoint, Loop, Resumable
from hcdc.core.errors import HcdcError
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive, stream
from hcdc.core.settings import setting
from hcdc.core.told import counted
from hcdc.datasets import Images
from hcdc.networks import ConvNet, loss_gradient, loss_products
from hcdc.tasks import ImageTask, Task
from hcdc.training import Augmentation, draw_each, recorded

CHECK = 10
"""Iterations between two readings of the distance; each waits for the device."""

MOMENTUM = 0.5
SMALLEST = 1e-3
"""The step size never falls below this share of its initial value."""

PRECISIONS = ("tf32", "bf16")


@dataclass(frozen=True)
class TM(Iterative):
    """Trajectory matching (Matching Training Trajectories).

    Synthetic images start as original ones, and the last iterate is returned. Only labels of the condensed
    part are used. Experts are trained first (ConvNets on the original images of that part, with augmentation)
    and kept in memory after each of the first ``start_epochs + target_epochs - 1`` epochs. Experts and
    students use DSA's augmentation: one operation per batch, separate parameters for each image.

    Attributes:
        iterations: Steps on the synthetic set.
        student_steps: N, steps of the student.
        target_epochs: M, the expert epochs that these should match.
        start_epochs: T+; students start from an expert after t < T+ epochs.
        batch: Synthetic images per student step; 0 takes all.
        lr_img, lr_step: Learning rates of the pixels and of the step size; SGD with momentum .5.
        step_size: Initial a.
        experts: Number of experts (published: 100).
        expert_lr, expert_batch: SGD settings of the experts, without momentum and weight decay.
        width, depth: Size of the ConvNet.
        precision: Type of the student's convolutions on CUDA: ``"tf32"`` or ``"bf16"``. Experts are trained
            in bf16. Elsewhere both are float32.
    """

    iterations: int = setting(5000, least=1)
    student_steps: int = setting(30, least=1)
    target_epochs: int = setting(2, least=1)
    start_epochs: int = setting(40, least=1)
    batch: int = setting(0, least=0)
    lr_img: float = setting(1000.0, above=0)
    lr_step: float = setting(1e-5, least=0)
    step_size: float = setting(1e-3, above=0)
    experts: int = setting(20, least=1)
    expert_lr: float = setting(0.01, above=0)
    expert_batch: int = setting(256, least=1)
    width: int = setting(128, least=1)
    depth: int = setting(3, least=1)
    precision: str = setting("bf16", choices=PRECISIONS)

    name = "tm"
    takes = ("image",)

    @property
    def expert_epochs(self) -> int:
        """Epochs of an expert: as far as a student may aim."""
        return self.start_epochs + self.target_epochs - 1

    def trains(self, task: Task) -> str:
        return f"{counted(self.experts, 'expert')} trained for {counted(self.expert_epochs, 'epoch')}"

    def seconds(self, task: Task, part: str, size: int) -> float:
        """From one step of an expert and one student step, forwards and backwards."""
        images: ImageTask = self.check_task(task)
        whole, net = images.part(part), convnet(images, self.width, self.depth)
        device, batch = whole.y.device, min(self.expert_batch, len(whole))

        def expert(count: int) -> ExpertTrainer:
            some = Images(whole.x[:count], whole.y[:count])
            return ExpertTrainer(net, some, images.inputs, self.expert_lr, count)

        def student(count: int) -> Callable[[], object]:
            short = dataclasses.replace(self, student_steps=1, batch=0)
            match = Matching(short, net, images.chosen(part, torch.arange(count)))
            match.record()
            match.draw(0)
            start = match.thetas[0].clone()
            return lambda: match.derivatives(start, start + 1)

        steps = self.experts * self.expert_epochs * math.ceil(len(whole) / batch)
        trained = steps * measured(made_once(lambda count: expert(count).step), batch, device).at(batch)
        used = min(self.batch or size, size)
        once = measured(made_once(student), used, device).at(used)
        return trained + self.iterations * self.student_steps * once

    def iterates(
        self, task: Task, part: str, size: int, seed: int, *,
        progress: Progress, checkpoint: Checkpoint, every: int = 0,
    ) -> Iterator[Iterate]:  # fmt: skip
        images: ImageTask = self.check_task(task)
        start = images.sample(part, size, derive(seed, self.name, part, "start"))
        match = Matching(self, convnet(images, self.width, self.depth), start)
        loop = Loop(match, checkpoint, self.iterations, "TM", "iteration", every=CHECK)
        if loop.done < self.iterations:
            try:
                for step in self._run(images, part, seed, match, loop, progress):
                    if every and step % every == 0 and step < self.iterations:
                        yield Iterate(step, match.images(), {"step_size": float(match.size)})
            except HcdcError:
                forget_experts(checkpoint, self.experts)  # the same run would fail here again
                raise
            forget_experts(checkpoint, self.experts)
        yield Iterate(None, match.images(), {"step_size": float(match.size)})

    def _run(
        self,
        task: ImageTask,
        part: str,
        seed: int,
        match: Matching,
        loop: Loop,
        progress: Progress,
    ) -> Iterator[int]:
        """Make all remaining iterations; yields the number done after each."""
        experts = train_experts(
            lambda: ExpertTrainer(match.net, task.part(part), task.inputs, self.expert_lr, self.expert_batch),
            self.experts,
            self.expert_epochs,
            seed,
            self.name,
            part,
            "expert",
            device=match.device,
            progress=progress,
            checkpoint=loop.checkpoint,
        )
        match.record()
        figure = ""
        for iteration in loop.steps(progress.phase("TM", self.iterations)):
            pick = stream(seed, self.name, part, "pick", iteration)
            expert = experts[int(torch.randint(self.experts, (1,), generator=pick))]
            t = int(torch.randint(self.start_epochs, (1,), generator=pick))
            match.draw(derive(seed, self.name, part, "draw", iteration))
            match.step(expert[t], expert[t + self.target_epochs])
            if (iteration + 1) % CHECK == 0 or iteration + 1 == self.iterations:
                figure = match.figure(loop)
            loop.made(figure)
            yield loop.done


class Matching(Resumable):
    """The synthetic images and everything else that an iteration reads and writes, at fixed addresses.

    Args:
        config: The settings.
        net: The network.
        start: The initial images; labels stay.

    Attributes:
        x: Images ``[n, c, h, w]``.
        size: The step size a, a number.
        order: Images of each student step ``[N, b]``.
        parameters: Augmentation of each student step, ``[N, b, ...]``.
        thetas: theta_0 .. theta_N, ``[N + 1, P]``.
        v: dD/dtheta_k ``[P]``.
        dx, dsize: dD/dX ``[n, c, h, w]`` and dD/da.
    """

    def __init__(self, config: TM, net: ConvNet, start: Images):
        self.config, self.net, self.y = config, net, start.y
        x, steps = start.x.detach().clone(), config.student_steps
        self.x, self.device = x, x.device
        self.dtype = torch.bfloat16 if config.precision == "bf16" and x.is_cuda else x.dtype
        self.size = torch.full((), config.step_size, dtype=x.dtype, device=x.device)
        self.batch = min(config.batch, len(x)) or len(x)
        length = sum(math.prod(shape) for shape in net.shapes().values())
        self.thetas = x.new_zeros(steps + 1, length)
        self.v = x.new_zeros(length)
        self.velocity, self.dx = torch.zeros_like(x), torch.zeros_like(x)
        self.size_velocity, self.dsize, self.total = (torch.zeros_like(self.size) for _ in range(3))
        self.counted = 0
        self.counter = torch.zeros(1, dtype=torch.long, device=x.device)
        self.generator = torch.Generator(x.device)
        self.order = torch.zeros(steps, self.batch, dtype=torch.long, device=x.device)
        identity = Augmentation.identity(steps * self.batch, net.size, x.device)
        self.parameters = [t.view(steps, self.batch, *t.shape[1:]) for t in identity.tensors()]
        self.forwards: Callable[[], object] = self._forward
        self.backwards: Callable[[], object] = self._backward

    def record(self) -> None:
        """Make both kinds of step cost one launch each on CUDA; call it before many iterations."""
        changed = [self.thetas, self.v, self.dx, self.dsize, self.counter]
        self.forwards = recorded(self._forward, self.device, changed)
        self.backwards = recorded(self._backward, self.device, changed)

    def draw(self, seed: int) -> None:
        """Draw the batches and augmentations of one iteration."""
        steps, count, generator = self.config.student_steps, len(self.x), self.generator.manual_seed(seed)
        per_epoch = count // self.batch
        epochs = -(-steps // per_epoch)
        keys = torch.rand(epochs, count, generator=generator, device=self.device)
        order = keys.argsort(1)[:, : per_epoch * self.batch].reshape(-1, self.batch)
        self.order.copy_(order[:steps])
        drawn = draw_each(generator, self.batch, self.net.size, batches=steps)
        for own, new in zip(self.parameters, drawn.tensors()):
            own.copy_(new.view(own.shape))

    def _at(self) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """theta_k, rows, augmented images and augmentation of student step k, given by the counter."""
        k = self.counter.clamp(0, self.config.student_steps - 1)  # recording runs past the ends
        theta, rows, *parameters = (
            t.index_select(0, k).squeeze(0) for t in (self.thetas, self.order, *self.parameters)
        )
        return theta, rows, AUGMENTED(self.x.index_select(0, rows), *parameters), parameters

    @torch.no_grad()
    def _forward(self) -> None:
        """From theta_k to theta_{k+1}."""
        theta, rows, x, _ = self._at()
        g = loss_gradient(self.net, theta, x, self.y.index_select(0, rows), self.dtype, fixed=True)
        self.counter.add_(1).clamp_max_(self.config.student_steps)
        self.thetas.index_copy_(0, self.counter, (theta - self.size * g)[None])

    @torch.no_grad()
    def _backward(self) -> None:
        """From v_{k+1} to v_k; adds step k's share to the derivatives."""
        self.counter.sub_(1)
        theta, rows, x, parameters = self._at()
        y = self.y.index_select(0, rows)
        slope, curved, mixed = loss_products(self.net, theta, self.v, x, y, self.dtype)
        self.dsize -= slope
        self.dx.index_add_(0, rows, -self.size * PULLED_BACK(mixed, *parameters))
        self.v -= self.size * curved

    @torch.no_grad()
    def derivatives(self, start: Tensor, target: Tensor) -> Tensor:
        """D for an expert's ``start`` and ``target`` ``[P]``; stores dD/dX and dD/da."""
        steps = self.config.student_steps
        self.thetas[0] = start
        self.counter.zero_()
        for _ in range(steps):
            self.forwards()
        apart, moved = self.thetas[steps] - target, (start - target).square().sum()
        self.v.copy_(2 * apart / moved)
        self.dx.zero_()
        self.dsize.zero_()
        for _ in range(steps):
            self.backwards()
        return apart.square().sum() / moved

    @torch.no_grad()
    def step(self, start: Tensor, target: Tensor) -> None:
        """One iteration: SGD on the pixels and on the step size, which stays positive."""
        self.total += self.derivatives(start, target)
        self.counted += 1
        self.velocity.mul_(MOMENTUM).add_(self.dx)
        self.x.sub_(self.velocity, alpha=self.config.lr_img)
        self.size_velocity.mul_(MOMENTUM).add_(self.dsize)
        self.size.sub_(self.size_velocity, alpha=self.config.lr_step)
        self.size.clamp_(min=SMALLEST * self.config.step_size)

    def figure(self, loop: Loop) -> str:
        """The mean distance since the last reading and the step size, in words; an error if it is NaN."""
        mean, size = float(self.total) / max(1, self.counted), float(self.size)
        self.total.zero_()
        self.counted = 0
        loop.check(
            f"the distance to the expert is {mean} at step size {size:.3g}, which began at "
            f"{self.config.step_size}; try a smaller lr_img ({self.config.lr_img}) or lr_step "
            f"({self.config.lr_step})",
            mean,
            size,
            self.x,
        )
        return f"distance {mean:.4f}, step size {size:.3g}"

    def images(self) -> Images:
        """The current images."""
        return Images(self.x.clone(), self.y)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "x": self.x,
            "velocity": self.velocity,
            "size": self.size,
            "size_velocity": self.size_velocity,
        }
