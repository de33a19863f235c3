"""Checkpoints: one safetensors file, keyed by what is computed: only the same command continues."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hcdc.core.files import write_atomic


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
