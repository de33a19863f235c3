"""``hcdc evaluate``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable, checked_device
from hcdc.cli._show import (
    ask_first,
    last_line,
    report_command,
    say,
    show_findings,
    show_progress,
    show_table,
    write_json,
    written,
)
from hcdc.core.errors import InputError
from hcdc.core.plugins import load_attribute
from hcdc.core.records import device_name, jsonable

if TYPE_CHECKING:
    from hcdc.condensers import Cost
    from hcdc.truth import Truth


@command
def evaluate(
    file: given.CondensedFile,
    candidates: given.Candidates = 80,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    rivals: given.Rivals = True,
    cache: given.Cache = None,
    model: given.OwnModel = None,
    force: given.ForceResult = False,
    yes: given.Yes = False,
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
    from hcdc.cli._choose import truth_table
    from hcdc.evaluation import checked_judges, cost, reopen_task
    from hcdc.reporting import summary_table
    from hcdc.truth import check_truth

    result = json_file or file.with_name(f"{file.name.removesuffix('.hcdc')}.evaluation.json")
    check_writable("--json", result)
    check_inputs([("--json", result)], ("FILE", file), ("--truth", truth), model=model, imports=imports)
    device = checked_device(device)
    small = hcdc.CondensedDataset.load(file)
    table = truth_table(truth, truth_dataset, str(small.meta["data"].get("name")))
    task = reopen_task(small, None if model is None else load_attribute(model))
    if table is not None:
        check_truth(table, task)
    fresh, _ = checked_judges(small, task, candidates, seed)
    if json_file is None and result.exists() and not force:
        _refuse_another(result, small, fresh, seed, rivals)
    if not quiet:
        expected = cost(small, task, fresh, device, rivals, table, cache)
        say(judge_lines(small, task, len(fresh), device, table, expected), quiet)
        ask_first(expected.known_seconds, yes, quiet)
    with show_progress(quiet) as progress:
        found = hcdc.evaluate(
            small, candidates=candidates, seed=seed, task=task, device=device, cache=cache, rivals=rivals,
            progress=progress, truth=table,
        )  # fmt: skip
    write_json(result, found.to_json())
    show_table(summary_table([found]), quiet)
    show_findings([found], quiet)
    last_line(written(result), report_command(result), result)


def _refuse_another(result: Path, small: hcdc.CondensedDataset, fresh: Any, seed: int, rivals: bool) -> None:
    """Refuse to replace an evaluation that this command would not write again."""
    from hcdc.reporting import belongs, read_evaluation

    with contextlib.suppress(InputError):
        kept = read_evaluation(result)
        same = belongs(kept, small.meta) and kept.judge_seed == seed and list(kept.configs) == jsonable(fresh)
        if same and (rivals or not kept.rivals):
            return
    raise InputError(
        f"{result} exists and differs from what this command would write; name another file with "
        "--json, or add --force"
    )


def judge_lines(
    small: hcdc.CondensedDataset, task: Any, candidates: int, device: str, table: Truth | None, cost: Cost
) -> list[tuple[str, object]]:
    """What will be judged, how, and at what cost."""
    from hcdc.condensers import in_words, space_words
    from hcdc.spaces import from_spec

    meta, space = small.meta, from_spec(small.meta["space"])
    told = cost.words()
    if table is None and meta.get("truth"):
        told += "; the copy was made with a table of results, which --truth FILE would use here too"
    return [
        ("data", f"{meta['data'].get('name')}, split: {meta['data'].get('split')}"),
        ("candidates", f"{candidates} of {space_words(space)}"),
        ("full recipe", in_words(meta["full_recipe"]))
        if table is None
        else ("full data", f"results from the {table.words()}"),
        ("calibrated recipe", in_words(meta["calibrated_recipe"])),
        ("device", device_name(device)),
        ("cost", told),
    ]
