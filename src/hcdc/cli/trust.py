"""``hcdc trust``."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import (
    GROUP,
    check_inputs,
    check_writable,
    checked_device,
    settings,
    storage_file,
)
from hcdc.cli._interrupt import if_interrupted, kept_in, own_sentence
from hcdc.cli._show import (
    ask_first,
    last_line,
    quoted,
    say,
    show_progress,
    with_flags,
    write_json,
    written,
)
from hcdc.core.errors import InputError
from hcdc.core.plugins import load_attribute
from hcdc.core.progress import duration
from hcdc.core.records import device_name
from hcdc.core.told import trust_lines

TIE = "sha256"
"""Key of a trust report that holds the hash of the condensed file."""


@command
def trust(
    file: given.TrustedFile = None,
    objective: given.Objective = None,
    dataset: given.SearchedData = None,
    target: given.Target = None,
    split_seed: given.SplitSeed = 0,
    rung: given.Rung = None,
    probes: given.TrustProbes = 16,
    against: given.Against = "full",
    confirm: given.Confirm = 0,
    group: given.Groups = None,
    k: given.K = None,
    known: given.Known = None,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    cache: given.Cache = None,
    storage: given.Storage = None,
    model: given.OwnModel = None,
    yes: given.Yes = False,
    imports: given.Imports = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Measure how far to believe a copy or another stand-in.

    Trains a few configurations in full and compares the results, overall and per dimension. Example: hcdc
    trust --objective train.py:objective --rung short:0.25
    """
    from hcdc.search import check_probes

    check_probes(probes, against, confirm)
    design: dict[str, Any] = {"probes": probes, "against": against, "confirm": confirm, "seed": seed}
    asked: dict[str, Any] = {"groups": settings(group, "--group", GROUP), "k": k}
    if objective is not None:
        others = {"FILE": file, "--truth": truth, "--truth-dataset": truth_dataset, "--model": model}
        for flag, value in {**others, "--cache": cache}.items():
            if value is not None:
                raise InputError(f"{flag} {value}: it does not go with --objective; leave it out")
        data = dataset, target, split_seed
        _of_objective(objective, data, rung, design, asked, known, storage, yes, imports, json_file, quiet)
        return
    if dataset is not None or target is not None:
        raise InputError("--dataset and --target go with --objective; a copy names its data itself")
    if split_seed:
        raise InputError(
            f"--split-seed {split_seed}: it goes with --objective; a copy names its split itself"
        )
    if storage is not None:
        raise InputError(f"--storage {storage}: it goes with --objective; a copy has --cache")
    if rung is not None:
        raise InputError(f"--rung {rung}: it goes with --objective; a copy is the stand-in itself")
    if known is not None:
        raise InputError(f"--known {known}: it goes with --objective; a copy has --truth")
    if file is None:
        raise InputError("Missing a condensed file, or --objective FILE.py:NAME")
    from hcdc.cli._choose import truth_table
    from hcdc.condensers import space_words
    from hcdc.evaluation import reopen_task
    from hcdc.search import trust_cost
    from hcdc.spaces import from_spec

    result = json_file or trust_path(file)
    check_writable("--json", result)
    check_inputs([("--json", result)], ("FILE", file), ("--truth", truth), model=model, imports=imports)
    device = checked_device(device)
    small = hcdc.CondensedDataset.load(file)
    table = truth_table(truth, truth_dataset, str(small.meta["data"].get("name")))
    task = reopen_task(small, None if model is None else load_attribute(model))
    told: list[tuple[str, object]] = [
        ("data", task.words()),
        ("space", space_words(from_spec(small.meta["space"]))),
        ("device", device_name(device)),
    ]
    expected = 0.0
    if not quiet:
        cost = trust_cost(small, task, probes, against, confirm, table, device)
        expected = cost.known_seconds
        told.append(("cost", cost.words()))
    say(told, quiet)
    ask_first(expected, yes, quiet)
    with show_progress(quiet) as progress:
        found = hcdc.trust(
            dataclasses.replace(small, task=task), **design, **asked, truth=table, device=device,
            cache=cache, progress=progress,
        )  # fmt: skip
    say(trust_lines(found), quiet)
    write_json(result, {**found.to_json(), TIE: content_hash(file)})
    following = with_flags(f"hcdc search {quoted(file)} --trials 200", imports, {"--model": model})
    last_line(written(result), following, json_file)


def trust_path(file: Path) -> Path:
    """The trust report of a condensed file: ``NAME.trust.json`` beside ``NAME.hcdc``."""
    return file.with_name(f"{file.name.removesuffix('.hcdc')}.trust.json")


def content_hash(file: Path) -> str:
    """What ties a report to the content of a condensed file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _of_objective(
    objective: str,
    data: tuple[str | None, str | None, int],
    rung: str | None,
    design: dict[str, Any],
    asked: dict[str, Any],
    known: Path | None,
    storage: str | None,
    yes: bool,
    imports: Sequence[str] | None,
    json_file: Path | None,
    quiet: bool,
) -> None:
    """Measure a stand-in of the user's own function."""
    from hcdc.cli._subject import loaded_objective
    from hcdc.search import USUAL_RUNG, trust_seconds

    result, rung = json_file or Path("trust.json"), rung or USUAL_RUNG
    check_writable("--json", result)
    place = storage_file(storage)
    check_inputs(
        [("--storage", place), ("--json", result)], ("--known", known), dataset=data[0], rungs=rung,
        objective=objective, imports=imports,
    )  # fmt: skip
    function, full = loaded_objective(objective, *data)
    told: list[tuple[str, object]] = [("objective", objective), ("data", repr(full)), ("stand-in", rung)]
    expected = 0.0
    if not yes and not quiet:
        expected = trust_seconds(function, full, rung, **design, known=known)
        trials = "a few timed trials" if known is None else "a timed trial; no full training"
        told.append(("cost", f"about {duration(expected)}, by {trials}"))
    say([*told, ("finished trials", kept_in(place))], quiet)
    ask_first(expected, yes, quiet)
    with own_sentence(if_interrupted(place)), show_progress(quiet) as progress:
        found = hcdc.trust(
            function, full, rung=rung, **design, **asked, known=known, storage=place, progress=progress
        )
    say(trust_lines(found), quiet)
    write_json(result, found.to_json())
    dataset, target, split_seed = data
    flags = {"--dataset": dataset, "--target": target, "--split-seed": split_seed or None}
    following = f"hcdc search --objective {quoted(objective)} --rungs {quoted(rung)}"
    last_line(written(result), with_flags(following, imports, flags), json_file)
