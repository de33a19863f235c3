"""``hcdc report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable
from hcdc.cli._show import last_line, say, show_table, table_json, write_json
from hcdc.core.errors import InputError
from hcdc.core.told import found_lines

STARTED_FROM_REAL = ("aligned", "both", "probes")
"""Ways to learn S_val that start from random real examples."""


@command
def report(
    files: given.Evaluations,
    out: given.PageOut = Path("report.html"),
    title: given.Title = None,
    imports: given.Imports = None,
    json_file: given.Json = None,
    seed: given.UnusedSeed = 0,
    device: given.UnusedDevice = "auto",
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Write an HTML page about a search or evaluations.

    The page holds the conclusions, the tables and the figures.
    """
    from hcdc.reporting import (
        read_evaluation,
        read_found,
        summary_table,
        write_report,
        write_search_report,
    )

    check_writable("--out", out)
    check_writable("--json", json_file)
    read = [*(("FILE", file) for file in files), *(("its copy", copy_beside(file)) for file in files)]
    outputs = [("--out", out), ("--json", json_file)]
    check_inputs(outputs, *read, imports=imports)
    searches = [found for file in files if (found := read_found(file)) is not None]
    if searches:
        if len(files) > 1:
            raise InputError("a page shows one search, or evaluations; write a page for each search")
        names = [rung.file for rung in searches[0].rungs if rung.file]
        places = [place for name in names for place in (Path(name), files[0].with_name(Path(name).name))]
        check_inputs(outputs, *(("its copy", place) for place in places))
        write_search_report(searches[0], out, title or "What the search found", files[0].parent)
        if json_file is not None:
            write_json(json_file, searches[0].to_json())
        say(found_lines(searches[0]), quiet)
        last_line(f"wrote {out}", f"open {out} in a browser", json_file)
        return
    title = title or "Rank agreement of condensed copies"
    evaluations = [read_evaluation(file) for file in files]
    copies = _copies(files, evaluations)
    write_report(evaluations, out, title, copies, [_before(small) for small in copies])
    rows = summary_table(evaluations)
    if json_file is not None:
        write_json(json_file, table_json(evaluations, rows))
    show_table(rows, quiet)
    last_line(f"wrote {out}", f"open {out} in a browser", json_file)


def copy_beside(file: Path) -> Path:
    """Where the copy of an evaluation may be: ``NAME.hcdc`` for ``NAME[.evaluation].json``."""
    return file.with_name(f"{file.name.removesuffix('.json').removesuffix('.evaluation')}.hcdc")


def _copies(files: Sequence[Path], evaluations: Sequence[hcdc.Evaluation]) -> list[hcdc.CondensedDataset]:
    """Image copies beside their evaluations."""
    from hcdc.reporting import belongs

    found: dict[Path, hcdc.CondensedDataset] = {}
    for file, evaluation in zip(files, evaluations):
        path = copy_beside(file)
        if not path.is_file():
            continue
        try:
            small = hcdc.CondensedDataset.load(path)
        except InputError:
            continue
        if small.train.pictures() is not None and belongs(evaluation, small.meta):
            found[path.resolve()] = small
    return list(found.values())


def _before(small: hcdc.CondensedDataset) -> Any:
    """The real images that S_val started from; None if it was not learned or the data cannot be read."""
    from hcdc.evaluation import reopen_task

    if small.meta["val_method"] not in STARTED_FROM_REAL:
        return None
    try:
        task: Any = reopen_task(small, download=False)
        return task.sample("val", small.meta["val_size"], small.meta["seed"])
    except InputError:
        return None
