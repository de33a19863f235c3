"""What K-Center and Herding share: embeddings of real examples, and a choice within each class."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hcdc.condensers._base import Reducer
from hcdc.condensers._embeddings import EMBEDDINGS
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.settings import setting
from hcdc.core.told import counted
from hcdc.tasks import Task


@dataclass(frozen=True)
class Coreset(Reducer):
    """Chooses real examples by their embeddings (see `hcdc.condensers._embeddings`); nodes keep their edges.

    Attributes:
        steps: Training steps for the embeddings: Adam for a GCN, SGD at batch 256 for a ConvNet, rounded up
            to whole epochs.
        hidden: Width of that network.

    The defaults are for graphs; for images they are 40 epochs (at least 240 steps) and width 128. Rows of
    tables are chosen by their standardised features, without a network.
    """

    steps: int = setting(600, least=1)
    hidden: int = setting(256, least=1)

    takes = tuple(EMBEDDINGS)

    @abstractmethod
    def choose(self, points: Tensor, count: int) -> Tensor:
        """Positions ``[count]`` of the chosen points among ``points`` ``[m, k]`` of one class."""

    @classmethod
    def defaults_for(cls, task: Task) -> dict[str, Any]:
        return EMBEDDINGS[cls.check_task(task).kind].settings(task)

    def trains(self, task: Task) -> str:
        if not EMBEDDINGS[task.kind].network:
            return ""
        return f"one {EMBEDDINGS[task.kind].network} trained for {counted(self.steps, 'step')}"

    def loops(self) -> str:
        return ""

    def seconds(self, task: Task, part: str, size: int) -> float | None:
        return EMBEDDINGS[task.kind].seconds(self, task, part)

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        embedding = EMBEDDINGS[self.check_task(task).kind]
        groups = embedding.groups(task, part, size)
        if (saved := checkpoint.load()) is not None:
            return embedding.chosen(task, part, saved[0]["picked"])
        points = embedding.points(self, task, part, seed, progress, checkpoint)
        picked = torch.cat(
            [of[self.choose(points[of.to(points.device)], count)] for of, count in groups if count]
        )
        checkpoint.save({"picked": picked}, {})
        return embedding.chosen(task, part, picked)
