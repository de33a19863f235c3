"""What commands print (labelled lines, the table, progress, the last line) and the JSON they write."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import typer

from hcdc.core.errors import InputError
from hcdc.core.files import write_atomic
from hcdc.core.progress import Progress, duration
from hcdc.core.records import jsonable

if TYPE_CHECKING:
    from hcdc.core.results import Evaluation
    from hcdc.reporting import Row

ASK = 600.0
"""Seconds of training from which commands ask first."""
SCREEN = 100
"""Most characters of a description that fits a screen."""
_stdout: list[TextIO] = []
"""Where JSON goes while prints go elsewhere, see `json_alone`."""


def printable(text: object) -> str:
    """Text without control characters, which could steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def quoted(value: object) -> str:
    """A value as one word of a command to copy."""
    return shlex.quote(str(value))


def shortened(text: str) -> str:
    """A description cut to fit a screen."""
    return text if len(text) <= SCREEN else f"{text[: SCREEN - 4]} ..."


def is_stdout(path: Path | None) -> bool:
    """Whether ``--json -`` was given."""
    return path is not None and str(path) == "-"


def say(lines: Sequence[tuple[str, object]], quiet: bool) -> None:
    """Print labelled lines, unless quiet."""
    if not quiet:
        width = max(len(label) for label, _ in lines)
        for label, text in lines:
            typer.echo(f"{label:<{width}}  {printable(text)}")


def last_line(done: str, following: str, json_file: Path | None = None) -> None:
    """Say what was written and what to do next; on stderr if the JSON goes to stdout."""
    typer.echo(printable(f"{done}; next: {following}"), err=is_stdout(json_file))


def report_command(result: Path) -> str:
    """The command that shows a result, ready to copy; a result on stdout is in no file yet."""
    if is_stdout(result):
        return "save it as FILE.json, then hcdc report FILE.json --out report.html"
    return f"hcdc report {quoted(result)} --out report.html"


def written(path: Path | None) -> str:
    """Where a result went, in words."""
    if path is None:
        return "nothing written"
    return "wrote the result to stdout" if is_stdout(path) else f"wrote {path}"


def evaluate_command(
    file: Path,
    imports: Sequence[str] | None = None,
    model: str | None = None,
    truth: Path | None = None,
    truth_dataset: str | None = None,
) -> str:
    """The command that evaluates a condensed file, ready to copy."""
    flags = {"--model": model, "--truth": truth, "--truth-dataset": truth_dataset}
    return with_flags(f"hcdc evaluate {quoted(file)}", imports, flags)


def with_flags(text: str, imports: Sequence[str] | None, flags: Mapping[str, object]) -> str:
    """A command with the modules that it imports and those flags that have a value."""
    given = [("--import", module) for module in imports or ()] + list(flags.items())
    return " ".join([text, *(f"{flag} {quoted(value)}" for flag, value in given if value is not None)])


def ask_first(seconds: float, yes: bool, quiet: bool) -> None:
    """Ask on a terminal before more than ten minutes of training."""
    if yes or quiet or seconds <= ASK or not on_terminal():
        return
    try:
        agreed = typer.confirm(f"this will train for about {duration(seconds)}; go on?")
    except typer.Abort:  # Ctrl-D or Ctrl-C instead of an answer
        typer.echo("", err=True)
        agreed = False
    if not agreed:
        raise InputError("nothing was done; --yes skips the question")


def on_terminal() -> bool:
    """Whether somebody can read a question and answer it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def show_table(rows: Sequence[Row], quiet: bool) -> None:
    """Print the main columns; one line per figure if the terminal is too narrow for a table."""
    if quiet:
        return
    from rich.console import Console
    from rich.table import Table

    from hcdc.reporting import COLUMNS

    columns = [column for column in COLUMNS if column.narrow]
    cells = [[printable(column.cell(row)) for column in columns] for row in rows]
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(markup=False, highlight=False, width=120 if piped else None)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    needed = 0
    for k, column in enumerate(columns):
        last = k == len(columns) - 1  # its words may wrap
        texts = [column.narrow, *(" " * (k == 0) + row[k] for row in cells)]
        least = max(len(part) for text in texts for part in (text.split() if last else text.split("\n")))
        needed += least + 1
        justify: Literal["left", "right"] = "right" if k else "left"
        table.add_column(column.narrow, justify=justify, no_wrap=not last, min_width=least)
    for row, (name, *figures) in zip(rows, cells):
        indent = {"rival": " "}.get(row.role, "")
        table.add_row(indent + name, *figures, style={"copy": "bold"}.get(row.role))
    if needed <= console.width:
        console.print(table)
        return
    width = max(len(column.heading) for column in columns[1:])
    for name, *figures in cells:
        typer.echo(name)
        for column, figure in zip(columns[1:], figures):
            typer.echo(f"  {column.heading:<{width}}  {figure}")


def table_json(evaluations: Sequence[Evaluation], rows: Sequence[Row]) -> dict[str, Any]:
    """The table and the findings as a JSON document."""
    from hcdc.reporting import findings

    return {
        "table": [dataclasses.asdict(row) for row in rows],
        "findings": [{"copy": name, "texts": texts} for name, texts in findings(evaluations)],
    }


def show_findings(evaluations: Sequence[Evaluation], quiet: bool) -> None:
    """Print the findings, one line each."""
    from hcdc.reporting import findings

    for name, texts in findings(evaluations):
        show_notes([f"{name}: {text}" if name else text for text in texts], quiet)


def show_notes(notes: Sequence[str], quiet: bool) -> None:
    """Print one line per note, unless quiet."""
    for note in () if quiet else notes:
        typer.echo(printable(f"- {note}"))


@contextmanager
def show_progress(quiet: bool, before: float = 0.0) -> Iterator[Progress]:
    """Show a live line on a terminal, log lines elsewhere; ``before`` are seconds that a budget includes."""
    live = sys.stderr.isatty() and not quiet
    logging.getLogger("hcdc").setLevel(logging.WARNING if live or quiet else logging.INFO)
    try:
        yield Progress(live=live, before=before)
    finally:
        if live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


@contextmanager
def json_alone(path: Path | None) -> Iterator[None]:
    """With ``--json -``, send what an objective or plugin prints to stderr: stdout is for the JSON alone."""
    if not is_stdout(path):
        yield
        return
    _stdout.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout.pop()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON document, to stdout if the path is ``-``."""
    text = json.dumps(jsonable(value), indent=1, sort_keys=True, allow_nan=False) + "\n"
    if is_stdout(path):
        typer.echo(text, nl=False, file=_stdout[-1] if _stdout else None)
        return
    try:
        write_atomic(path, text)
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror or error}") from error
