"""Checkpoints: one safetensors file, keyed by what is computed, so only the same command resumes from it.

`Loop` runs every long computation: it resumes from a saved state, saves and reports.
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
"""Seconds between saves. An interruption loses at most this, rounded up to whole steps."""


def content_key(values: Mapping[str, Any]) -> str:
    """Hash a JSON-able description; equal runs have equal keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]


class Clock:
    """Seconds of a computation, including the saved work of interrupted runs.

    Attributes:
        earlier: Seconds that earlier runs spent up to the state that this run loaded.
    """

    def __init__(self) -> None:
        self.earlier, self.begun = 0.0, time.perf_counter()

    def seconds(self) -> float:
        return self.earlier + time.perf_counter() - self.begun


class Checkpoint:
    """The state of one long computation on disk.

    Args:
        path: The file; None turns checkpoints off.
        key: Identifies the run (see `content_key`); a file with another key is ignored.
        clock: The run's clock, saved with the state and shared with its phases.
        parent: The checkpoint of the whole run, if this is one phase of it.
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
        """A checkpoint for one phase of the run, in its own file."""
        if self.path is None:
            return Checkpoint(None, clock=self.clock, parent=self)
        path = self.path.with_name(f"{self.path.name}.{name}")
        return Checkpoint(path, f"{self.key}/{name}", self.clock, self)

    def beside(self, name: str) -> Checkpoint:
        """A phase shared with the other phases of the parent; without a parent, a child."""
        return (self.parent or self).child(name)

    def begun(self) -> bool:
        """Whether an earlier run saved a state of this computation or of one of its phases."""
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
        """The same checkpoint with a new clock that starts now."""
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
        """Write the state atomically."""
        if self.path is None:
            return
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        told = {"key": self.key, "state": json.dumps(state), "seconds": f"{self.clock.seconds():.3f}"}
        write_atomic(self.path, save(plain, told))

    def remove(self) -> None:
        """Delete the file if it exists."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Resumable(ABC):
    """State that a loop changes and a checkpoint saves."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors to save; `restore` writes into them in place."""

    def values(self) -> dict[str, Any]:
        """Other JSON-able values to save; none by default."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Load a saved state; return False if it cannot be used."""
        for name, own in self.tensors().items():
            own.copy_(tensors[name])
        return True


class Loop:
    """The steps of a long computation, resumed where an earlier run stopped.

    Args:
        state: What the steps change; a saved state is loaded at once.
        checkpoint: Where the state is saved.
        total: Total number of steps.
        name: Name of the computation in error messages, e.g. ``"DM"``.
        unit: Name of a step in error messages.
        every: Save only after multiples of this many steps.

    Attributes:
        done: Steps done, including those of earlier runs.

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
        """Yield the numbers of the remaining steps, counted from 0; end each step with `made`."""
        self.phase, self.saved = phase, time.monotonic()
        if phase is not None:
            phase.first_step = self.done
        while self.done < self.total:
            yield self.done

    def made(self, figure: str = "", count: int = 1) -> None:
        """Count ``count`` more steps, save the state when due, and report ``figure``."""
        self.done += count
        due = self.done % self.every == 0 and time.monotonic() - self.saved >= SAVE_SECONDS
        if due or self.done == self.total:
            self.checkpoint.save(self.state.tensors(), {**self.state.values(), "done": self.done})
            self.saved = time.monotonic()
        if self.phase is not None:
            self.phase.step(self.done, figure)

    def check(self, why: str, *values: float | Tensor, count: int = 1) -> None:
        """Stop with a diagnosis if a value of the current ``count`` steps is NaN or infinite.

        Args:
            why: The likely cause and what to try.
            values: Numbers, or tensors whose entries are all checked.
        """
        for value in values:
            if not (bool(value.isfinite().all()) if isinstance(value, Tensor) else math.isfinite(value)):
                raise NumericalError(
                    f"{self.name} diverged by {self.unit} {self.done + count} of {self.total}: {why}"
                )
