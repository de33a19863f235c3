"""``hcdc search``."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from hcdc.cli._clock import passed
from hcdc.cli._interrupt import if_interrupted, kept_in, own_sentence
from hcdc.cli._show import ask_first, last_line, report_command, say, show_progress, write_json, written
from hcdc.core.errors import InputError
from hcdc.core.found import Found
from hcdc.core.plugins import load_attribute
from hcdc.core.progress import duration
from hcdc.core.records import device_name
from hcdc.core.told import counted, found_lines

if TYPE_CHECKING:
    from hcdc.cli._subject import Subject


@command
def search(
    file: given.SearchedFile = None,
    dataset: given.SearchedData = None,
    space: given.SpaceName = None,
    objective: given.Objective = None,
    budget: given.SearchBudget = None,
    storage: given.Storage = None,
    copy: given.Copies = None,
    rungs: given.Rungs = None,
    trials: given.Trials = None,
    sampler: given.Sampler = None,
    known: given.Known = None,
    backend: given.Backend = None,
    address: given.Address = None,
    group: given.Groups = None,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    model: given.Model = None,
    setting: given.Setting = None,
    target: given.Target = None,
    split_seed: given.SplitSeed = 0,
    yes: given.Yes = False,
    imports: given.Imports = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Find the best configuration within a budget.

    Example: hcdc search --dataset embedded --budget 2m --storage search.jsonl
    """
    from hcdc.cli._subject import chosen_subject
    from hcdc.search import check_trials

    result = json_file or Path("search.json")
    check_writable("--json", result)
    place = storage_file(storage)
    check_inputs(
        [("--storage", place), ("--json", result)], ("FILE", file), ("--truth", truth), ("--known", known),
        *(("--copy", one) for one in copy or ()), dataset=dataset, rungs=rungs, objective=objective,
        model=model, imports=imports,
    )  # fmt: skip
    device = checked_device(device)
    check_trials(trials)
    common: dict[str, Any] = {
        "budget": budget, "storage": place, "trials": trials, "device": device, "seed": seed,
    }  # fmt: skip
    if file is not None:
        others: dict[str, object] = {"--dataset": dataset, "--space": space, "--objective": objective}
        others |= {"--setting": setting, "--target": target, "--split-seed": split_seed or None}
        others |= {"--rungs": rungs, "--truth": truth, "--truth-dataset": truth_dataset}
        others |= {"--sampler": sampler, "--known": known, "--backend": backend, "--group": group}
        others |= {"--address": address, "--copy": copy}
        for flag, value in others.items():
            if value is not None:
                raise InputError(f"{flag} {value}: a condensed file is searched without it; leave it out")
        chosen = _copy_alone(file, model, common)
    elif dataset is None and objective is None:
        raise InputError("Missing --dataset NAME, --objective FILE.py:NAME or a condensed file")
    else:
        chosen = chosen_subject(
            dataset, objective, space, setting, model, target, split_seed, truth, truth_dataset,
            copies=copy, rungs=rungs, sampler=sampler, known=known, backend=backend, address=address,
            groups=settings(group, "--group", GROUP), **common,
        )  # fmt: skip
    say([*chosen.told, ("finished trials", kept_in(place))], quiet)
    before = passed()  # but not the time for an answer
    ask_first(chosen.trains, yes, quiet)
    found = _run(chosen, place, quiet, before)
    say([*(("rung", _rung(rung)) for rung in found.rungs), *found_lines(found)], quiet)
    write_json(result, found.to_json())
    last_line(written(result), report_command(result), json_file)


def _copy_alone(file: Path, model: str | None, options: dict[str, Any]) -> Subject:
    """The search on one condensed file."""
    from hcdc.cli._subject import Subject
    from hcdc.condensers import space_words, training_seconds
    from hcdc.evaluation import reopen_task
    from hcdc.search import COPY_TRIALS, parse_budget
    from hcdc.spaces import from_spec

    small = hcdc.CondensedDataset.load(file)
    task = reopen_task(small, None if model is None else load_attribute(model))
    space, device = from_spec(small.meta["space"]), options["device"]
    trials = options["trials"] or COPY_TRIALS
    recipe = hcdc.Recipe.from_dict(small.meta["calibrated_recipe"])
    each = training_seconds(task, space, recipe, device, len(small.train))
    limit = options["budget"]
    expected = min(trials * each, math.inf if limit is None else parse_budget(limit))
    told: list[tuple[str, object]] = [
        ("data", f"the copy {file} alone, without full trainings"),
        ("space", space_words(space)),
        ("trials", f"{trials}, about {duration(expected)}"),
        ("device", device_name(device)),
    ]
    return Subject(dataclasses.replace(small, task=task), None, options, told, expected)


def _run(chosen: Subject, storage: Path | None, quiet: bool, before: float) -> Found:
    with own_sentence(if_interrupted(storage)), show_progress(quiet, before) as progress:
        return hcdc.search(chosen.subject, chosen.over, progress=progress, **chosen.options)


def _rung(rung: Any) -> str:
    from hcdc.reporting import rung_cells

    name, _, _, seconds, _, agreement, *_, note = rung_cells(rung)
    ranks = "" if rung.spearman is None else f", agreement {agreement}"
    tried = counted(rung.candidates, "candidate")
    return f"{name}: {tried} in {seconds} s{ranks}" + (f", {note}" if note else "")
