"""``hcdc demo``."""

from __future__ import annotations

from pathlib import Path

from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_writable, checked_device
from hcdc.cli._show import (
    last_line,
    say,
    show_findings,
    show_notes,
    show_progress,
    show_table,
    table_json,
    write_json,
)
from hcdc.core.told import found_lines


@command
def demo(
    out: given.DemoOut = None,
    images: given.OfImages = False,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Try it on built-in data, offline.

    Condenses a graph (or digits) by several methods and compares; the graph is then searched for a minute.
    """
    from hcdc import experiments
    from hcdc.reporting import summary_table

    check_writable("--json", json_file)
    device = checked_device(device)
    with show_progress(quiet) as progress:
        if images:
            result = experiments.run_image_demo(out or Path("demo-out", "images"), device, seed, progress)
        else:
            result = experiments.run_demo(out or Path("demo-out"), device, seed, progress)
    rows = summary_table(result.evaluations)
    if json_file is not None:
        searched = {} if result.found is None else {"search": result.found.to_json()}
        write_json(json_file, {**table_json(result.evaluations, rows), **searched})
    show_table(rows, quiet)
    show_findings(result.evaluations, quiet)
    show_notes(result.notes, quiet)
    say([("figures", ", ".join(str(path) for path in result.figures))], quiet)
    page = result.report
    if result.found is not None:
        say(found_lines(result.found), quiet)
        page = page.with_name("search.html")
    last_line(f"wrote {result.report}", f"open {page} in a browser", json_file)
