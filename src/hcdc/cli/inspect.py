"""``hcdc inspect``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable
from hcdc.cli._show import evaluate_command, last_line, quoted, say, shortened, write_json

if TYPE_CHECKING:
    from hcdc.core.results import Evaluation


@command
def inspect(
    file: given.CondensedFile,
    imports: given.Imports = None,
    json_file: given.Json = None,
    seed: given.UnusedSeed = 0,
    device: given.UnusedDevice = "auto",
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Show what a condensed file holds and how well it ranks.

    Evaluations beside the file are read. No code that the file names is run.
    """
    from hcdc.reporting import evaluations_of

    check_writable("--json", json_file)
    check_inputs([("--json", json_file)], ("FILE", file), imports=imports)
    small = hcdc.CondensedDataset.load(file)
    evaluations = evaluations_of(small.meta, sorted(file.resolve().parent.glob("*.json")))
    check_inputs([("--json", json_file)], *(("its evaluation", path) for path, _ in evaluations))
    lines: list[tuple[str, object]] = [
        *((label, shortened(text) if label == "space" else text) for label, text in small.summary()),
        *small.details(),
        *_evidence(small.record, evaluations),
    ]
    if json_file is not None:
        told = [list(line) for line in lines]
        write_json(json_file, {"file": str(file), "meta": small.meta, "record": small.record, "lines": told})
    say(lines, quiet)
    following = _evaluation_of(small, file, imports)
    if evaluations:
        following = f"hcdc report {quoted(file.parent / evaluations[0][0].name)} --out report.html"
    last_line("nothing written" if json_file is None else f"wrote {json_file}", following, json_file)


def _evaluation_of(small: hcdc.CondensedDataset, file: Path, imports: Sequence[str] | None) -> str:
    """How to evaluate a copy."""
    if "source" not in (small.meta["data"].get("origin") or {}):
        return "hcdc.evaluate(small, task=...) in Python, since its data was passed in memory"
    model = str(small.meta["task"].get("model"))
    return evaluate_command(file, imports, model.replace("__main__", "FILE.py") if ":" in model else None)


def _evidence(
    record: dict[str, Any], evaluations: Sequence[tuple[Path, Evaluation]]
) -> list[tuple[str, object]]:
    """What is known from the files beside it: its record and evaluations."""
    from hcdc.reporting import payment, validation_choice

    lines: list[tuple[str, object]] = []
    if "condense_seconds" in record:
        where = record.get("environment", {}).get("device", "an unknown device")
        lines.append(("made in", f"{record['condense_seconds']:.1f} s on {where}"))
    for path, evaluation in evaluations:
        value, count = evaluation.spearman, len(evaluation.truth)
        ranks = "not defined" if value is None else f"Spearman {value:.2f} on {count} candidates"
        lines.append(("evaluation", f"{path.name}: {ranks}"))
        if choice := validation_choice(evaluation):
            lines.append(("validation choice", choice))
        if value is not None:  # without a ranking it saves nothing
            lines.append(("whether it pays", payment(evaluation)))
    if not evaluations:
        lines.append(("evaluation", "none beside the file, so its ranking quality is unknown"))
    return lines
