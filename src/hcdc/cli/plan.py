"""``hcdc plan``."""

from __future__ import annotations

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable, checked_device
from hcdc.cli._clock import passed
from hcdc.cli._interrupt import own_sentence
from hcdc.cli._show import last_line, say, show_progress, write_json, written
from hcdc.core.told import plan_lines


@command
def plan(
    dataset: given.SearchedData = None,
    space: given.SpaceName = None,
    objective: given.Objective = None,
    budget: given.Budget = "30m",
    copy: given.Copies = None,
    rungs: given.Rungs = None,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    model: given.Model = None,
    setting: given.Setting = None,
    target: given.Target = None,
    split_seed: given.SplitSeed = 0,
    imports: given.Imports = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Say what a search would do, and whether it pays.

    Times a few short trainings, and nothing else. Example: hcdc plan --dataset embedded --budget 5m
    """
    from hcdc.cli._subject import chosen_subject

    check_writable("--json", json_file)
    check_inputs(
        [("--json", json_file)], ("--truth", truth), *(("--copy", one) for one in copy or ()),
        dataset=dataset, rungs=rungs, objective=objective, model=model, imports=imports,
    )  # fmt: skip
    chosen = chosen_subject(
        dataset, objective, space, setting, model, target, split_seed, truth, truth_dataset, copies=copy,
        rungs=rungs, budget=budget, device=checked_device(device), seed=seed,
    )  # fmt: skip
    say([line for line in chosen.told if line[0] != "rungs"], quiet)
    with own_sentence("interrupted; a plan keeps nothing"), show_progress(quiet):
        found = hcdc.plan(chosen.subject, chosen.over, before=passed(), **chosen.options)
    say(plan_lines(found), quiet)
    if json_file is not None:
        write_json(json_file, found.to_json())
    following = "the same flags with 'hcdc search'" if found.pays else "see the verdict"
    last_line(written(json_file), following, json_file)
