"""``hcdc condense``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_inputs, check_writable, checked_device, settings
from hcdc.cli._show import ask_first, evaluate_command, last_line, say, show_progress, write_json
from hcdc.core.errors import InputError
from hcdc.core.records import device_name

if TYPE_CHECKING:
    from hcdc.condensers import Plan


@command
def condense(
    dataset: given.Dataset,
    out: given.CondensedOut,
    train_size: given.TrainSize = None,
    per_class: given.PerClass = None,
    method: given.Method = "hcdc",
    val_size: given.ValSize = None,
    val_per_class: given.ValPerClass = None,
    train_method: given.TrainMethod = None,
    val_method: given.ValMethod = None,
    probes: given.Probes = None,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    truth_epochs: given.TruthEpochs = None,
    preset: given.Preset = None,
    options: given.Set = None,
    recipe: given.CopyRecipe = None,
    full_recipe: given.FullRecipe = None,
    space: given.SpaceName = None,
    model: given.Model = None,
    setting: given.Setting = None,
    target: given.Target = None,
    split_seed: given.SplitSeed = 0,
    force: given.Force = False,
    yes: given.Yes = False,
    imports: given.Imports = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Make a condensed copy of a data set.

    Example: hcdc condense --dataset embedded --train-size 60 --out small.hcdc
    """
    from hcdc.cli._choose import check_image_flags, task_and_space, total_size, truth_table
    from hcdc.condensers import plan
    from hcdc.datasets import record_path

    check_writable("--out", out)
    check_writable("--json", json_file)
    check_inputs(
        [("--out", out), ("--json", json_file)], ("--truth", truth), dataset=dataset, model=model,
        imports=imports,
    )  # fmt: skip
    device, chosen = checked_device(device), settings(options)
    if probes is not None:
        if "probes" in chosen:
            raise InputError(f"--probes {probes} and --set probes={chosen['probes']}: give only one of them")
        chosen["probes"] = probes
    data = hcdc.data(dataset, target=target, seed=split_seed)
    check_image_flags(
        data, images_per_class=per_class, val_images_per_class=val_per_class, truth=truth,
        truth_dataset=truth_dataset, truth_epochs=truth_epochs,
    )  # fmt: skip
    task, searched = task_and_space(data, space, setting, model)
    train_size = total_size(("--train-size", "--images-per-class"), train_size, per_class, task, "train")
    val_size = total_size(("--val-size", "--val-images-per-class"), val_size, val_per_class, task, "val")
    if train_size is None:
        raise InputError("Missing --train-size (total examples), e.g. --train-size 35")
    arguments: dict[str, Any] = {
        "method": method, "train_size": train_size, "val_size": val_size, "seed": seed, "preset": preset,
        "train_method": train_method, "val_method": val_method, "options": chosen,
        "truth": truth_table(truth, truth_dataset, data.name),
        "recipe": settings(recipe, "--recipe", "--recipe lr=0.1"),
        "full_recipe": settings(full_recipe, "--full-recipe", "--full-recipe lr=0.05"),
    }  # fmt: skip
    if truth_epochs is not None:
        arguments["truth_epochs"] = truth_epochs
        if truth_epochs < 1:
            raise InputError(f"--truth-epochs {truth_epochs}: at least 1 is needed")
    if truth is not None and method != "hcdc":
        raise InputError(
            f"--truth {truth}: method '{method}' does not use full-data results; pass them to 'hcdc evaluate'"
        )
    made = plan(task, searched, **arguments)
    own = model if model is not None and ":" in model else None
    following = evaluate_command(out, imports, own, truth, truth_dataset)
    if task.one_network(searched):
        following = f"train on it in Python, hcdc.CondensedDataset.load('{out}')"
    if _already_there(out, made, force):
        done = f"{out} exists already and was made by this command, so nothing was done (--force repeats it)"
    else:
        done = _make(made, out, device, yes, quiet)
    if json_file is not None:
        if not (known := hcdc.CondensedDataset.load(out).record):
            raise InputError(f"--json: the record {record_path(out)} is missing; --force makes it again")
        write_json(json_file, known)
    last_line(done, following, json_file)


def _make(made: Plan, out: Path, device: str, yes: bool, quiet: bool) -> str:
    """Print the plan, carry it out and save the copy; returns what was done, in words."""
    from hcdc.core.checkpoint import Checkpoint
    from hcdc.datasets import record_path

    checkpoint = out.with_name(f".{out.name}.ckpt")
    if not quiet:
        lines = made.summary(device)
        say(lines, quiet)
        if Checkpoint(checkpoint, made.key()).begun():
            cost, seconds = "the rest of an interrupted run", 0.0
        else:  # estimating takes time
            expected = made.cost(device)
            cost, seconds = expected.words(), expected.known_seconds
        say([("cost".ljust(max(len(label) for label, _ in lines)), cost)], quiet)
        ask_first(seconds, yes, quiet)
    with show_progress(quiet) as progress:
        small = made.run(
            device=device, checkpoint=checkpoint, progress=progress,
            done=lambda small: small.save(out),
        )  # fmt: skip
    spent = f"{small.record['condense_seconds']:.1f} s on {device_name(device)}"
    size = out.stat().st_size / 1024
    return f"wrote {out} ({size:,.0f} KiB, {spent}) and {record_path(out).name}"


def _already_there(out: Path, made: Plan, force: bool) -> bool:
    """Whether this command wrote ``out`` before; refuses any other existing file."""
    if force or not out.exists():
        return False
    try:
        if made.made(hcdc.CondensedDataset.load(out)):
            return True
    except InputError:
        pass
    raise InputError(
        f"--out {out}: the file exists and was not made by this command; choose another name or add --force"
    )
