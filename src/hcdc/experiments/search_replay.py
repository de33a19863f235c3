"""Protocol ``search-replay``: the ladder and its rivals on recorded pools, on one simulated clock.

Every method sees the same single runs at the same prices (`hcdc.experiments.search_pools`) and is judged by
its pick at any time. Seconds are those of trainings and of making copies; what a method computes itself is
recorded as ``thinking_seconds`` and not counted, so a replay gives the same result on any machine.
Units that the file has already are skipped.

    python -m hcdc.experiments.search_replay --pool nas201-cifar10 --copies C.csv.gz --methods ladder,tpe \\
        --budgets 900,1800 --seeds 0:20 --out F.jsonl --processes 2

A full training on the surrogates and on NAS-Bench-Graph counts as 60 seconds: ``--budgets 600,1800,5400``.
"""

from __future__ import annotations

import argparse
import functools
import logging
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hcdc.core import records
from hcdc.core.configs import config_hash
from hcdc.core.errors import InputError
from hcdc.core.seeds import derive
from hcdc.experiments._command import as_command, check_names, integers
from hcdc.experiments.replay_problem import Pool, Replay
from hcdc.experiments.rival_dehb import dehb
from hcdc.experiments.rival_searches import (
    Method,
    Trace,
    asha,
    asked,
    bohb,
    filtered,
    gaussian_process,
    hyperband,
    one_shot,
    random_subset,
    replay,
    summed_loss,
    tpe,
)
from hcdc.experiments.search_pools import CLIMBED, PRICES, RECORDED, open_pool
from hcdc.search import Ladder, Store

PROTOCOL = "search-replay"
LADDERS: Mapping[str, tuple[str, ...]] = {
    "ladder": (),
    "ladder-without-free": ("free",),
    "ladder-without-copy": ("copy",),
    "ladder-without-short": ("short",),
    "ladder-without-free-copy": ("free", "copy"),
}
"""The ladder, and the rungs left out."""
RIVALS: Mapping[str, tuple[Method, tuple[str, ...]]] = {
    "random": (asked("random"), ()),
    "tpe": (tpe, ()),
    "evolution": (asked("evolution"), ()),
    "local": (asked("local"), ("discrete",)),
    "gp": (gaussian_process, ()),
    "hyperband": (hyperband, ("fidelities",)),
    "asha": (asha, ("fidelities",)),
    "bohb": (bohb, ("fidelities",)),
    "dehb": (dehb, ("fidelities",)),
    "parameters-short-full": (filtered(free=False), ("size",)),
    "jacov-parameters-short-full": (filtered(free=True), ("size", "free")),
    "one-shot": (one_shot, ("supernet",)),
    "random-subset": (random_subset, ("subset",)),
    "summed-loss": (summed_loss, ("losses",)),
}
"""The rivals, and what a pool must have for them."""
log = logging.getLogger("hcdc")
Replayer = Callable[[Replay, float, int], Trace]
Unit = tuple[str, str, float, int]
"""Table, method, budget and seed."""


class Untimed(Store):
    """Leaves out the ladder's own computing time, which depends on the machine."""

    def note(self, key: str, value: Any) -> Any:
        return super().note(key, 0.0 if key.startswith("overhead") else value)


def climb(problem: Replay, budget: float, seed: int) -> Trace:
    """The ladder. Its pick is the best full training so far; its last one also counts the fresh trainings."""
    found = Ladder(problem, budget, seed, Untimed()).climb()
    trace = Trace(trainings={rung.name: 0 for rung in problem.rungs})
    trace.seconds = sum(rung.once for rung in problem.rungs)
    seen, best, full = set(), -math.inf, problem.rungs[-1]
    for rung, outcome in problem.heard:
        trace.seconds += outcome.seconds
        trace.trainings[rung.name] += 1
        if rung is full and config_hash(outcome.config) not in seen:
            seen.add(config_hash(outcome.config))
            if outcome.score > best:
                best = outcome.score
                trace.curve.append((trace.seconds, outcome.config))
    if found.best is not None and (not trace.curve or trace.curve[-1][1] != found.best):
        trace.curve.append((trace.seconds, found.best))
    return trace


