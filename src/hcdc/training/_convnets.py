"""Training ConvNet-3 on images, to judge image condensers by its accuracy and to compute embeddings.

At batch 256 and 32 x 32 pixels, a step takes 78 GFLOP in about 60 kernels, and the first activations alone
take 67 MB in bfloat16. One network fills a large GPU, so networks train one after another. Each step is one
launch of a recorded graph, and nothing is read back before the end. On CUDA the derivatives are written out
as blocks that the compiler fuses; elsewhere autograd through torch's own kernels is faster.

A network's parameters are one vector: drawing, casting and updating it takes one kernel each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.checkpoint import Checkpoint, Loop, Resumable
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.seeds import derive
from hcdc.core.settings import Settings, setting
from hcdc.datasets import ImageData, Images
from hcdc.networks import ConvNet, Features, Initialiser, Params, compute_type, loss_gradient, pays
from hcdc.tasks import ImageTask
from hcdc.training._augment import Augmentation, draw_each, shown
from hcdc.training._captured import Captured

BLOCK = 48
"""Training steps whose random numbers are drawn at once."""

CHUNK = 1000
"""Images scored at once."""


@dataclass(frozen=True)
class ConvNetRecipe(Settings):
    """The published protocol to evaluate condensed images, without augmentation by default.

    Attributes:
        epochs: Passes over the training set (published: 300, or 1000 with augmentation). At epoch
            ``epochs // 2 + 1``, counted from 0, the learning rate falls to a tenth and the momentum resets.
        lr, momentum, weight_decay, batch: SGD settings.
        augment: Apply the operations of differentiable siamese augmentation, with separate parameters per
            image.
        width, depth: Size of the network.
    """

    epochs: int = setting(300, least=1)
    lr: float = setting(0.01, above=0)
    momentum: float = setting(0.9, least=0, below=1)
    weight_decay: float = setting(5e-4, least=0)
    batch: int = setting(256, least=1)
    augment: bool = False
    width: int = setting(128, least=1)
    depth: int = setting(3, least=1)

    @classmethod
    def owner(cls) -> str:
        return "a ConvNet recipe"

    def net(self, task: ImageTask) -> ConvNet:
        """The network for the images of a task."""
        channels, height, width = task.data.shape
        return ConvNet(channels, task.num_classes, (height, width), self.width, self.depth)


def recorded(step: Callable[[], object], device: torch.device, changed: Sequence[Tensor]) -> Captured:
    """`Captured`, using the fastest convolutions that a benchmark run finds."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        return Captured(step, device, changed)
    finally:
        torch.backends.cudnn.benchmark = before


