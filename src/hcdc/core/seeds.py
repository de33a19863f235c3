"""Random streams by (seed, role): equal seeds in two roles never draw the same numbers."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

import numpy as np
import torch

from hcdc.core.errors import InputError


def derive(seed: int, role: str, *keys: object) -> int:
    """A 63-bit seed from a user seed, a role (``"trajectory"``, ``"judge"``, ...) and further keys."""
    text = "\x1f".join([str(int(seed)), role, *(str(key) for key in keys)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} {value!r}: give a whole number, {least} or more")


def check_seed(seed: object) -> None:
    """Refuse a seed that is not a whole number, 0 or more."""
    check_whole("seed", seed, 0)


def stream(seed: int, role: str, *keys: object) -> torch.Generator:
    """A CPU `torch.Generator` for one role; draws are the same whatever device they move to."""
    return torch.Generator().manual_seed(derive(seed, role, *keys))


def numpy_stream(seed: int, role: str, *keys: object) -> np.random.Generator:
    """As `stream`, for numpy."""
    return np.random.default_rng(derive(seed, role, *keys))


_GLOBAL = threading.RLock()


@contextmanager
def global_streams(seed: int) -> Iterator[None]:
    """Seed the global streams of torch, numpy and random for a user's code, then restore them.

    Only one thread at a time is inside (it may enter again); otherwise threads would take each other's draws.
    """
    with _GLOBAL, torch.random.fork_rng(devices=[]):
        others = np.random.get_state(), random.getstate()  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(others[0])  # noqa: NPY002
            random.setstate(others[1])
