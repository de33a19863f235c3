"""Coresets of images: embeddings by a ConvNet trained on the original, choice class by class."""

from __future__ import annotations

import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from hcdc.condensers._forecast import measured
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.labels import members
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.datasets import Images
from hcdc.networks import Params
from hcdc.tasks import ImageTask
from hcdc.training import ConvNetRecipe, compute_type, embeddings, loss_gradient, train_convnets

TRAINED: WeakKeyDictionary[ImageTask, dict[tuple[ConvNetRecipe, int], Params]] = WeakKeyDictionary()
"""ConvNets behind embeddings, by task, recipe and seed; they go with the task."""

Choose = Callable[[Tensor, int], Tensor]
"""``choose(points [m, k], count)``: positions of the chosen among the points of one class."""


EPOCHS, LEAST_STEPS = 40, 240


def embedding_steps(count: int) -> int:
    """Steps of the network behind embeddings of ``count`` training images: 40 epochs, at least 240 steps."""
    return max(LEAST_STEPS, EPOCHS * math.ceil(count / ConvNetRecipe.batch))


def choose_images(
    task: ImageTask,
    part: str,
    size: int,
    choose: Choose,
    embed: Callable[[], Tensor],
    checkpoint: Checkpoint,
) -> Images:
    """Real images of a part, equally many a class, chosen by their embeddings.

    Args:
        task: The task.
        part: ``"train"`` or ``"val"``.
        size: How many.
        choose: Chooses within a class.
        embed: Gives the embeddings ``[m, k]`` of all images of the part.
        checkpoint: Holds the choice once it is made.
    """
    counts = task.labels(part, size).bincount(minlength=task.num_classes).tolist()
    if (saved := checkpoint.load()) is not None:
        return task.chosen(part, saved[0]["picked"])
    points, of_class = embed(), members(task.part(part).y, task.num_classes)
    picked = torch.cat(
        [of[choose(points[of.to(points.device)], count)] for of, count in zip(of_class, counts)]
    )
    checkpoint.save({"picked": picked}, {})
    return task.chosen(part, picked)


def embed_images(
    task: ImageTask,
    part: str,
    steps: int,
    width: int,
    seed: int,
    progress: Progress,
    name: str,
    checkpoint: Checkpoint,
) -> Tensor:
    """Embeddings ``[m, k]`` of a part: penultimate features of a ConvNet-3 trained on T_train, last epoch.

    The network is trained once for a task: T_train and T_val are embedded by the same.

    Args:
        steps: Training steps, rounded up to whole epochs.
        width: Of the network.
        name: Of the method that asks, for the report.
        checkpoint: Of the network.
    """
    per_epoch = math.ceil(len(task.train) / ConvNetRecipe.batch)
    recipe = ConvNetRecipe(epochs=math.ceil(steps / per_epoch), width=width)
    own, key = derive(seed, "coreset"), (recipe, seed)
    trained = TRAINED.setdefault(task, {})
    if key not in trained:
        phase = progress.phase(f"ConvNet embedding for {name}", recipe.epochs)
        (trained[key],) = train_convnets(
            task, task.train, [own], recipe, on_epoch=phase.step, checkpoint=checkpoint
        )
    return embeddings(task, recipe.net(task), trained[key], task.part(part))


def embedding_seconds(task: ImageTask, steps: int, width: int) -> float:
    """Seconds of the training behind `embed_images`, from a few gradients."""
    net, device = ConvNetRecipe(width=width).net(task), task.train.y.device
    vector = torch.zeros(sum(math.prod(shape) for shape in net.shapes().values()), device=device)
    batch = min(ConvNetRecipe.batch, len(task.train))

    def work(count: int) -> None:
        images = task.chosen("train", torch.arange(count))
        weight = torch.ones(count, device=device)
        loss_gradient(net, vector, images.x, images.y, weight, compute_type(device))

    return steps * measured(work, batch, device).at(batch)
