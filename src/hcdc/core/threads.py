"""Small matrices on one thread: a pool of threads that shares its cores costs more than it saves."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run numpy's linear algebra on one thread while the block runs, if threadpoolctl is installed."""
    if importlib.util.find_spec("threadpoolctl") is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
