"""Checkpoints: one safetensors file, keyed by what is computed: only the same command continues.

`Loop` is the loop of every long computation: it continues where a saved state stands, saves and reports.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hcdc.core.errors import NumericalError
from hcdc.core.files import write_atomic
from hcdc.core.progress import Phase

SAVE_SECONDS = 5.0
"""Seconds between two saved states of a loop: what an interruption can lose, rounded up to whole steps."""


def content_key(values: Mapping[str, Any]) -> str:
    """A hash of a JSON-able description: equal runs have equal keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]


class Clock:
    """Seconds of a computation, those of interrupted runs included as far as they are of use.

    Attributes:
        earlier: Seconds up to the last state that was saved by an earlier run and loaded by this one.
    """

    def __init__(self) -> None:
        self.earlier, self.begun = 0.0, time.perf_counter()

    def seconds(self) -> float:
        return self.earlier + time.perf_counter() - self.begun


class Checkpoint:
    """State of one long computation on disk.

    Args:
        path: The file; None switches checkpoints off.
        key: What the run is (see `content_key`); a file with another key is ignored.
        clock: Its seconds are saved too; shared with the checkpoints of its phases.
        parent: The checkpoint that this is a phase of.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        key: str = "",
        clock: Clock | None = None,
        parent: Checkpoint | None = None,
    ):
        self.path = None if path is None else Path(path)
        self.key, self.parent = key, parent
        self.clock = clock or Clock()

    def child(self, name: str) -> Checkpoint:
        """A checkpoint for one phase of the run, in a file of its own."""
        if self.path is None:
            return Checkpoint(None, clock=self.clock, parent=self)
        path = self.path.with_name(f"{self.path.name}.{name}")
        return Checkpoint(path, f"{self.key}/{name}", self.clock, self)

    def beside(self, name: str) -> Checkpoint:
        """A phase that this one shares with the others of its parent; of a run without phases, its child."""
        return (self.parent or self).child(name)

    def begun(self) -> bool:
        """Whether an earlier run has left a state of this one, or of one of its phases."""
        if self.path is None or not self.path.parent.is_dir():
            return False
        for file in self.path.parent.iterdir():
            if file.name == self.path.name or file.name.startswith(f"{self.path.name}."):
                try:
                    with safe_open(file, framework="pt") as found:
                        key = (found.metadata() or {}).get("key", "")
                except (SafetensorError, OSError):
                    continue
                if key == self.key or key.startswith(f"{self.key}/"):
                    return True
        return False

    def timed_anew(self) -> Checkpoint:
        """The same checkpoint with a clock of its own, which begins now."""
        return Checkpoint(self.path, self.key)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last saved ``(tensors, state)`` of this run, or None."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                meta = file.metadata() or {}
                if meta.get("key") != self.key:
                    return None
                names = list(file.keys())
                found = {name: file.get_tensor(name) for name in names}, json.loads(meta["state"])
                self.clock.earlier = max(self.clock.earlier, float(meta.get("seconds", 0.0)))
                return found
        except (SafetensorError, OSError, KeyError, json.JSONDecodeError):
            return None

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write the state, whole or not at all."""
        if self.path is None:
            return
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        told = {"key": self.key, "state": json.dumps(state), "seconds": f"{self.clock.seconds():.3f}"}
        write_atomic(self.path, save(plain, told))

    def remove(self) -> None:
        """Delete the file, if there is one."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Resumable(ABC):
    """What a loop changes and a checkpoint keeps."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors, which stay where they are."""

    def values(self) -> dict[str, Any]:
        """What else is kept (JSON-able); nothing by default."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Take up a saved state; False where it cannot be used here."""
        for name, own in self.tensors().items():
            own.copy_(tensors[name])
        return True


class Loop:
    """The steps of a long computation, from where an earlier run has left them.

    Args:
        state: What the steps change; a saved state is taken up at once.
        checkpoint: Where it is kept.
        total: Number of steps in all.
        name: What diverges where something is not finite, e.g. ``"DM"``.
        unit: What a step is called there.
        every: The state is saved after multiples of this many steps only.

    Attributes:
        done: Steps made, those of earlier runs included.

    Example:
        >>> import torch
        >>> class Sum(Resumable):
        ...     x = torch.zeros(())
        ...     def tensors(self):
        ...         return {"x": self.x}
        >>> loop = Loop(Sum(), Checkpoint(None), 3)
        >>> for step in loop.steps():
        ...     Sum.x += step
        ...     loop.made()
        >>> Sum.x
        tensor(3.)
    """

    def __init__(
        self,
        state: Resumable,
        checkpoint: Checkpoint,
        total: int,
        name: str = "",
        unit: str = "step",
        every: int = 1,
    ):
        self.state, self.checkpoint, self.total = state, checkpoint, total
        self.name, self.unit, self.every = name, unit, every
        self.done = 0
        self.phase: Phase | None = None
        self.saved = time.monotonic()
        saved = checkpoint.load()
        if saved is not None and "done" in saved[1] and state.restore(*saved):
            self.done = int(saved[1]["done"])

    def steps(self, phase: Phase | None = None) -> Iterator[int]:
        """The numbers, from 0, of the steps that are left; each ends with `made`, which reports."""
        self.phase, self.saved = phase, time.monotonic()
        if phase is not None:
            phase.first_step = self.done
        while self.done < self.total:
            yield self.done

    def made(self, figure: str = "", count: int = 1) -> None:
        """``count`` more steps are made: save the state if it is time, and report the figure that matters."""
        self.done += count
        due = self.done % self.every == 0 and time.monotonic() - self.saved >= SAVE_SECONDS
        if due or self.done == self.total:
            self.checkpoint.save(self.state.tensors(), {**self.state.values(), "done": self.done})
            self.saved = time.monotonic()
        if self.phase is not None:
            self.phase.step(self.done, figure)

    def check(self, why: str, *values: float | Tensor, count: int = 1) -> None:
        """Stop with a diagnosis where a value of the ``count`` steps under way is NaN or infinite.

        Args:
            why: Where that comes from and what to try.
            values: Numbers, and tensors all of whose entries are looked at.
        """
        for value in values:
            if not (bool(value.isfinite().all()) if isinstance(value, Tensor) else math.isfinite(value)):
                raise NumericalError(
                    f"{self.name} diverged by {self.unit} {self.done + count} of {self.total}: {why}"
                )
