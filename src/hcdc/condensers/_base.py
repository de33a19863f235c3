"""The interface of methods that make a smaller set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import InputError
from hcdc.core.labels import allocate_labels
from hcdc.core.progress import Progress
from hcdc.core.settings import Settings
from hcdc.core.told import counted
from hcdc.tasks import Task

__all__ = ["Iterate", "Iterative", "Reducer", "allocate_labels"]


class Iterate(NamedTuple):
    """Where a run stands.

    Attributes:
        iteration: Iterations made; None for the last iterate, which `Reducer.reduce` returns.
        images: The set.
        told: What else was learned with it (JSON-able), for the condensed file.
        figure: What the method makes small; None where it was not computed.
    """

    iteration: int | None
    images: Any
    told: Mapping[str, Any] = {}
    figure: float | None = None


class Reducer(Settings, ABC):
    """A method that turns a large labelled set into a small one (random, K-Center, Herding, GCond, ...).

    Subclasses are frozen dataclasses whose fields are the method's settings (see `hcdc.core.settings`);
    presets are named settings.

    Attributes:
        name: The registered name.
        takes: Kinds of data that the method condenses; empty means all.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        """Make ``size`` examples from ``part`` (``"train"`` or ``"val"``) of the task's original data.

        Equal arguments give equal bytes. An interrupted run with the same ``checkpoint`` continues to the
        same result.
        """

    def iterates(
        self, task: Task, part: str, size: int, seed: int, *,
        progress: Progress, checkpoint: Checkpoint, every: int = 0,
    ) -> Iterator[Iterate]:  # fmt: skip
        """The set after every ``every`` iterations, and at the end; arguments are as in `reduce`.

        Only the last one is given if ``every`` is 0 or the method has no iterations. A continued run gives
        those still to come.
        """
        yield Iterate(None, self.reduce(task, part, size, seed, progress=progress, checkpoint=checkpoint))

    @classmethod
    def check_task(cls, task: Task) -> Any:
        """Return the task if the method condenses its kind of data; raises an error otherwise."""
        if cls.takes and task.kind not in cls.takes:
            kinds = [f"{kind}s" for kind in cls.takes if kind != "fitted"]  # its data are tables
            taken = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
            raise InputError(
                f"method '{cls.name}' condenses {taken}, but '{task.name}' has {task.kind}s; "
                "use method 'random'"
            )
        return task

    @classmethod
    def defaults_for(cls, task: Task) -> dict[str, Any]:
        """Settings that suit a task better than the class defaults; none by default."""
        return {}

    def trains(self, task: Task) -> str:
        """What it trains on the original data, in words; empty if nothing."""
        return ""

    def loops(self) -> str:
        """Its main loop in words; empty if it has none."""
        settings = self.settings()
        names = [name for name in ("iterations", "epochs", "steps") if name in settings]
        return counted(settings[names[0]], names[0].removesuffix("s")) if names else ""

    def seconds(self, task: Task, part: str, size: int) -> float | None:
        """Predicted seconds of `reduce` on the task's device, from a short trial; None if unpredictable."""
        return None


class Iterative(Reducer):
    """A method that shows its iterates: a subclass defines `iterates`, and the last one is the set."""

    def reduce(
        self, task: Task, part: str, size: int, seed: int, *, progress: Progress, checkpoint: Checkpoint
    ) -> Any:
        *_, last = self.iterates(task, part, size, seed, progress=progress, checkpoint=checkpoint)
        return last.images
