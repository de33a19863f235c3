"""Checkpoints: one safetensors file, keyed by what is computed: only the same command continues."""

from __future__ import annotations

import hashlib
import json
import os
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


class Checkpoint:
    """State of one long computation on disk.

    Args:
        path: The file; None switches checkpoints off.
        key: What the run is (see `content_key`); a file with another key is ignored.
    """

    def __init__(self, path: str | os.PathLike[str] | None, key: str = ""):
        self.path = None if path is None else Path(path)
        self.key = key

    def child(self, name: str) -> Checkpoint:
        """A checkpoint for one phase of the run, in a file of its own."""
        if self.path is None:
            return Checkpoint(None)
        return Checkpoint(self.path.with_name(f"{self.path.name}.{name}"), f"{self.key}/{name}")

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
                return {name: file.get_tensor(name) for name in names}, json.loads(meta["state"])
        except (SafetensorError, OSError, KeyError, json.JSONDecodeError):
            return None

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write the state, whole or not at all."""
        if self.path is None:
            return
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        write_atomic(self.path, save(plain, {"key": self.key, "state": json.dumps(state)}))

    def remove(self) -> None:
        """Delete the file, if there is one."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
