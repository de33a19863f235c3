"""Threads that share their cores with other work: they wait briefly, and small matrices take only one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator

SPINS = "1000"
"""Turns of the loop in which a thread of GNU OpenMP waits for work before it sleeps; a few microseconds."""


def wait_briefly() -> None:
    """Let torch's threads sleep soon when they wait; call it before torch is loaded.

    By default they spin for milliseconds. Where other work shares the cores, or a container allows fewer than
    torch sees, each small operation then takes milliseconds. Settings of the user's own are kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run numpy's linear algebra on one thread while the block runs, if threadpoolctl is installed."""
    if importlib.util.find_spec("threadpoolctl") is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
