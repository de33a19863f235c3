"""Random nodes joined to their near neighbours: the training graph that HCDC starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hcdc.condensers._base import Reducer
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.tasks import Task


@dataclass(frozen=True)
class Reach(Reducer):
    """The nodes chosen by ``random``, joined if they lie near each other (see `Graph.reach_subgraph`)."""

    name = "reach"
    takes = ("graph",)

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        phase = progress.phase("random choice, joined by reach")
        near = self.check_task(task).for_learning("reach", adjacency=False)
        small = near.sample(part, size, derive(seed, "random", part))
        phase.step(1)
        return small
