"""Peak memory while a block runs: of the CUDA allocator if a GPU is in use, else the resident set."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

from hcdc.core.progress import gpu_peak_gib, resident_peak_gib

EVERY = 0.005
"""Seconds between two samples."""
STATM = Path("/proc/self/statm")


class PeakMemory:
    """The most memory that this process holds while a block runs.

    The system keeps the peak of the whole process only. If the block raises it, that is the block's own peak;
    otherwise it lies below what ran before, and samples tell it. Nothing is reset, so other figures of peak
    memory stay what they are.

    Attributes:
        gib: The peak in GiB, after the block.
        rise: How far it lies above what was held before the block.

    Example:
        >>> from hcdc.core.memory import PeakMemory
        >>> with PeakMemory() as peak:
        ...     held = bytearray(64 * 2**20)
        >>> peak.gib > 0.06
        True
    """

    gib = rise = 0.0

    def __enter__(self) -> Self:
        self._before, self._peaks = held_gib(), (resident_peak_gib(), gpu_peak_gib())
        self._most, self._done = list(self._before), threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._done.set()
        self._sampler.join()
        self._take()
        for k, peak in enumerate((resident_peak_gib(), gpu_peak_gib())):
            if peak > self._peaks[k]:
                self._most[k] = max(self._most[k], peak)
        used = 1 if self._most[1] else 0
        self.gib = self._most[used]
        self.rise = max(0.0, self.gib - self._before[used])

    def _sample(self) -> None:
        while not self._done.wait(EVERY):
            self._take()

    def _take(self) -> None:
        self._most = [max(pair) for pair in zip(self._most, held_gib())]


def held_gib() -> tuple[float, float]:
    """What the process holds now: resident set and memory of the CUDA allocator, in GiB.

    Where the system does not tell the resident set, its peak so far.
    """
    import resource

    import torch

    gpu = torch.cuda.memory_allocated() / 2**30 if gpu_peak_gib() else 0.0
    try:
        pages = int(STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return resident_peak_gib(), gpu
    return pages * resource.getpagesize() / 2**30, gpu
