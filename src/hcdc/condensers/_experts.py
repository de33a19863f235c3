"""Experts for trajectory matching: ConvNets trained on original images, with parameters saved per epoch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vjp

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive, stream
from hcdc.datasets import Images
from hcdc.networks import ConvNet, Fused, compute_type, loss_gradient
from hcdc.training import Augmentation, augment_each, draw_each, recorded


def _augmented(x: Tensor, *parameters: Tensor) -> Tensor:
    return augment_each(x, Augmentation(*parameters))


def _pulled_back(dx: Tensor, *parameters: Tensor) -> Tensor:
    """The transpose of the linear part of `_augmented`."""
    pulled: Tensor = vjp(lambda x: _augmented(x, *parameters), torch.zeros_like(dx))[1](dx)[0]
    return pulled


AUGMENTED, PULLED_BACK = Fused(_augmented), Fused(_pulled_back)


class ExpertTrainer:
    """Plain SGD on augmented original images, as one recorded step on fixed tensors.

    Each epoch visits every image once, in a fresh order; the last batch is filled up from the start of that
    order. Augmentation is DSA's: one operation per batch, separate parameters for each image.

    Args:
        net: The network.
        images: Original images as stored, on the device.
        inputs: Turns stored pixels into network inputs.
        lr: Learning rate; no momentum, no weight decay.
        batch: Images per step.
    """

    def __init__(
        self,
        net: ConvNet,
        images: Images,
        inputs: Callable[[Tensor], Tensor],
        lr: float,
        batch: int,
    ):
        self.net, self.images, self.inputs, self.lr = net, images, inputs, lr
        self.device = images.y.device
        self.batch = min(batch, len(images))
        self.steps = math.ceil(len(images) / self.batch)
        like = inputs(images.x[:1])
        self.theta = net.flatten(net.init(torch.Generator().manual_seed(0))).to(like)
        self.counter = torch.zeros(1, dtype=torch.long, device=self.device)
        self.order, self.parameters = self._draw(torch.Generator(self.device).manual_seed(0))
        self.step = recorded(self._step, self.device, [self.theta, self.counter])

    def _draw(self, generator: torch.Generator) -> tuple[Tensor, list[Tensor]]:
        """Order ``[steps, batch]`` and augmentation ``[steps, batch, ...]`` for one epoch."""
        order = torch.randperm(len(self.images), generator=generator, device=self.device)
        missing = self.steps * self.batch - len(order)
        drawn = draw_each(generator, self.batch, self.net.size, batches=self.steps)
        return (
            torch.cat([order, order[:missing]]).view(self.steps, self.batch),
            [t.view(self.steps, self.batch, *t.shape[1:]) for t in drawn.tensors()],
        )

    @torch.no_grad()
    def _step(self) -> None:
        k = self.counter.remainder(self.steps)  # recording runs past the end
        rows, *parameters = (t.index_select(0, k).squeeze(0) for t in (self.order, *self.parameters))
        x = AUGMENTED(self.inputs(self.images.x.index_select(0, rows)), *parameters)
        y = self.images.y.index_select(0, rows)
        dtype = compute_type(self.device, x.dtype)
        self.theta -= self.lr * loss_gradient(self.net, self.theta, x, y, dtype, fixed=True)
        self.counter += 1

    @torch.no_grad()
    def train(self, epochs: int, seed: int, *keys: object) -> Tensor:
        """Train one expert: theta before the first and after each epoch, ``[epochs + 1, P]``."""
        self.theta.copy_(self.net.flatten(self.net.init(stream(seed, *map(str, keys), "init"))))
        path = self.theta.new_empty(epochs + 1, len(self.theta))
        path[0] = self.theta
        generator = torch.Generator(self.device)
        for epoch in range(epochs):
            order, parameters = self._draw(generator.manual_seed(derive(seed, *map(str, keys), epoch)))
            for own, new in zip((self.order, *self.parameters), (order, *parameters)):
                own.copy_(new)
            self.counter.zero_()
            for _ in range(self.steps):
                self.step()
            path[epoch + 1] = self.theta
        return path


def train_experts(
    make: Callable[[], ExpertTrainer],
    count: int,
    epochs: int,
    seed: int,
    *keys: object,
    device: torch.device,
    progress: Progress,
    checkpoint: Checkpoint,
) -> list[Tensor]:
    """``count`` experts ``[epochs + 1, P]`` on ``device``.

    Each is saved when done; after an interruption, saved experts are loaded.

    Args:
        make: Makes the trainer, if one is needed.
        seed, keys: Determine all draws, together with the expert's number.
    """
    phase = progress.phase("TM experts", count)
    experts, trainer = [], None
    for number in range(count):
        store = checkpoint.child(f"expert{number}")
        if (saved := store.load()) is not None:
            path = saved[0]["path"].to(device)
        else:
            trainer = trainer or make()
            path = trainer.train(epochs, seed, *keys, number)
            if not bool(path[-1].isfinite().all()):
                raise NumericalError(
                    f"expert {number + 1} of {count} diverged: its parameters are NaN or infinite after "
                    f"{epochs} epochs at learning rate {trainer.lr}; try a smaller expert_lr"
                )
            store.save({"path": path}, {})
        experts.append(path)
        phase.step(number + 1)
    return experts


def forget_experts(checkpoint: Checkpoint, count: int) -> None:
    """Remove the files of `train_experts`."""
    for number in range(count):
        checkpoint.child(f"expert{number}").remove()
