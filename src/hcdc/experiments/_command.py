"""Shared by the modules behind ``python -m hcdc.experiments.MODULE``: arguments, stored copies, records."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from hcdc.condensers import Plan
from hcdc.core import records
from hcdc.core.errors import HcdcError, InputError, unknown_name
from hcdc.core.progress import Progress
from hcdc.datasets import CondensedDataset


def as_command(main: Callable[[], None]) -> None:
    """Run a module's ``main``. Invalid input ends with a sentence and exit code 2, other known errors with
    exit code 1; unexpected errors keep their traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    records.loaded_commit()
    try:
        main()
    except FileNotFoundError as error:
        _stop(f"'{error.filename}' does not exist", 2)
    except HcdcError as error:
        _stop(str(error), 2 if isinstance(error, InputError) else 1)


def protocol_parser(words: str | None, dataset: str, seeds: str = "0") -> argparse.ArgumentParser:
    """A parser with the arguments of every protocol; ``words`` is the module's docstring."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=dataset)
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--out", required=True, help="file to append records to")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def integers(argument: str, text: str) -> list[int]:
    """Parse an argument such as ``--seeds 100,101``."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f"{argument} {text}: give whole numbers from 0 up, separated by commas")
    return numbers


def check_names(argument: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown names."""
    for name in given:
        if name not in (known := list(known)):
            raise unknown_name(argument, name, known)


def kept_file(folder: str | Path, planned: Plan) -> Path:
    """Where the copy made by a plan is stored."""
    meta = planned.meta
    named = (meta["method"], meta["val_method"], planned.train_size, planned.seed, planned.key()[:12])
    return Path(folder) / f"{'-'.join(map(str, named))}.hcdc"


def made_copy(
    planned: Plan,
    folder: str | Path | None,
    device: str,
    progress: Progress | None = None,
    networks: Path | None = None,
) -> CondensedDataset:
    """The copy made by a plan, or read from ``folder`` if it is there; ``networks`` as in `Plan.run`."""
    if folder is None:
        return planned.run(device=device, progress=progress, networks=networks)
    file = kept_file(folder, planned)
    if file.exists() and (kept := CondensedDataset.load(file)).record:
        return kept
    store = file.with_suffix(".checkpoint")
    return planned.run(
        device=device, checkpoint=store, progress=progress, done=lambda small: small.save(file),
        networks=networks,
    )  # fmt: skip


def rounded(value: Any) -> Any:
    """JSON with numbers rounded to five decimals."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return round(value, 5) if isinstance(value, float) else value


def _stop(sentence: str, code: int) -> None:
    sys.stderr.write(f"hcdc: {sentence}\n")
    raise SystemExit(code) from None
