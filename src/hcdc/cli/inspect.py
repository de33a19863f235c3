"""``hcdc inspect``."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable
from hcdc.cli._show import evaluate_command, last_line, quoted, say, shortened, write_json, written
from hcdc.cli.trust import TIE, content_hash, trust_path

if TYPE_CHECKING:
    from hcdc.core.results import Evaluation
    from hcdc.core.trusted import Trust


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

    Evaluations and the trust report beside the file are read. No code that the file names is run.
    """
    from hcdc.reporting import evaluations_of

    check_writable("--json", json_file)
    check_inputs([("--json", json_file)], ("FILE", file), imports=imports)
    small = hcdc.CondensedDataset.load(file)
    evaluations = evaluations_of(small.meta, sorted(file.resolve().parent.glob("*.json")))
    check_inputs([("--json", json_file)], *(("its evaluation", path) for path, _ in evaluations))
    measured = trust_report(file)
    lines: list[tuple[str, object]] = [
        *((label, shortened(text) if label == "space" else text) for label, text in small.summary()),
        *small.details(),
        *_evidence(small.record, evaluations, measured),
    ]
    if json_file is not None:
        told = [list(line) for line in lines]
        write_json(json_file, {"file": str(file), "meta": small.meta, "record": small.record, "lines": told})
    say(lines, quiet)
    following = _evaluation_of(small, file, imports)
    if evaluations:
        following = f"hcdc report {quoted(file.parent / evaluations[0][0].name)} --out report.html"
    last_line(written(json_file), following, json_file)


def _evaluation_of(small: hcdc.CondensedDataset, file: Path, imports: Sequence[str] | None) -> str:
    """How to evaluate a copy."""
    if "source" not in (small.meta["data"].get("origin") or {}):
        return "hcdc.evaluate(small, task=...) in Python, since its data was passed in memory"
    model = str(small.meta["task"].get("model"))
    return evaluate_command(file, imports, _to_load(model) if ":" in model else None)


def _to_load(model: str) -> str:
    """A user's own model as a flag takes it; the file of a module that cannot be found has to be named."""
    module, _, name = model.rpartition(":")
    top = module.partition(".")[0]
    try:  # finds the outermost module without importing it
        found = top != "__main__" and importlib.util.find_spec(top) is not None
    except ValueError:
        found = False
    return model if found else f"FILE.py:{name}"


def trust_report(file: Path) -> Trust | None:
    """What ``hcdc trust`` measured for a condensed file with this content; None if it is not beside it."""
    from hcdc.core.trusted import Trust

    try:
        document = json.loads(trust_path(file).read_text(encoding="utf-8"))
        own = document.get(TIE) == content_hash(file)
        return Trust.from_json(document) if own else None
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def _evidence(
    record: dict[str, Any], evaluations: Sequence[tuple[Path, Evaluation]], measured: Trust | None
) -> list[tuple[str, object]]:
    """What is known from the files beside it: its record, evaluations and trust report."""
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
    if measured is not None:
        lines.append(("trust", f"{measured.verdict}: {measured.why}"))
    if not evaluations:
        unknown = "" if measured is not None else ", so its ranking quality is unknown"
        lines.append(("evaluation", f"none beside the file{unknown}"))
    return lines
