"""A step on fixed tensors, recorded once as a CUDA graph: many small kernels at the price of one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


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
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            step()
        with torch.no_grad():
            for tensor, before in zip(changed, kept):
                tensor.copy_(before)

    def __call__(self) -> None:
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()