def _climb_without(names: Sequence[str], problem: Replay, budget: float, seed: int) -> Trace:
    return climb(problem.without(*names), budget, seed)


def methods(problem: Replay) -> dict[str, Replayer]:
    """The methods that are defined on a pool, by name."""
    names = [rung.name for rung in problem.rungs]
    has = {
        "discrete": problem.space.decisions() is not None,
        "fidelities": len(problem.fidelities) > 1,
        "size": problem.size is not None,
        "free": "free" in names,
        "subset": problem.subset is not None,
        "losses": any(rung.loss is not None for rung in problem.fidelities[:-1]),
        "supernet": problem.supernet is not None,
    }
    shorter = [rung.name for rung in problem.fidelities[:-1]]
    unused, climbed = shorter[:-CLIMBED], shorter[-CLIMBED:]
    known: dict[str, Replayer] = {
        name: functools.partial(_climb_without, (*unused, *left_out))
        for name, left_out in LADDERS.items()
        if all(rung in names for rung in left_out)
    }
    subsets = [name for name in climbed if name.startswith("subset")]
    for name in subsets:
        known[f"ladder-without-{name}"] = functools.partial(_climb_without, (*unused, name))
    if subsets:
        known["ladder-without-subset"] = functools.partial(_climb_without, shorter)
    shorts = [name for name in shorter if name.startswith("short:")]
    if shorts and "copy" in names:
        known["ladder-without-short"] = functools.partial(_climb_without, (*unused, *shorts))
    for name, (method, needs) in RIVALS.items():
        if all(has[need] for need in needs):
            known[name] = functools.partial(replay, method)
    return known


def replayed(pool: Pool, unit: Unit) -> dict[str, Any]:
    """Replay one unit; its record without the environment."""
    table, method, budget, seed = unit
    chance = derive(seed, PROTOCOL, table) if table else seed  # each table has random candidates of its own
    problem = pool.problem(table, chance)
    begun = time.perf_counter()
    trace = methods(problem)[method](problem, budget, chance)
    thinking = time.perf_counter() - begun
    curve = [[round(seconds, 3), round(problem.judge(config), 6)] for seconds, config in trace.curve]
    score = curve[-1][1] if curve else None
    best, median = round(problem.best, 6), round(problem.median, 6)
    return {
        "protocol": PROTOCOL, "pool": pool.name, "table": table, "method": method, "budget": budget,
        "seed": seed, "curve": curve, "score": score, "best": best, "median": median,
        "regret": None if score is None else round(best - score, 6), "seconds": round(trace.seconds, 3),
        "trainings": trace.trainings, "thinking_seconds": round(thinking, 3), "prices": pool.prices,
        **({"pick": trace.curve[-1][1]} if curve and problem.candidates() is not None else {}), **pool.notes,
    }  # fmt: skip


_opened: list[Pool] = []


def _start(arguments: Sequence[Any]) -> None:
    """Open the pool once per process."""
    torch.set_num_threads(1)
    _opened[:] = [open_pool(*arguments)]


def _work(unit: Unit) -> dict[str, Any]:
    return replayed(_opened[0], unit)


def _finished(out: str | Path, pool: Pool) -> set[Unit]:
    """The units of a pool that a file has; refuses a file with other prices or copies."""
    if not Path(out).exists():
        return set()
    found = [r for r in records.read(out) if r.get("protocol") == PROTOCOL and r["pool"] == pool.name]
    for r in found:
        names = ("copies", "supernets") if r["method"] == "one-shot" else ("copies",)
        for what, own in {"prices": pool.prices, **{name: pool.notes.get(name) for name in names}}.items():
            if r.get(what) != own:
                raise InputError(
                    f"--out {out} has records of '{pool.name}' with {what} {r.get(what)}, but this replay "
                    f"has {own}; name another file"
                )
    return {(r["table"], r["method"], r["budget"], r["seed"]) for r in found}


