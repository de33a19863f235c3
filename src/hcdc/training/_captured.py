"""A step on fixed tensors, recorded once as a CUDA graph: many small kernels at the price of one launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def _no_collection() -> Iterator[None]:
    """Objects that die while a graph is recorded may free device memory, which would end the recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def record(step: Callable[[], object], pool: Any = None) -> torch.cuda.CUDAGraph:
    """Record ``step`` on the current stream, which must not be the default one.

    Unlike ``torch.cuda.graph`` this waits for no other stream. The step has run on this stream before, so
    that its kernels are loaded and its libraries have their work space.

    Args:
        step: What to record.
        pool: Memory pool of another graph of the same stream, see ``torch.cuda.graph_pool_handle``.
    """
    graph = torch.cuda.CUDAGraph()
    with _no_collection():
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        step()
        graph.capture_end()
    return graph


class Captured:
    """``step`` as a function that costs one launch a call on CUDA; a plain call on the CPU.

    The step reads and writes tensors that stay where they are (in-place changes only), takes no host
    decision that depends on their values, and draws no random numbers: draws are copied into tensors that it
    reads.

    Args:
        step: The function to record.
        device: Where it runs.
        changed: The tensors that it changes in place; warm-up calls are undone on them.
        warmup: Calls before recording, on CUDA alone.
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
    """Independent steps, each recorded, that run at the same time on several streams; in turn on the CPU.

    Steps of one stream share memory: what a step leaves behind must lie in tensors that exist before.

    Args:
        steps: The functions; none reads what another writes.
        device: Where they run.
        streams: Steps at the same time.
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
        """Run all steps, or those of some numbers."""
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
