"""What every condenser shares: the interface of a method that makes a smaller set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.labels import allocate_labels
from hcdc.core.progress import Progress
from hcdc.core.settings import Settings
from hcdc.tasks import Task

__all__ = ["Reducer", "allocate_labels"]


class Reducer(Settings, ABC):
    """A method that makes a small labelled set out of a large one (random, K-Center, Herding, GCond, ...).

    Subclasses are frozen dataclasses whose fields are the method's settings (see `hcdc.core.settings`);
    presets are such settings by name.

    Attributes:
        name: The registered name.
        takes: Kinds of data that the method condenses; empty for all.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def reduce(
        self,
        task: Task,
        part: str,
        size: int,
        seed: int,
        *,
        progress: Progress,
        checkpoint: Checkpoint,
    ) -> Any:
        """``size`` examples made from ``part`` (``"train"`` or ``"val"``) of the task's original data.

        Equal arguments give equal bytes; an interrupted run with the same ``checkpoint`` continues and gives
        the same.
        """

    def reduce_and_tell(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> tuple[Any, dict[str, Any]]:
        """What `reduce` gives, and what else was learned with it (JSON-able), for the condensed file."""
        return self.reduce(task, part, size, seed, progress=progress, checkpoint=checkpoint), {}

    @classmethod
    def check_task(cls, task: Task) -> Any:
        """The task itself, if the method condenses its kind of data; a sentence otherwise."""
        if cls.takes and task.kind not in cls.takes:
            taken = " and ".join(f"{kind}s" for kind in cls.takes)
            raise InputError(
                f"method '{cls.name}' condenses {taken}, and '{task.name}' has {task.kind}s; "
                "use method 'random'"
            )
        return task

    @classmethod
    def defaults_for(cls, task: Task) -> dict[str, Any]:
        """Settings that fit a task better than the defaults of the class; none by default."""
        return {}

    def trains(self, task: Task) -> str:
        """What it trains on the original data, in words; empty for nothing."""
        return ""

    def loops(self) -> str:
        """Its own long loop, in words; empty where there is none."""
        settings = self.settings()
        names = [name for name in ("iterations", "epochs", "steps") if name in settings]
        return f"{settings[names[0]]:,} {names[0]}" if names else ""

    def seconds(self, task: Task, part: str, size: int) -> float | None:
        """Seconds that `reduce` may take where the task is, from a short trial; None for no prediction."""
        return None
