"""Protocol ``plan-reliability``: do the chances that `hcdc.plan` states come true?

A plan states the probability that a ladder finds a better configuration than random search with full
trainings in the same time. Replays of both on recorded pools say how often it did: each ladder of a pool,
table and budget is compared with each random search there, by what the pool judges; ties count half. The plan
knows the prices, the budget and the number of candidates, but no score. One of its constants comes from an
earlier version of these replays, `hcdc.core.planned.ODDS`; table ``plan-reliability-apart`` fits it to the
other pools.

    python -m hcdc.experiments.plan_reliability records/search-*.jsonl --copies C.jsonl --out FILE

The record in the repository also has replays that were made for it alone, with seeds 500:520: flights with
``--budgets 14,54,163``, physics 174,522,1043, physics-filters 15,46,92 and resnet 5,14,29. Where a plan has
changed and the searches have not, ``--earlier FILE`` takes what these did from an earlier record instead.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.core import records
from hcdc.core.planned import SearchPlan
from hcdc.experiments import search_replay
from hcdc.experiments._command import as_command
from hcdc.experiments.replay_problem import Replay
from hcdc.experiments.search_pools import CLIMBED, open_pool
from hcdc.search import planned

PROTOCOL = "plan-reliability"
Case = tuple[str, str, float]
"""Pool, table and budget."""


def stated(problem: Replay, budget: float) -> SearchPlan:
    """The plan for a replay, with the rungs that the ladder climbed there."""
    unused = [rung.name for rung in problem.fidelities[:-1][:-CLIMBED]]
    prices = {r.name: r.price for r in problem.rungs if r.share > 0 and r.name not in unused}
    everything = problem.candidates()
    return planned(prices, budget, math.inf if everything is None else len(everything))


def cases(replays: Iterable[dict[str, Any]]) -> dict[Case, dict[str, list[float]]]:
    """Judged scores of the ladder and of random search, where there are both; none counts as lost."""
    found: dict[Case, dict[str, list[float]]] = {}
    for r in replays:
        if r.get("protocol") == search_replay.PROTOCOL and r["method"] in ("ladder", "random"):
            both = found.setdefault((r["pool"], r["table"], r["budget"]), {"ladder": [], "random": []})
            both[r["method"]].append(-math.inf if r["score"] is None else r["score"])
    return {case: both for case, both in found.items() if all(both.values())}


def judged(plan: SearchPlan, ladder: Sequence[float], random: Sequence[float]) -> dict[str, Any]:
    """What was stated, how often it came true, and the mean squared error of the one as a forecast."""
    high, low = np.array(ladder)[:, None], np.array(random)[None]
    won = (high > low) + 0.5 * (high == low)
    assert plan.chance is not None
    return {
        "chance": round(plan.chance, 4), "pays": plan.pays, "gain": round(plan.gain, 4),
        "full_trainings": plan.full_trainings, "won": round(float(won.mean()), 4),
        "tied": round(float((high == low).mean()), 4),
        "brier": round(float(((plan.chance - won) ** 2).mean()), 4),
        "ladders": len(ladder), "random_searches": len(random),
    }  # fmt: skip


def restated(plan: SearchPlan, earlier: dict[str, Any]) -> dict[str, Any]:
    """What `judged` says of a plan, from an earlier record of the same replays.

    A pair scores w = 1, 1/2 or 0, so the mean of w^2 is that of w less a quarter of the ties.
    """
    assert plan.chance is not None
    won, tied = earlier["won"], earlier["tied"]
    stated = {"chance": round(plan.chance, 4), "pays": plan.pays, "gain": round(plan.gain, 4)}
    brier = plan.chance**2 - 2 * plan.chance * won + won - tied / 4
    kept = ("full_trainings", "won", "tied", "ladders", "random_searches")
    return {**stated, **{name: earlier[name] for name in kept}, "brier": round(brier, 4)}


def run(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    earlier: Sequence[str | Path] = (),
    data: str | Path | None = None,
    copies: Sequence[str] = (),
    pools: Sequence[str] = (),
) -> None:
    """Judge the plans of all replays in ``files``; appends one record per pool, table and budget to ``out``.

    Args:
        files: Records of `hcdc.experiments.search_replay`.
        out: The file of records.
        earlier: Records of this protocol, for cases whose replays are not in ``files``.
        data: Folder of the tables; see `open_pool`.
        copies: Files of copy scores of the cells.
        pools: Only these pools; none means all.
    """
    replays = cases(r for file in files for r in records.read(file))
    known = {(r["pool"], r["table"], r["budget"]): r for file in earlier for r in records.read(file)}
    where = {"environment": records.environment()}
    problems: dict[str, Replay] = {}
    for pool, table, budget in sorted({*replays, *known}):
        if pools and pool not in pools:
            continue
        if pool not in problems:  # the rungs of a pool's tables have the same prices
            some = copies if pool.endswith(("-part", "-five")) else ()
            opened = open_pool(pool, data, some)
            problems[pool] = opened.problem(opened.tables[0], 0)
        plan = stated(problems[pool], budget)
        if plan.chance is not None:
            told = {"protocol": PROTOCOL, "pool": pool, "table": table, "budget": budget}
            both = replays.get((pool, table, budget))
            found = judged(plan, **both) if both else restated(plan, known[pool, table, budget])
            records.append(out, {**told, **found, **where})


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("files", nargs="*", help="records of search_replay")
    parser.add_argument("--earlier", nargs="*", default=[], help="records of this protocol")
    parser.add_argument("--data", help="folder of the tables, default $HCDC_DATA")
    parser.add_argument("--copies", nargs="*", default=[], help="files with a loss per cell")
    parser.add_argument("--pools", default="", help="separated by commas; default: all")
    parser.add_argument("--out", required=True, help="file to append records to")
    given = parser.parse_args()
    pools = [name for name in given.pools.split(",") if name]
    run(
        given.files, given.out, earlier=given.earlier, data=given.data, copies=given.copies, pools=pools
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
