"""Runs the units of a reproduction: finished ones are skipped, the others can be split over machines."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hcdc.core import records
from hcdc.core.errors import InputError
from hcdc.core.progress import Progress
from hcdc.experiments.reproductions._frame import (
    REPRODUCTIONS,
    SEEDS,
    Record,
    Reproduction,
    Table,
    Unit,
    Work,
)
from hcdc.reporting import write_figure
from hcdc.search import ray_cluster, ray_task


@dataclass(frozen=True)
class Reproduced:
    """The outcome of a run.

    Attributes:
        table: The result, over all units that the file has.
        done, units: Units in the file, and asked for.
        notes: Sentences about units that could not be run.
        figure: File of the figure, if the result is one.
    """

    table: Table
    done: int
    units: int
    notes: Sequence[str]
    figure: Path | None = None


def key(unit: Unit) -> str:
    """The identity of a unit."""
    return json.dumps(unit, sort_keys=True)


def read(out: Path, kind: type[Reproduction]) -> list[Record]:
    """The records of a reproduction in a file that may not exist yet."""
    return [r for r in records.read(out) if kind.owns(r)] if out.exists() else []


def finished(found: Sequence[Record]) -> set[str]:
    """Keys of the units whose records are complete."""
    parts = Counter(key(r["unit"]) for r in found if "unit" in r)
    return {key(r["unit"]) for r in found if "unit" in r and parts[key(r["unit"])] >= r["parts"]}


def parse_seeds(text: str) -> list[int]:
    """``5`` is the first five reported seeds; ``100:105`` names them."""
    if found := re.fullmatch(r"(\d+):(\d+)", text):
        seeds = list(range(int(found[1]), int(found[2])))
    else:
        seeds = list(range(SEEDS, SEEDS + int(text))) if text.isdigit() else []
    if not seeds:
        raise InputError(
            f"--seeds {text}: give a number such as 5, which means {SEEDS}:{SEEDS + 5}, or FIRST:END"
        )
    return seeds


def parse_shard(text: str) -> tuple[int, int]:
    """``0/2`` and ``1/2`` are the halves."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    index, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if index >= count:
        raise InputError(f"--shard {text}: give I/N with I from 0 to N - 1, e.g. 0/2 and 1/2")
    return index, count


def expected_seconds(
    what: Reproduction, scale: str, seeds: Sequence[int], out: Path, shard: tuple[int, int] = (0, 1)
) -> float:
    """Roughly how long `reproduce` will take: what the scale says, for the units that ``out`` lacks."""
    size, done = type(what).scales[scale], finished(read(out, type(what)))
    usual = what.units(range(SEEDS, SEEDS + size.seeds))
    todo = [unit for unit in what.units(seeds)[shard[0] :: shard[1]] if key(unit) not in done]
    return size.seconds * len(todo) / max(1, len(usual))


def reproduce(
    what: Reproduction,
    seeds: Sequence[int],
    out: Path,
    *,
    device: str = "cpu",
    shard: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
    backend: str | None = None,
    address: str | None = None,
) -> Reproduced:
    """Run the units that ``out`` lacks and append their records; then make the table of all that it has.

    Copies are kept in a folder beside ``out`` and used again. Units whose data cannot be had are left out;
    the loader's sentence is a note.

    Args:
        what: The reproduction with its settings.
        seeds: The seeds to run.
        out: File of records.
        device: Where to train.
        shard: ``(i, n)`` runs every n-th unit, from the i-th on.
        progress: Where progress is reported.
        backend: ``"ray"`` runs the units on a Ray cluster, one task each; nodes need this package, and the
            data and the folder of copies in the same places.
        address: Address of the cluster; by default the one that is running, else one on this machine.
    """
    records.loaded_commit()
    check_backend(backend, address)
    units = what.units(seeds)
    work = Work(device, out.with_name(f"{out.stem}-copies"), progress)
    done = finished(read(out, type(what)))
    todo = [unit for unit in units[shard[0] :: shard[1]] if key(unit) not in done]
    missing: dict[str, str] = {}
    for name in dict.fromkeys(unit["dataset"] for unit in todo if "dataset" in unit):
        try:
            work.data(name)
        except InputError as error:
            missing[name] = str(error)
    todo_here = [unit for unit in todo if unit.get("dataset") not in missing]
    if missing and not todo_here and not done & {key(unit) for unit in units}:
        raise InputError(next(iter(missing.values())))
    for unit in todo_here:  # fail before anything is written
        what.check(unit, work)
    for made in on_ray(what, todo_here, work, address) if backend else in_turn(what, todo_here, work):
        records.append(out, *made)
    places, found = {key(unit): place for place, unit in enumerate(units)}, read(out, type(what))
    done = finished(found) & places.keys()
    found = [r for r in found if "unit" in r and key(r["unit"]) in done]
    found.sort(key=lambda r: places[key(r["unit"])])  # on a cluster, units end in any order
    drawn = what.draw(found) if found else None
    figure = None if drawn is None else write_figure(drawn, out.with_suffix(".png"))
    return Reproduced(what.table(found), len(done), len(units), list(missing.values()), figure)