def train_convnets(
    task: ImageTask,
    train: Images,
    seeds: Sequence[int],
    recipe: ConvNetRecipe | None = None,
    *,
    on_epoch: Callable[[int], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[Params]:
    """Train one ConvNet per seed; a network does not depend on which others are trained.

    Args:
        task: Gives the classes, image shape and normalisation.
        train: Original images (``task.train``) or a small set, on the device to train on.
        seeds: One per network, for initialisation, image order and augmentation.
        recipe: The settings; defaults to the published ones.
        on_epoch: Called with the number of epochs done over all networks (on CUDA: launched).
        checkpoint: Where to continue from; one file per network.

    Returns:
        Parameters of ``recipe.net(task)`` after the last epoch.
    """
    recipe = recipe or ConvNetRecipe()
    if train.weight is not None:
        raise InputError("ConvNets train on unweighted images, but these carry weights; leave them out")
    trainer = _Trainer(task, train, recipe)
    trained = []
    for k, seed in enumerate(seeds):
        for epoch in trainer.run(seed, (checkpoint or Checkpoint(None)).child(str(k))):
            if on_epoch is not None:
                on_epoch(k * recipe.epochs + epoch)
        trained.append(trainer.vector.detach().clone())
    if not all(bool(vector.isfinite().all()) for vector in trained):
        raise NumericalError(
            f"the ConvNet's training diverged at learning rate {recipe.lr}; try a smaller one"
        )
    return [trainer.net.views(vector) for vector in trained]


class _Trainer(Resumable):
    """One network's tensors and its recorded step, reused for every seed."""

    def __init__(self, task: ImageTask, train: Images, recipe: ConvNetRecipe):
        self.task, self.train, self.recipe = task, train, recipe
        device = train.x.device
        self.net = recipe.net(task)
        self.dtype = compute_type(device)
        self.initialiser = Initialiser(self.net, device)
        self.generator = torch.Generator(device)
        self.vector = torch.zeros(self.initialiser.length, device=device)
        self.velocity = torch.zeros_like(self.vector)
        self.lr = torch.tensor(recipe.lr, device=device)
        self.batch = min(recipe.batch, len(train))
        self.index = torch.zeros(self.batch, dtype=torch.long, device=device)
        self.weight = torch.ones(self.batch, device=device)
        self.augmentation = Augmentation.identity(self.batch if recipe.augment else 0, self.net.size, device)
        self.step = recorded(self._step, device, [self.vector, self.velocity])

    def _step(self) -> None:
        """One SGD step on the images ``index``, weighted by ``weight``."""
        x, y = self.task.inputs(self.train.x[self.index]), self.train.y[self.index]
        if self.recipe.augment:
            x = shown(x[:, None], self.augmentation, self.dtype)
        weight = self.weight / self.weight.sum()
        gradient = loss_gradient(self.net, self.vector, x, y, self.dtype, weight)
        gradient.add_(self.vector, alpha=self.recipe.weight_decay)
        self.velocity.mul_(self.recipe.momentum).add_(gradient)
        self.vector.sub_(self.lr * self.velocity)

    def tensors(self) -> dict[str, Tensor]:
        state = {"vector": self.vector, "velocity": self.velocity, "lr": self.lr}
        return {**state, "generator": self.generator.get_state()}

    def values(self) -> dict[str, Any]:
        return {"device": self.vector.device.type}  # generator states differ between devices

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        if values["device"] != self.vector.device.type:
            return False
        self.generator.set_state(tensors["generator"])
        return super().restore(tensors, values)

    def run(self, seed: int, checkpoint: Checkpoint) -> Iterator[int]:
        """Train from a fresh start or from a checkpoint; yields the number of epochs done."""
        recipe, count, batch = self.recipe, len(self.train), self.batch
        steps = -(-count // batch)
        device = self.vector.device
        valid = (torch.arange(steps * batch, device=device) < count).view(steps, batch)
        self.generator.manual_seed(seed)
        u = torch.rand(self.initialiser.length, generator=self.generator, device=device)
        self.initialiser.write(self.vector, u)
        at_once = max(1, BLOCK // steps)
        loop = Loop(self, checkpoint, recipe.epochs, every=at_once)
        for epoch in loop.steps():
            if epoch in (0, recipe.epochs // 2 + 1):
                self.lr.fill_(recipe.lr if epoch == 0 else 0.1 * recipe.lr)
                self.velocity.zero_()
            if epoch % at_once == 0:
                order, drawn = self._draw(at_once, steps)
            for k in range(steps):
                row = epoch % at_once * steps + k
                self.index.copy_(order[row])
                self.weight.copy_(valid[k])
                if drawn is not None:
                    self.augmentation.copy_from(drawn[row * batch : (row + 1) * batch])
                self.step()
            loop.made()
            yield loop.done

    def _draw(self, epochs: int, steps: int) -> tuple[Tensor, Augmentation | None]:
        """Draw image orders ``[epochs * steps, batch]`` (padded with image 0) and augmentation."""
        device, count = self.index.device, len(self.train)
        keys = torch.rand(epochs, count, generator=self.generator, device=device)
        order = F.pad(keys.argsort(1), (0, steps * self.batch - count)).view(-1, self.batch)
        if not self.recipe.augment:
            return order, None
        return order, draw_each(self.generator, self.batch, self.net.size, batches=epochs * steps)


@torch.no_grad()
def embeddings(task: ImageTask, net: ConvNet, params: Params, images: Images) -> Tensor:
    """Embeddings ``[m, features_out]`` of all images, in float32."""
    return torch.cat([_embedded(net, params, task.inputs(x)) for x in torch.split(images.x, CHUNK)])


@torch.no_grad()
def accuracy(task: ImageTask, net: ConvNet, params: Params, images: Images) -> Tensor:
    """Share of images classified correctly, as a tensor on their device."""
    right = []
    for x, y in zip(torch.split(images.x, CHUNK), torch.split(images.y, CHUNK)):
        points = _embedded(net, params, task.inputs(x))
        outputs = F.linear(points, params["linear.weight"].float(), params["linear.bias"].float())
        right.append((outputs.argmax(1) == y).sum())
    return torch.stack(right).sum().double() / len(images)


def _embedded(net: ConvNet, params: Params, x: Tensor) -> Tensor:
    """Embeddings of a chunk in float32, without derivatives."""
    dtype = compute_type(x.device)
    if pays(x.device):
        return Features(net, params, x, dtype).values
    return net.embed({name: p.to(dtype) for name, p in params.items()}, x).float()


def convnet_accuracy(
    train: Images,
    data: ImageData,
    networks: int = 20,
    *,
    augment: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    recipe: ConvNetRecipe | None = None,
) -> dict[str, Any]:
    """Test accuracy of ConvNets trained on a small set of images, by the published protocol.

    The last epoch counts; no validation or test image influences any choice.

    Args:
        train: The small set: normalised floating point images as condensers return them, on the device to
            train on.
        data: The original data set.
        networks: How many fresh networks to train.
        augment: Train with augmentation, as in the published evaluations of DSA, DM and trajectory matching.
        epochs: Defaults to 1000 with augmentation and 300 without.
        seed: Seed for the whole measurement.
        recipe: Other settings; ``epochs`` and ``augment`` given here take precedence.

    Returns:
        ``test_accuracy`` (mean over networks), ``test_std``, the list ``test_accuracies``, ``networks``,
        ``epochs``, ``augment`` and ``lr``; accuracies are between 0 and 1.
    """
    if networks < 1:
        raise InputError(f"networks {networks}: at least 1 network is needed")
    chosen = epochs if epochs is not None else (1000 if augment else 300)
    recipe = dataclasses.replace(recipe or ConvNetRecipe(), epochs=chosen, augment=augment)
    task = ImageTask(data.to(train.x.device), model="convnet")
    net, test = recipe.net(task), task.test
    seeds = [derive(seed, "convnet", k) for k in range(networks)]
    found = [accuracy(task, net, params, test) for params in train_convnets(task, train, seeds, recipe)]
    scores = torch.stack(found).cpu()
    return {
        "test_accuracy": float(scores.mean()),
        "test_std": float(scores.std(correction=0)),
        "test_accuracies": scores.tolist(),
        "networks": networks,
        "epochs": recipe.epochs,
        "augment": augment,
        "lr": recipe.lr,
    }
