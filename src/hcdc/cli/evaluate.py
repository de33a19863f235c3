"""``hcdc evaluate``."""

from __future__ import annotations

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_apart, check_writable, checked_device
from hcdc.cli._choose import truth_table
from hcdc.cli._plans import judge_lines
from hcdc.cli._show import last_line, quoted, say, show_findings, show_progress, show_table, write_json
from hcdc.core.plugins import load_attribute
from hcdc.datasets import CondensedDataset, record_path
from hcdc.evaluation import checked_judges, reopen_task
from hcdc.reporting import summary_table
from hcdc.truth import check_truth


@command
def evaluate(
    file: given.CondensedFile,
    candidates: given.Candidates = 80,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    rivals: given.Rivals = True,
    cache: given.Cache = None,
    model: given.OwnModel = None,
    imports: given.Imports = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Measure how well a copy ranks configurations.

    New configurations are ranked on the copy, on the full data and by cheaper rivals, and compared.
    """
    result = json_file or file.with_name(f"{file.name.removesuffix('.hcdc')}.evaluation.json")
    check_writable("--json", result)
    check_apart(("FILE", file), ("its record", record_path(file)), ("--truth", truth), ("--json", result))
    device = checked_device(device)
    small = CondensedDataset.load(file)
    table = truth_table(truth, truth_dataset, str(small.meta["data"].get("name")))
    task = reopen_task(small, None if model is None else load_attribute(model))
    if table is not None:
        check_truth(table, task)
    fresh, _ = checked_judges(small, task, candidates, seed)
    if not quiet:
        say(judge_lines(small, task, len(fresh), device, table, rivals), quiet)
    with show_progress(quiet) as progress:
        found = hcdc.evaluate(
            small,
            candidates=candidates,
            seed=seed,
            task=task,
            device=device,
            cache=cache,
            rivals=rivals,
            progress=progress,
            truth=table,
        )
    write_json(result, found.to_json())
    show_table(summary_table([found]), quiet)
    show_findings([found], quiet)
    last_line(f"wrote {result}", f"hcdc report {quoted(result)} --out report.html", result)
