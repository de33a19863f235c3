"""Checks of what was given: the device, settings, and files that can be written and are not one another."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hcdc.cli._show import is_stdout
from hcdc.core.errors import InputError, unknown_name


def checked_device(name: str) -> str:
    """A device that exists; ``auto`` becomes ``cuda`` or ``cpu``."""
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
        raise unknown_name("--device", name, ("auto", "cpu", "cuda"))
    if kind == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device here; use --device cpu or --device auto")
    if number and int(number) >= torch.cuda.device_count():
        raise InputError(
            f"--device {name}: there are {torch.cuda.device_count()} CUDA devices, counted from 0"
        )
    return name


def settings(
    pairs: Sequence[str] | None, flag: str = "--set", example: str = "--set steps=100"
) -> dict[str, Any]:
    """``key=value`` options; values are JSON where they can be, else text."""
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


def check_writable(flag: str, path: Path | None) -> None:
    """Refuse a file that could not be written in the end, before the work."""
    if path is None or is_stdout(path):
        return
    folder = path.resolve().parent
    if path.is_dir():
        raise InputError(f"{flag} {path}: that is a folder; name a file")
    if not folder.is_dir():
        raise InputError(f"{flag} {path}: the folder '{folder}' does not exist; make it first")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{flag} {path}: it cannot be written there; choose another place")


def check_apart(*named: tuple[str, Path | None]) -> None:
    """Refuse one file under two names: what is written would replace the other."""
    seen: dict[Path, str] = {}
    for name, path in named:
        if path is None or is_stdout(path):
            continue
        if (other := seen.setdefault(path.resolve(), name)) != name:
            raise InputError(f"{name} {path}: that is {other} as well; name another file")