def recorded(what: Reproduction, unit: Unit, work: Work) -> list[Record]:
    """Do a unit; its records, with what ran, how long and where."""
    begun = time.perf_counter()
    made = what.run(unit, work)
    told = {
        "protocol": what.protocol, "unit": unit, "parts": len(made),
        "seconds": time.perf_counter() - begun, "environment": records.environment(work.device),
    }  # fmt: skip
    return [{**record, **told} for record in made]


def in_turn(what: Reproduction, units: Sequence[Unit], work: Work) -> Iterator[list[Record]]:
    """The records of each unit, one after another."""
    for number, unit in enumerate(units, 1):
        work.progress.report(f"{what.name}, unit {number} of {len(units)}: {words(unit)}")
        yield recorded(what, unit, work)


def on_ray(
    what: Reproduction, units: Sequence[Unit], work: Work, address: str | None
) -> Iterator[list[Record]]:
    """The records of each unit, in the order in which they end on a Ray cluster."""
    ray = ray_cluster(address)
    task = ray_task(ray, elsewhere, gpus=None if work.device.startswith("cuda") else 0)
    where = work.device, work.copies and work.copies.resolve()
    running = {task.remote(type(what), what.settings(), unit, *where): unit for unit in units}
    while running:
        (ended, *_), _ = ray.wait(list(running))
        work.progress.report(f"{what.name}, {len(running)} units left, ended: {words(running.pop(ended))}")
        try:
            yield ray.get(ended)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None


def elsewhere(
    kind: type[Reproduction], settings: dict[str, Any], unit: Unit, device: str, copies: Path | None
) -> list[Record]:
    """A unit in a worker."""
    return recorded(kind.from_preset(overrides=settings), unit, Work(device, copies))


def check_backend(backend: str | None, address: str | None) -> None:
    """Refuse a backend that does not exist, and an address without one."""
    if backend not in (None, "ray"):
        raise InputError(f"backend '{backend}' is not known; choose 'ray' or leave it out")
    if address is not None and backend is None:
        raise InputError(f"address '{address}' is that of a Ray cluster; add backend='ray'")


def words(unit: Unit) -> str:
    """What tells a unit from others."""
    inner = "settings", "changes"
    given = {name: value for name, value in unit.items() if name not in inner and value is not None}
    return ", ".join(f"{name} {value}" for name, value in given.items())


def listing(folder: Path) -> list[dict[str, Any]]:
    """Every reproduction: its label, what each scale takes, and its records in ``folder``.

    ``recorded_units`` counts the units of a file of which every record names its unit.
    """
    rows = []
    for name, kind in sorted(REPRODUCTIONS.items()):
        scales = {
            scale: {"units": len(kind.at(scale).units(range(given.seeds))), "takes": given.takes}
            for scale, given in kind.scales.items()
        }
        stems = (f"{kind.protocol}*", name)
        found = [
            file for at in (folder, folder / "records") for stem in stems for file in at.glob(f"{stem}.jsonl")
        ]
        held = {str(file.relative_to(folder)): read(file, kind) for file in dict.fromkeys(found)}
        held = {file: some for file, some in held.items() if some}
        rows.append({
            "name": name, "label": kind.label, "title": kind.title, "scales": scales,
            "records": {file: len(some) for file, some in held.items()},
            "recorded_units": {
                file: len({key(r["unit"]) for r in some})
                for file, some in held.items()
                if all("unit" in r for r in some)
            },
        })  # fmt: skip
    return rows
