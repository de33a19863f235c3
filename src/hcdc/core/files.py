"""Atomic file writes (temporary name, flush, rename) and a lock between processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` if the block succeeds, else remove it."""
    target = Path(path).resolve()  # a link stays one
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file atomically; devices and pipes, such as ``/dev/stdout``, are written to, not replaced."""
    data = content.encode() if isinstance(content, str) else content
    if is_special(path):
        Path(path).write_bytes(data)
        return
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether this is a device or a pipe."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def unwritable(path: str | os.PathLike[str]) -> str:
    """Why a file cannot be written, and what to do; empty if it can. Leaves nothing behind."""
    place = Path(path)
    folder = place.resolve().parent
    if place.is_dir():
        return "this is a folder; name a file"
    if is_special(place):
        return "" if os.access(place, os.W_OK) else "no permission to write there; choose another place"
    if not folder.is_dir():
        return f"the folder '{folder}' does not exist; create it first"
    try:
        if place.exists() and not os.access(place, os.W_OK):
            raise PermissionError
        with tempfile.NamedTemporaryFile(prefix=f".{place.name}.", suffix=".tmp", dir=folder):
            return ""
    except PermissionError:
        return "no permission to write there; choose another place"
    except OSError as error:
        return f"nothing can be written there ({error.strerror or error}); choose another place"


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an exclusive lock on the lock file ``path`` while the block runs."""
    lock = Path(path)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cache_root() -> Path:
    """The cache folder: ``$HCDC_CACHE``, else ``~/.cache/hcdc``."""
    return Path(os.environ.get("HCDC_CACHE") or Path.home() / ".cache" / "hcdc")
