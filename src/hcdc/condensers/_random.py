"""Random choice, the baseline for every condenser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hcdc.condensers._base import Reducer
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.progress import Progress
from hcdc.core.seeds import derive
from hcdc.tasks import Task


@dataclass(frozen=True)
class RandomReducer(Reducer):
    """Uniform choice without repeats, in the original class proportions; graphs keep the induced subgraph.

    Works for every task that can `sample`.
    """

    name = "random"

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        phase = progress.phase("random choice")
        small = task.sample(part, size, derive(seed, "random", part))
        phase.step(1)
        return small
