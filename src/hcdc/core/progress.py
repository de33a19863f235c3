"""Progress of long work: phase k of n, step, the figure that matters, time left, peak memory.

With ``live``, one terminal line is rewritten. Otherwise steps go to the logger ``hcdc`` at level INFO, at
most one line every few seconds.
"""

from __future__ import annotations

import logging
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("hcdc")
STATUS = Path("/proc/self/status")


def peak_memory_gib() -> float:
    """Peak memory of this process in GiB: GPU memory if a GPU is in use, else resident set size."""
    return gpu_peak_gib() or resident_peak_gib()


def gpu_peak_gib() -> float:
    """The most memory that the CUDA allocator gave out, in GiB; 0 if no GPU is in use."""
    import torch

    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def resident_peak_gib() -> float:
    """Peak resident set size of this process in GiB.

    Linux counts what a parent held when it started the process in ``ru_maxrss``, but not in ``VmHWM``.
    """
    try:
        told = STATUS.read_text().partition("VmHWM:")[2].split()
        return int(told[0]) / 2**20
    except (OSError, ValueError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def duration(seconds: float) -> str:
    """Seconds in words, at least one second; long durations also in hours."""
    return f"{max(seconds, 1.0):,.0f} s" + (f" ({seconds / 3600:,.1f} h)" if seconds >= 5400 else "")


class Phase:
    """One phase of a run; call ``step`` after each unit of work.

    Attributes:
        left: Seconds that are known to be left; None to estimate them from the steps so far.
    """

    left: float | None = None

    def __init__(self, owner: Progress, name: str, total: int):
        self.owner, self.name, self.total = owner, name, total
        self.start = self.last = time.monotonic()
        self.first_step: int | None = None

    def step(self, done: int, figure: str = "") -> None:
        """Report that ``done`` of ``total`` steps are finished; ``figure`` is the number to watch.

        The time left is estimated only from the steps of this run, not from those done before a resume.
        """
        now = time.monotonic()
        if self.first_step is None:
            self.first_step = max(0, done - 1)
        if done < self.total and now - self.last < self.owner.every:
            return
        self.last = now
        made = done - self.first_step
        left = (now - self.start) / made * (self.total - done) if made else 0.0
        self.owner.report(
            f"[{self.owner.where()}] {self.name}: {done}/{self.total}"
            + (f", {figure}" if figure else "")
            + f", {left if self.left is None else self.left:.0f} s left, peak {peak_memory_gib():.1f} GiB",
            last=done >= self.total,
        )


class Progress:
    """Counts phases and reports progress.

    Args:
        count: Number of phases in the run; 0 if unknown.
        every: Seconds between two reports of a phase.
        live: Rewrite one terminal line instead of logging.
        before: Seconds of the work that have passed, for a budget that includes them.
    """

    def __init__(self, count: int = 0, every: float = 5.0, live: bool = False, before: float = 0.0):
        self.count, self.every, self.live = count, 0.2 if live else every, live
        self.before = before
        self.index = 0

    def phase(self, name: str, total: int = 1) -> Phase:
        """Begin the next phase."""
        self.index += 1
        return Phase(self, name, total)

    def where(self) -> str:
        """The phase number, with the total if it is known."""
        return f"{self.index}/{self.count}" if self.index <= self.count else str(self.index)

    def report(self, text: str, last: bool = False) -> None:
        """Show or log one line; ``last`` ends the live line."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{text[:width]}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            log.info(text)


def usual_progress() -> Progress:
    """The default in Python: a live line on a terminal or in a notebook, else the log."""
    return Progress(live=sys.stderr.isatty() or "ipykernel" in sys.modules)


@contextmanager
def timed() -> Iterator[list[float]]:
    """Time a block; the list holds its seconds afterwards."""
    out: list[float] = []
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    yield out
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    out.append(time.perf_counter() - start)
