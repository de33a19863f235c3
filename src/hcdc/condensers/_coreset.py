"""What K-Center and Herding share: embeddings by a trained network, choice class by class."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hcdc.condensers._base import Reducer, allocate_labels
from hcdc.condensers._image_coreset import choose_images, embed_images, embedding_seconds
from hcdc.condensers._nodes import chosen, graph_task
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.labels import members
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.core.settings import setting
from hcdc.datasets import Images, Nodes
from hcdc.tasks import GraphTask, ImageTask, Task
from hcdc.training import GCNRecipe, gcn_inputs, gcn_logits, train_gcn


@dataclass(frozen=True)
class Coreset(Reducer):
    """Real nodes chosen by their embeddings, with their induced subgraph; or real images.

    The embedding of a node is the log-softmax output of a 2-layer GCN trained on the original training nodes
    (last step), as the coresets published with GCond take it. That of an image is what the last layer of a
    ConvNet-3 sees, trained on the original training images (last epoch, no augmentation).

    Attributes:
        steps: Steps of that network's training: Adam for a GCN, SGD at batch 256 for a ConvNet, rounded up to
            whole epochs.
        hidden: Its width.

    The defaults are those of graphs; for images `condense` takes 40 epochs (at least 240 steps), width 128.
    """

    steps: int = setting(600, least=1)
    hidden: int = setting(256, least=1)

    @abstractmethod
    def choose(self, points: Tensor, count: int) -> Tensor:
        """Positions ``[count]`` of the chosen among ``points`` ``[m, k]`` of one class."""

    def trains(self, task: Task) -> str:
        name = "ConvNet" if isinstance(task, ImageTask) else "GCN"
        return f"one {name} trained for {self.steps} steps"

    def loops(self) -> str:
        return ""

    def seconds(self, task: Task, part: str, size: int) -> float | None:
        if not isinstance(task, ImageTask):
            return None
        return embedding_seconds(task, self.steps, self.hidden) if part == "train" else 0.0  # trained by then

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Nodes | Images:
        if isinstance(task, ImageTask):
            place = checkpoint.beside("network")
            place = place if part == "train" else place.timed_anew()  # its seconds are those of S_train
            embed = partial(
                embed_images, task, part, self.steps, self.hidden, seed, progress, self.name, place
            )
            return choose_images(task, part, size, self.choose, embed, checkpoint)
        graph = graph_task(task, self.name)
        nodes = graph.part(part)
        wanted = allocate_labels(nodes.y, size, graph.num_classes, f"{part}_size")
        if (saved := checkpoint.load()) is not None:
            return chosen(nodes, saved[0]["picked"])
        points = self._embed(graph, nodes, seed, progress)
        counts = wanted.bincount(minlength=graph.num_classes).tolist()
        picked = torch.cat(
            [
                of[self.choose(points[of], count)]
                for of, count in zip(members(nodes.y, graph.num_classes), counts)
            ]
        )
        checkpoint.save({"picked": picked}, {})
        return chosen(nodes, picked)

    def _embed(self, task: GraphTask, nodes: Nodes, seed: int, progress: Progress) -> Tensor:
        phase = progress.phase(f"GCN embedding for {self.name}", self.steps)
        params = train_gcn(
            task.train,
            task.num_classes,
            [derive(seed, "coreset")],
            GCNRecipe(steps=self.steps, hidden=self.hidden),
            on_step=phase.step,
        ).last
        return gcn_logits(params, gcn_inputs(nodes))[:, 0].log_softmax(-1).cpu()
