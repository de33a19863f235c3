"""``hcdc trust``."""

from __future__ import annotations

import dataclasses

import hcdc
from hcdc.cli import _options as given
from hcdc.cli._app import command
from hcdc.cli._arguments import check_apart, check_writable, checked_device
from hcdc.cli._choose import truth_table
from hcdc.cli._show import ask_first, last_line, quoted, say, show_progress, write_json
from hcdc.condensers import full_trainings, space_words
from hcdc.core.plugins import load_attribute
from hcdc.core.recipe import Recipe
from hcdc.core.records import device_name
from hcdc.core.trusted import Trust
from hcdc.datasets import CondensedDataset, record_path
from hcdc.evaluation import reopen_task
from hcdc.spaces import from_spec


@command
def trust(
    file: given.CondensedFile,
    probes: given.TrustProbes = 12,
    truth: given.Truth = None,
    truth_dataset: given.TruthDataset = None,
    cache: given.Cache = None,
    model: given.OwnModel = None,
    yes: given.Yes = False,
    imports: given.Imports = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    json_file: given.Json = None,
    debug: given.Debug = False,
    quiet: given.Quiet = False,
) -> None:
    """Measure how far to believe a copy's ranking.

    A few configurations are trained in full and compared with the copy, overall and per dimension.
    """
    result = json_file or file.with_name(f"{file.name.removesuffix('.hcdc')}.trust.json")
    check_writable("--json", result)
    check_apart(("FILE", file), ("its record", record_path(file)), ("--truth", truth), ("--json", result))
    device = checked_device(device)
    small = CondensedDataset.load(file)
    table = truth_table(truth, truth_dataset, str(small.meta["data"].get("name")))
    task, space = reopen_task(small, None if model is None else load_attribute(model)), _space(small)
    told: list[tuple[str, object]] = [
        ("data", task.words()),
        ("space", space_words(space)),
        ("device", device_name(device)),
    ]
    expected = 0.0
    if table is None and not quiet:
        cost = full_trainings(probes, task, space, Recipe.from_dict(small.meta["full_recipe"]), device)
        expected = cost.seconds or 0.0
        told.append(("cost", cost.words))
    say(told, quiet)
    ask_first(expected, yes, quiet)
    with show_progress(quiet) as progress:
        found = hcdc.trust(
            dataclasses.replace(small, task=task), probes=probes, seed=seed, truth=table, device=device,
            cache=cache, progress=progress,
        )  # fmt: skip
    write_json(result, found.to_json())
    say(trust_lines(found), quiet)
    last_line(f"wrote {result}", f"hcdc search {quoted(file)} --trials 200", json_file)


def _space(small: CondensedDataset) -> hcdc.spaces.Space:
    return from_spec(small.meta["space"])


def trust_lines(found: Trust) -> list[tuple[str, object]]:
    """How far to believe a stand-in, for the terminal."""
    lines: list[tuple[str, object]] = [("verdict", f"{found.verdict}: {found.why}")]
    for label, some in (
        (f"agreement among the best {found.keep:.0%}", found.survivors),
        (f"share of the truly best {found.keep:.0%} that survives", found.recall),
        (f"lost by choosing one of {found.of}", found.regret),
    ):
        if some.value is not None:
            low, high = some.interval
            between = "" if low is None else f" ({low:.2g} to {high:.2g})"
            lines.append((label, f"{some.value:.2g}{between}"))
    for d in found.dimensions:
        tau = "undefined" if d.tau is None else f"{d.tau:.2f} ({d.interval[0]:.2f} to {d.interval[1]:.2f})"
        lines.append((f"dimension {d.name}", f"{d.verdict}: agreement {tau}, importance {d.importance:.2f}"))
    return lines
