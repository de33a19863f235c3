"""Random labelled nodes inside their own neighbourhoods, which graph layers of every kind can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hcdc.condensers._base import Reducer
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.core.settings import setting
from hcdc.tasks import Task


@dataclass(frozen=True)
class Neighbours(Reducer):
    """As many labelled nodes as asked for, with some of their real neighbours, unlabelled, around them.

    Attributes:
        fanout: Neighbours kept per node and hop.
        hops: Hops around a labelled node.
    """

    fanout: int = setting(5, least=1)
    hops: int = setting(2, least=1)

    name = "neighbours"
    takes = ("graph",)

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        phase = progress.phase("random choice, with neighbours")
        graph = self.check_task(task)
        small = graph.neighbourhood(part, size, [self.fanout] * self.hops, derive(seed, "random", part))
        phase.step(1)
        return small
