"""Embeddings of original examples, for choosing coresets: by a network trained on T_train; rows need none."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from hcdc.condensers._forecast import measured
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.labels import allocate_labels, members
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.networks import Params, compute_type, loss_gradient
from hcdc.tasks import GraphTask, ImageTask, Task
from hcdc.training import (
    ConvNetRecipe,
    GCNRecipe,
    embeddings,
    gcn_inputs,
    gcn_logits,
    train_convnets,
    train_gcn,
)

if TYPE_CHECKING:
    from hcdc.condensers._coreset import Coreset

EPOCHS, LEAST_STEPS = 40, 240
"""Epochs of the ConvNet behind embeddings, and its fewest steps."""

TRAINED: WeakKeyDictionary[ImageTask, dict[tuple[ConvNetRecipe, int], Params]] = WeakKeyDictionary()
"""ConvNets behind embeddings, by task, recipe and seed; freed with the task."""


class Embedding(ABC):
    """How to embed the examples of one kind of data.

    Attributes:
        network: Name of the trained network; empty if there is none.
    """

    network: ClassVar[str] = ""

    @abstractmethod
    def points(
        self, by: Coreset, task: Any, part: str, seed: int, progress: Progress, checkpoint: Checkpoint
    ) -> Tensor:
        """Embeddings ``[m, k]`` of the examples of a part.

        ``by`` says how long and how wide a network to train; it may be saved beside the ``checkpoint``.
        """

    def groups(self, task: Any, part: str, size: int) -> list[tuple[Tensor, int]]:
        """Positions of the examples of each class, and how many of them to choose."""
        counts = task.labels(part, size).bincount(minlength=task.num_classes).tolist()
        return list(zip(members(task.part(part).y, task.num_classes), counts))

    def chosen(self, task: Any, part: str, picked: Tensor) -> Any:
        """The examples at positions ``picked`` ``[m]``."""
        return task.chosen(part, picked)

    def settings(self, task: Any) -> dict[str, int]:
        """Default coreset settings for a task."""
        return {}

    def seconds(self, by: Coreset, task: Any, part: str) -> float | None:
        """Seconds of training, from a short trial; None if unpredictable."""
        return None


class NodeEmbedding(Embedding):
    """Log-softmax outputs of a 2-layer GCN after the last step, as in GCond's coresets."""

    network = "GCN"

    def points(
        self, by: Coreset, task: GraphTask, part: str, seed: int, progress: Progress, checkpoint: Checkpoint
    ) -> Tensor:
        phase = progress.phase(f"GCN embedding for {by.name}", by.steps)
        recipe = GCNRecipe(steps=by.steps, hidden=by.hidden)
        run = train_gcn(task.train, task.num_classes, [derive(seed, "coreset")], recipe, on_step=phase.step)
        return gcn_logits(run.last, gcn_inputs(task.part(part)))[:, 0].log_softmax(-1).cpu()


class ImageEmbedding(Embedding):
    """Inputs of the last layer of a ConvNet-3 after the last epoch, trained without augmentation.

    The network is trained once per task: it embeds both T_train and T_val. Steps are rounded up to whole
    epochs.
    """

    network = "ConvNet"

    def points(
        self, by: Coreset, task: ImageTask, part: str, seed: int, progress: Progress, checkpoint: Checkpoint
    ) -> Tensor:
        place = checkpoint.beside("network")
        place = place if part == "train" else place.timed_anew()  # its seconds count for S_train
        per_epoch = math.ceil(len(task.train) / ConvNetRecipe.batch)
        recipe = ConvNetRecipe(epochs=math.ceil(by.steps / per_epoch), width=by.hidden)
        own, key = derive(seed, "coreset"), (recipe, seed)
        trained = TRAINED.setdefault(task, {})
        if key not in trained:
            phase = progress.phase(f"ConvNet embedding for {by.name}", recipe.epochs)
            (trained[key],) = train_convnets(
                task, task.train, [own], recipe, on_epoch=phase.step, checkpoint=place
            )
        return embeddings(task, recipe.net(task), trained[key], task.part(part))

    def settings(self, task: ImageTask) -> dict[str, int]:
        """Width 128 and 40 epochs, as for CIFAR-10, but at least 240 steps."""
        steps = EPOCHS * math.ceil(len(task.train) / ConvNetRecipe.batch)
        return {"steps": max(LEAST_STEPS, steps), "hidden": 128}

    def seconds(self, by: Coreset, task: ImageTask, part: str) -> float:
        if part != "train":
            return 0.0  # already trained
        net, device = ConvNetRecipe(width=by.hidden).net(task), task.train.y.device
        vector = torch.zeros(sum(math.prod(shape) for shape in net.shapes().values()), device=device)
        batch = min(ConvNetRecipe.batch, len(task.train))

        def work(count: int) -> None:
            images = task.chosen("train", torch.arange(count))
            weight = torch.ones(count, device=device)
            loss_gradient(net, vector, images.x, images.y, compute_type(device), weight)

        return by.steps * measured(work, batch, device).at(batch)


class RowEmbedding(Embedding):
    """The standardised features of a row; values have no classes, so the target is one more feature."""

    def points(
        self, by: Coreset, task: Task, part: str, seed: int, progress: Progress, checkpoint: Checkpoint
    ) -> Tensor:
        rows = task.part(part)
        found: Tensor = rows.x if task.num_classes else torch.cat([rows.x, rows.y[:, None].to(rows.x)], 1)
        return found

    def groups(self, task: Task, part: str, size: int) -> list[tuple[Tensor, int]]:
        """Classes in their original proportions; all rows together for values."""
        y = task.part(part).y
        if task.num_classes is None:
            task.check_count(part, size)
            return [(torch.arange(len(y)), size)]
        wanted = allocate_labels(y, size, task.num_classes, f"{part}_size")
        counts = wanted.bincount(minlength=task.num_classes).tolist()
        return list(zip(members(y, task.num_classes), counts))

    def chosen(self, task: Task, part: str, picked: Tensor) -> Any:
        rows = task.part(part)
        return rows.subset(picked.to(rows.y.device))


EMBEDDINGS: dict[str, Embedding] = {
    "graph": NodeEmbedding(), "image": ImageEmbedding(), "table": RowEmbedding(), "fitted": RowEmbedding(),
}  # fmt: skip
"""Embeddings by kind of task; rows are those of tables, whatever is fitted to them."""
