"""Steps on fixed tensors, recorded once as a CUDA graph: many small kernels for the price of one launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause garbage collection: freeing device memory while a graph is recorded would break the recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def record(step: Callable[[], object], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Record ``step`` on the current stream, which must not be the default stream.

    Unlike ``torch.cuda.graph``, this does not wait for other streams. Run the step on this stream once
    before, so that its kernels are loaded and its libraries have their workspace.

    Args:
        step: What to record.
        pool: Memory pool shared with another graph on this stream, see ``torch.cuda.graph_pool_handle``.
    """
    graph = torch.cuda.CUDAGraph()
    with _no_collection():
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        step()
        graph.capture_end()
    return graph


class Captured:
    """Makes ``step`` cost one launch per call on CUDA; on the CPU it is called as it is.

    The step must change its tensors in place, make no host decisions that depend on their values, and draw no
    random numbers; copy draws into tensors that it reads.

    Args:
        step: The function to record.
        device: Where it runs.
        changed: Tensors that it changes in place; they are restored after warm-up.
        warmup: Calls before recording (CUDA only).
    """

    def __init__(
        self,
        step: Callable[[], object],
        device: torch.device | str,
        changed: Sequence[Tensor] = (),
        warmup: int = 2,
    ):
        self.step = step
        self.graph: torch.cuda.CUDAGraph | None = None
        if torch.device(device).type != "cuda":
            return
        kept = [tensor.detach().clone() for tensor in changed]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warmup):
                step()
            self.graph = record(step)
            with torch.no_grad():
                for tensor, before in zip(changed, kept):
                    tensor.copy_(before)
        torch.cuda.current_stream().wait_stream(side)

    def __call__(self) -> None:
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()


class CapturedMany:
    """Records independent steps and runs them concurrently on several streams; on the CPU, one by one.

    Steps on one stream share memory: a step must leave its results in tensors that already exist.

    Args:
        steps: The functions; none may read what another writes.
        device: Where they run.
        streams: How many steps run at the same time.
    """

    def __init__(self, steps: Sequence[Callable[[], object]], device: torch.device | str, streams: int = 8):
        self.steps = list(steps)
        self.graphs: list[torch.cuda.CUDAGraph] = []
        if torch.device(device).type != "cuda":
            return
        self.streams = [torch.cuda.Stream() for _ in range(streams)]  # type: ignore[no-untyped-call]
        pools = [torch.cuda.graph_pool_handle() for _ in self.streams]
        self._begin()
        for k, step in enumerate(self.steps):
            with torch.cuda.stream(self.streams[k % streams]):
                step()
                self.graphs.append(record(step, pools[k % streams]))
        self._end()

    def _begin(self) -> None:
        for stream in self.streams:
            stream.wait_stream(torch.cuda.current_stream())

    def _end(self) -> None:
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)

    def __call__(self, some: Iterable[int] | None = None) -> None:
        """Run all steps, or only those with the given numbers."""
        numbers = range(len(self.steps)) if some is None else some
        if not self.graphs:
            for k in numbers:
                self.steps[k]()
            return
        self._begin()
        for k in numbers:
            with torch.cuda.stream(self.streams[k % len(self.streams)]):
                self.graphs[k].replay()
        self._end()
