"""Checks on arguments: the device, settings, and files to write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcdc.cli._show import is_stdout
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.files import unwritable

COPIES = ("FILE", "--copy", "--rungs")
"""What may name a condensed file."""
GROUP = "--group step='log lr - log batch'"


def checked_device(name: str) -> str:
    """The device, checked to exist; ``auto`` becomes ``cuda`` or ``cpu``."""
    import torch

    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
        raise unknown_name("--device", name, ("auto", "cpu", "cuda"))
    if kind == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device; use --device cpu or --device auto")
    if number and int(number) >= torch.cuda.device_count():
        raise InputError(f"--device {name}: there are {torch.cuda.device_count()} CUDA devices, from cuda:0")
    return name


def settings(
    pairs: Sequence[str] | None, flag: str = "--set", example: str = "--set steps=100"
) -> dict[str, Any]:
    """Parse ``key=value`` options; values are JSON if possible, otherwise text."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise InputError(f"{flag} {pair}: a setting is written key=value, e.g. {example}")
        try:
            found[key.replace("-", "_")] = json.loads(text)
        except ValueError:
            found[key.replace("-", "_")] = text
    return found


def storage_file(name: str | None) -> Path | None:
    """The file that ``--storage`` names, checked to be writable; a path would hide that it is an address."""
    from hcdc.search import file_name

    if name is None:
        return None
    path = Path(file_name(name))
    check_writable("--storage", path)
    return path


def check_writable(flag: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work."""
    if path is None or is_stdout(path):
        return
    if why := unwritable(path):
        raise InputError(f"{flag} {path}: {why}")


def check_inputs(
    outputs: Sequence[tuple[str, Path | None]],
    *files: tuple[str, Path | None],
    dataset: str | None = None,
    rungs: str | None = None,
    objective: str | None = None,
    model: str | None = None,
    imports: Sequence[str] | None = None,
) -> None:
    """Refuse outputs that would replace each other, or a file that the command reads.

    Args:
        outputs: Flags and files to write.
        files: Flags and files to read; of copies the records beside them too.
        dataset, rungs, objective, model, imports: Flags that may name files to read.
    """
    from hcdc.datasets import record_path

    check_apart(*outputs)
    read = list(files)
    if dataset is not None and Path(dataset).is_file():
        read.append(("--dataset", Path(dataset)))
    for name in (rungs or "").split(","):
        if "copy:" in name:
            read.append(("--rungs", Path(name.partition("copy:")[2])))
    read += [("its record", record_path(path)) for flag, path in read if flag in COPIES and path is not None]
    code = [("--objective", objective), ("--model", model)]
    modules = [(flag, text.rpartition(":")[0]) for flag, text in code if text is not None]
    modules += [("--import", text) for text in imports or ()]
    read += [(flag, source_file(module)) for flag, module in modules if module]
    for source in read:
        check_apart(source, *outputs)


def source_file(module: str) -> Path:
    """The file of a module that is named by its path, or of one in the current folder."""
    if module.endswith(".py"):
        return Path(module)
    place = Path(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def check_apart(*named: tuple[str, Path | None]) -> None:
    """Refuse one file given twice, since writing it would replace the other."""
    seen: dict[Path, str] = {}
    for name, path in named:
        if path is None or is_stdout(path):
            continue
        if (other := seen.setdefault(path.resolve(), name)) != name:
            raise InputError(f"{name} {path}: this is the same file as {other}; choose another")
