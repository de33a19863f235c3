"""Random nodes that keep who lies near whom: the training graph that HCDC starts from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from hcdc.condensers._base import Reducer
from hcdc.condensers._nodes import graph_task
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.tasks import Task


@dataclass(frozen=True)
class Reach(Reducer):
    """The nodes that ``random`` chooses, joined where they lie within r hops (see `Graph.reach_subgraph`)."""

    name = "reach"

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        phase = progress.phase("random choice, joined by reach")
        near = dataclasses.replace(graph_task(task, self.name), structure="reach")
        small = near.sample(part, size, derive(seed, "random", part))
        phase.step(1)
        return small
