"""``hcdc reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable, checked_device, settings
from hcdc.cli._show import ask_first, last_line, printable, quoted, say, show_notes, show_progress, write_json
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.told import counted


@command
def reproduce(
    name: given.ReproductionName = None,
    scale: given.Scale = "smoke",
    seeds: given.Seeds = None,
    shard: given.Shard = "0/1",
    out: given.RecordsOut = None,
    set_: given.ReproductionSet = None,
    list_: given.ListNames = False,
    imports: given.Imports = None,
    backend: given.ReproductionBackend = None,
    address: given.Address = None,
    yes: given.Yes = False,
    seed: given.ReproductionSeed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Run a result of the paper by its name.

    Prints ours beside the paper's number. Finished units of work are not run again.
    """
    from hcdc.experiments.reproductions import REPRODUCTIONS, expected_seconds, parse_seeds, parse_shard
    from hcdc.experiments.reproductions import reproduce as run

    check_writable("--json", json_file)
    if list_:
        show_list(json_file, quiet)
        return
    if name is None:
        raise InputError("Missing the name of a result; 'hcdc reproduce --list' shows them")
    if name not in REPRODUCTIONS:
        raise unknown_name("result", name, REPRODUCTIONS)
    kind = REPRODUCTIONS[name]
    what = kind.at(scale, settings(set_, example="--set candidates=20"))
    file = out or Path(f"{name}.jsonl")
    check_writable("--out", file)
    read = [("a file that it reads", path) for path in sources(what)]
    check_inputs([("--out", file), ("--json", json_file)], *read, imports=imports)
    device = checked_device(device)
    part, asked = parse_shard(shard), parse_seeds(seeds or str(kind.scales[scale].seeds))
    ask_first(expected_seconds(what, scale, asked, file, part), yes, quiet)
    with show_progress(quiet) as progress:
        found = run(
            what, asked, file, device=device, shard=part, progress=progress, backend=backend, address=address
        )
    table = found.table
    show_rows(table.head, table.rows, quiet)
    show_notes([*table.notes, *found.notes], quiet)
    if found.figure is not None:
        say([("figure", found.figure)], quiet)
    if json_file is not None:
        told: dict[str, Any] = {"name": name, "label": kind.label, "scale": scale, "seeds": asked}
        told |= {
            "head": table.head,
            "rows": table.rows,
            "notes": [*table.notes, *found.notes],
            "done": found.done,
            "units": found.units,
        }
        write_json(json_file, {**told, "records": str(file)})
    following = "hcdc reproduce --list"
    if found.done < found.units:
        flags: list[tuple[str, object]] = [("--scale", scale), *(("--set", pair) for pair in set_ or ())]
        flags += [("--device", device), ("--seeds", seeds), ("--out", out)]
        flags += [("--backend", backend), ("--address", address)]
        words = [f"{flag} {quoted(value)}" for flag, value in flags if value is not None]
        following = f"{' '.join([f'hcdc reproduce {name}', *words])}, for the rest"
    last_line(f"{file} has {found.done} of {found.units} units", following, json_file)


def sources(what: Any) -> list[Path]:
    """Files that the settings of a result name."""
    texts = [
        text for value in vars(what).values() for text in (value if isinstance(value, tuple) else [value])
    ]
    return [Path(text) for text in texts if isinstance(text, str) and Path(text).is_file()]


def show_list(json_file: Path | None, quiet: bool) -> None:
    """Every name, what its scales take, and the records that exist."""
    from hcdc.experiments.reproductions import listing

    every = listing(Path())
    for row in [] if quiet else every:
        typer.echo(f"{row['name']} ({row['label']}): {row['title']}")
        for scale, told in row["scales"].items():
            typer.echo(f"  {scale:<7}  {counted(told['units'], 'unit')}, {told['takes']}")
        for file, count in row["records"].items():
            units = row["recorded_units"].get(file, count)
            of = "" if units == count else f" of {units} units"
            typer.echo(f"  records  {count}{of} in {printable(file)}")
    if json_file is not None:
        write_json(json_file, every)
    last_line(counted(len(every), "result"), "hcdc reproduce NAME --scale smoke", json_file)


def show_rows(head: Any, rows: Any, quiet: bool) -> None:
    """Print columns of text."""
    if quiet:
        return
    lines = [[printable(text) for text in line] for line in (head, *rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    for line in lines:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