def run(
    pool: str,
    names: Sequence[str],
    budgets: Sequence[float],
    seeds: Sequence[int],
    out: str | Path,
    *,
    tables: slice | Sequence[str] = slice(None),
    data: str | Path | None = None,
    copies: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    supernets: Sequence[str] = (),
    processes: int = 1,
) -> None:
    """Replay; appends one record per table, method, budget and seed to ``out``.

    Args:
        pool: One of `PRICES` or `RECORDED`.
        names: Methods; none means all that are defined on the pool.
        budgets: Seconds.
        seeds: Seeds of methods and runs.
        out: The file of records.
        tables: Which tables of the pool, by place or by name.
        data, copies, prices, supernets: See `open_pool`.
        processes: Units replayed side by side.
    """
    arguments = (pool, data, copies, prices, supernets)
    opened = open_pool(*arguments)
    chosen = list(opened.tables[tables] if isinstance(tables, slice) else tables)
    check_names("--tables", chosen, opened.tables)
    known = methods(opened.problem(chosen[0], 0))
    check_names("--methods", names, known)
    done = _finished(out, opened)
    units = [
        (table, name, float(budget), seed)
        for seed in seeds for table in chosen for budget in budgets for name in names or known
    ]  # fmt: skip
    todo = [unit for unit in units if unit not in done]
    where = {"environment": records.environment()}
    for record in _each(todo, opened, arguments, processes):
        records.append(out, {**record, **where})
        log.info(
            "%s %s %s, %g s, seed %d: regret %.4g", record["pool"], record["table"], record["method"],
            record["budget"], record["seed"], math.nan if record["regret"] is None else record["regret"],
        )  # fmt: skip


def _each(
    units: Sequence[Unit], pool: Pool, arguments: Sequence[Any], processes: int
) -> Iterator[dict[str, Any]]:
    if processes == 1:
        yield from (replayed(pool, unit) for unit in units)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _start, (arguments,)) as workers:
        yield from workers.imap_unordered(_work, units)


def _places(argument: str, text: str) -> list[int]:
    """Whole numbers: ``3``, ``3,5`` or ``0:20``."""
    first, colon, last = text.partition(":")
    if not colon:
        return integers(argument, text)
    return list(range(integers(argument, first)[0], integers(argument, last)[0]))


def _prices(given: Sequence[str]) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in (each.split("=") for each in given)}
    except ValueError as error:
        raise InputError(f"--price {' '.join(given)}: give RUNG=SECONDS, e.g. copy=0.16") from error


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--pool", required=True, help=", ".join((*PRICES, *RECORDED)))
    parser.add_argument("--methods", default="", help="separated by commas; default: all that are defined")
    parser.add_argument("--budgets", required=True, help="seconds, separated by commas")
    parser.add_argument("--seeds", default="0", help="such as 0,1 or 0:20")
    parser.add_argument("--tables", default="", help="names, or places such as 0:10; default: all")
    parser.add_argument(
        "--data",
        help="folder of the tables, default $HCDC_DATA; for flights, physics and resnet, a file of records",
    )
    parser.add_argument("--copies", nargs="*", default=[], help="files with a loss per cell, one per draw")
    parser.add_argument("--supernet", nargs="*", default=[], help="files of supernet_pool, one per seed")
    parser.add_argument("--price", nargs="*", default=[], help="changed prices, RUNG=SECONDS")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", required=True, help="file to append records to")
    given = parser.parse_args()
    tables: slice | list[str] = given.tables.split(",") if given.tables else slice(None)
    if ":" in given.tables:
        places = _places("--tables", given.tables)
        tables = slice(places[0], places[-1] + 1)
    run(
        given.pool, [name for name in given.methods.split(",") if name],
        integers("--budgets", given.budgets), _places("--seeds", given.seeds), given.out, tables=tables,
        data=given.data, copies=given.copies, prices=_prices(given.price), supernets=given.supernet,
        processes=given.processes,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
