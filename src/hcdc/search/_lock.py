"""Optuna's lock of a journal file, without waiting for processes that were killed."""

from __future__ import annotations

import contextlib
import logging
import os
import time

log = logging.getLogger("hcdc")

PATIENCE = 3.0
"""Seconds after which a lock that nobody released is removed; one is held while a record is appended."""
SOON, PAUSE = 0.2, 0.01
"""Seconds after which a wait is told, and between two looks at the lock."""


class JournalLock:
    """A symbolic link beside the journal, as other Optuna processes make it.

    Optuna waits 30 seconds for a lock that a killed process left behind, and this one `PATIENCE`.

    Args:
        path: The journal.

    Attributes:
        waited: Seconds of all waits so far.
    """

    def __init__(self, path: str):
        self._journal, self._link = os.path.abspath(path), f"{path}.lock"
        self._own: tuple[int, int] | None = None
        self.waited = 0.0

    def acquire(self) -> bool:
        """Wait for the lock and take it."""
        while True:
            try:
                os.symlink(self._journal, self._link)
            except FileExistsError:
                self._wait()
            else:
                self._own = self._mark()
                return True

    def release(self) -> None:
        """Give it back, unless somebody thought that this process was killed and removed it."""
        if self._own is not None and self._mark() == self._own:
            os.unlink(self._link)
        self._own = None

    def _mark(self) -> tuple[int, int] | None:
        """What tells the present lock from others; None if there is none."""
        try:
            found = os.lstat(self._link)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _wait(self) -> None:
        """Wait until the present lock was released, or remove it."""
        begun, held, told = time.monotonic(), self._mark(), False
        while held is not None and self._mark() == held:
            passed = time.monotonic() - begun
            if passed > PATIENCE:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._link)
                break
            if passed > SOON and not told:
                told = True
                log.warning(
                    "the storage is locked by '%s'; if that does not change within %g s, a process that was "
                    "killed left the lock, and it is removed", self._link, PATIENCE,
                )  # fmt: skip
            time.sleep(PAUSE)
        self.waited += time.monotonic() - begun
