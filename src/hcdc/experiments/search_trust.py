"""Protocol ``search-trust``: does a search's own trust report keep its word?

The ladder is replayed on recorded pools as in `hcdc.experiments.search_replay`. After each search, the
interval and the verdict of every stand-in, which come from its audit sample, are compared with the agreement
of the two rungs over all candidates (of an infinite space: over 1,000 random ones). Beside it stands what all
candidates with both scores would say, promoted ones included. Units that the file has are skipped.

    python -m hcdc.experiments.search_trust --pool lcbench --budgets 1800,16200 --seeds 700 --out F.jsonl
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np

from hcdc.core import ranks, records
from hcdc.core.seeds import derive, numpy_stream
from hcdc.experiments._command import as_command, integers, rounded
from hcdc.experiments.replay_problem import Array, Pool, Replay
from hcdc.experiments.search_pools import CLIMBED, PRICES, RECORDED, open_pool
from hcdc.experiments.search_replay import Untimed
from hcdc.experiments.trust_calibration import fisher
from hcdc.search import Ladder

PROTOCOL = "search-trust"
SIZE = 1000
"""Random candidates of an infinite space over which two rungs are compared."""
FEWEST = 5
"""Pairs of scores from which a rival interval is computed."""


def searched(pool: Pool, table: str, budget: float, seed: int) -> dict[str, Any]:
    """Replay one search; its record without the environment: one row per stand-in that was audited."""
    chance = derive(seed, PROTOCOL, table) if table else seed
    problem = pool.problem(table, chance)
    problem = problem.without(*[rung.name for rung in problem.fidelities[:-1]][:-CLIMBED])
    ladder = Ladder(problem, budget, chance, Untimed())
    found, known, rows = ladder.climb(), dict[str, Array](), []
    for name, trust in found.trust.items():
        if name in ladder.free or not trust.probes:
            continue
        low, high = (_everything(problem, one, chance, known) for one in (name, trust.against))
        own = [ladder.board.scores(one) for one in (name, trust.against)]
        both = np.isfinite(own[0]) & np.isfinite(own[1])
        row = {
            "rung": name, "against": trust.against, "probes": trust.probes, "verdict": trust.verdict,
            "spearman": trust.spearman, "interval": list(trust.interval), "truth": ranks.spearman(high, low),
            "scored": int(both.sum()),
        }  # fmt: skip
        if both.sum() >= FEWEST:
            row["of_all_scored"] = list(fisher(own[0][both], own[1][both]))
        rows.append(row)
    where = {"protocol": PROTOCOL, "pool": pool.name, "table": table, "budget": budget, "seed": seed}
    told: dict[str, Any] = rounded({**where, "full_trainings": found.full_trainings, "stand_ins": rows})
    return told


def _everything(problem: Replay, name: str, seed: int, known: dict[str, Array]) -> Array:
    """Scores of all candidates on a rung, those that the search would get ``[n]``."""
    if name not in known:
        rung = problem.rung(name)
        assert rung is not None
        configs = problem.candidates() or problem.propose(SIZE, numpy_stream(seed, PROTOCOL))
        scores = rung.scores(configs, derive(seed, "search", name, 0))
        known[name] = np.array(scores, np.float64)
    return known[name]


def run(
    pool: Pool, budgets: list[float], seeds: list[int], out: str | Path, tables: slice = slice(None)
) -> None:
    """One record per table, budget and seed is appended to ``out``."""
    before = records.read(out) if Path(out).exists() else ()
    done = {(r["pool"], r["table"], r["budget"], r["seed"]) for r in before}
    for seed in seeds:
        for table in pool.tables[tables]:
            for budget in budgets:
                if (pool.name, table, budget, seed) in done:
                    continue
                record = searched(pool, table, budget, seed)
                records.append(out, {**record, "environment": records.environment()})
                logging.getLogger("hcdc").info("%s %s, %g s, seed %d", pool.name, table, budget, seed)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--pool", required=True, help=", ".join((*PRICES, *RECORDED)))
    parser.add_argument("--budgets", required=True, help="seconds, separated by commas")
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--tables", type=int, help="how many tables, from the first; default: all")
    parser.add_argument("--copies", nargs="*", default=[], help="files with a loss per cell, one per draw")
    parser.add_argument("--data", help="folder of the tables, default $HCDC_DATA")
    parser.add_argument("--out", required=True, help="file to append records to")
    given = parser.parse_args()
    pool = open_pool(given.pool, given.data, given.copies)
    budgets = [float(budget) for budget in integers("--budgets", given.budgets)]
    run(pool, budgets, integers("--seeds", given.seeds), given.out, slice(given.tables))


if __name__ == "__main__":
    as_command(main)
