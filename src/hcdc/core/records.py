"""Records: JSON lines with the evidence behind a figure (commit, device, versions, seconds)."""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcdc.core.errors import InputError
from hcdc.core.files import locked

if TYPE_CHECKING:
    import torch


def device_name(device: torch.device | str) -> str:
    """The name of a device in words, e.g. ``"NVIDIA H200"`` or ``"cpu (2 threads)"``."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)"


def commit() -> str | None:
    """The commit of the source tree in use, with ``+`` appended for uncommitted changes; else None.

    An installed package has no commit, even inside another repository. ``HCDC_COMMIT`` overrides.
    """
    return os.environ.get("HCDC_COMMIT") or _of_tree()


@functools.cache
def loaded_commit() -> str | None:
    """`commit` at the first call. Long work calls it when it begins: the tree may change meanwhile, the code
    that runs does not."""
    return commit()


def _of_tree() -> str | None:
    if not _git("ls-files", "--", Path(__file__).name):
        return None
    head = _git("rev-parse", "HEAD")
    return head and head + ("+" if _git("status", "--porcelain", "-uno") else "")


def _git(*command: str) -> str | None:
    """Output of a git command in the folder of this file; None if it fails."""
    here = str(Path(__file__).resolve().parent)
    try:
        done = subprocess.run(["git", "-C", here, *command], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def version() -> str:
    """The library's version; ``"source"`` if it is not installed."""
    try:
        return metadata.version("hcdc")
    except metadata.PackageNotFoundError:
        return "source"


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """What a record says about where it was made."""
    import torch

    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": os.environ.get("HCDC_COMMIT") or loaded_commit(),
        "hcdc": version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(device),
    }


def jsonable(value: Any) -> Any:
    """Nested values as plain JSON: tensors and arrays become lists, NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def append(path: str | os.PathLike[str], *several: Mapping[str, Any]) -> None:
    """Append one JSON line per record, all at once, under a lock, after removing a half-written last line.

    A file whose only line is neither a record nor the beginning of one is refused.
    """
    lines = "".join(json.dumps(jsonable(record), sort_keys=True) + "\n" for record in several)
    target = Path(path)
    with locked(target.with_name(f".{target.name}.lock")):
        _end_last_line(target)
        with open(target, "ab") as handle:
            handle.write(lines.encode())
            handle.flush()
            os.fsync(handle.fileno())


def _end_last_line(path: Path) -> None:
    """Truncate a file after its last whole record, and end that record's line."""
    if not path.exists() or not path.stat().st_size:
        return
    with open(path, "rb+") as handle:
        handle.seek(-1, os.SEEK_END)
        if handle.read() == b"\n":
            return
        handle.seek(0)
        content = handle.read()
        start = content.rfind(b"\n") + 1
        last = content[start:].rstrip(b"\0")  # a loss of power leaves bytes of zero
        first = content.partition(b"\n")[0] if start else last
        whole = _record(last) is not None
        if _record(first) is None and (start or not _begun(last)):
            raise _foreign(path)
        handle.seek(start + len(last) if whole else start)
        handle.truncate()
        handle.write(b"\n" if whole else b"")


def read(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file; a half-written last line (from a killed process) is skipped."""
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, 1):
            ended = line.endswith(b"\n")
            if (record := _record(line if ended else line.rstrip(b"\0"))) is not None:
                yield record
            elif ended:
                raise InputError(f"line {number} of '{os.fspath(path)}' is not a record in JSON; remove it")
            elif number == 1 and not _begun(line):
                raise _foreign(path)


def _record(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None if it holds none."""
    try:
        found = json.loads(line)
    except ValueError:  # not JSON, or not UTF-8
        return None
    return found if isinstance(found, dict) else None


def _begun(line: bytes) -> bool:
    """Whether a line may be the beginning of a record."""
    return line.startswith(b'{"') or b'{"'.startswith(line.rstrip(b"\0"))


def _foreign(path: str | os.PathLike[str]) -> InputError:
    return InputError(
        f"'{os.fspath(path)}' is not a file of records, and is left as it is; name another file"
    )
