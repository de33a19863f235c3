"""Random streams by (seed, role): equal seeds in two roles never draw the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, role: str, *keys: object) -> int:
    """A 63-bit seed from a user seed, a role (``"trajectory"``, ``"judge"``, ...) and further keys."""
    text = "\x1f".join([str(int(seed)), role, *(str(key) for key in keys)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, role: str, *keys: object) -> torch.Generator:
    """A CPU `torch.Generator` for one role; draws move to a device afterwards and do not depend on it."""
    return torch.Generator().manual_seed(derive(seed, role, *keys))


def numpy_stream(seed: int, role: str, *keys: object) -> np.random.Generator:
    """The same as `stream` for numpy."""
    return np.random.default_rng(derive(seed, role, *keys))
