"""Protocol ``graphs-cost``: how well a copy ranks graph filters, against the full trainings it was made from.

Each seed is condensed with several numbers of trainings on the original graph and several objectives:
hypergradients (``aligned``), values (``values``) or both (``both``, the default). Candidates, their truth and
two rivals come from records of ``filters-80``, so no candidate is trained on the full graph again. A kernel
ridge regression sees the same trainings.

    python -m hcdc.experiments.graph_cost --dataset cora --size 35 --seeds 200,201 --judges 100,101 \\
        --known records/filters-80.jsonl --budgets 8,32 --objectives both --out FILE
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hcdc.condensers import Plan, plan
from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.ranks import spearman
from hcdc.core.ridge import kernel_ridge
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import CondensedDataset, data
from hcdc.evaluation import evaluate
from hcdc.experiments._command import as_command, check_names, integers, made_copy, protocol_parser, rounded
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask
from hcdc.truth import ListedTruth

PROTOCOL = "graphs-cost"
OBJECTIVES: dict[str, dict[str, Any]] = {
    "both": {"val_method": "both"},
    "values": {"val_method": "both", "options": {"anchors": 1e4}},  # hypergradients no longer count
    "aligned": {"val_method": "aligned"},
}
RIVALS = ("one-seed-full", "early-stopping")
DEFAULT = 192
"""Trainings of the default settings: 80 trajectories of 2 points, and 32 lambdas that watch."""


def budget(trainings: int) -> dict[str, Any]:
    """Settings that spend this many trainings: a quarter, at least 2, watch; each other is a trajectory."""
    if trainings == DEFAULT:
        return {}
    if trainings < 4:
        raise InputError(f"--budgets {trainings}: at least 4 trainings are needed, 2 of them to watch")
    watching = max(2, trainings // 4)
    return {"trajectories": trainings - watching, "points": 1, "holdout": watching}


def run(
    dataset: str,
    size: int,
    seeds: Sequence[int],
    judges: Sequence[int],
    known: str | Path,
    budgets: Sequence[int],
    objectives: Sequence[str],
    out: str | Path,
    *,
    device: str = "cpu",
    copies: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Condense and judge; appends one record per seed, budget and objective to ``out``.

    Args:
        judges: The seed of ``filters-80`` whose candidates judge each of ``seeds``.
        known: Records of ``filters-80`` with the truth of these candidates.
        budgets: Trainings on the original graph; 192 is the default.
        copies: A folder of stored copies, which are reused.
        options: Changes to HCDC's settings, for tests of the protocol only.
    """
    check_names("--objectives", objectives, OBJECTIVES)
    if len(seeds) != len(judges):
        raise InputError(f"--judges: {len(judges)} seeds for {len(seeds)} of --seeds; give one for each")
    task = GraphTask(data(dataset))  # type: ignore[arg-type]
    for seed, judge in zip(seeds, judges):
        source = known_record(known, task.data.name, judge)
        made: dict[tuple[str, int], CondensedDataset] = {}
        spent: dict[tuple[str, int], float] = {}
        for objective in objectives:
            for trainings in budgets:
                key = objective, trainings
                begun = time.process_time()
                made[key] = made_copy(_planned(task, size, seed, *key, options or {}), copies, device)
                spent[key] = time.process_time() - begun
        for record in judged(task, made, source, judge, device):
            key = record["objective"], record["trainings"]
            told = {"cpu_seconds": spent[key], "making": made[key].record}
            records.append(out, {"protocol": PROTOCOL, **rounded({**record, **told})})


def _planned(
    task: GraphTask, size: int, seed: int, objective: str, trainings: int, options: Mapping[str, Any]
) -> Plan:
    given = dict(OBJECTIVES[objective])
    own = {**budget(trainings), **given.pop("options", {}), **options}
    return plan(task, PolynomialFilter(), method="hcdc", train_size=size, seed=seed, options=own, **given)


class RecordedTruth(ListedTruth):
    """Full-data results from a record of ``filters-80``."""

    def __init__(self, configs: Sequence[Config], source: Mapping[str, Any]):
        scores = zip(configs, source["truth"], source["test"], strict=True)
        super().__init__([(c, {"val": v, "test": t}) for c, v, t in scores], "the record of filters-80")
        self.judge = int(source["judge_seed"])

    def spec(self) -> dict[str, Any]:
        return {"name": "filters-80", "judge_seed": self.judge}

    def words(self) -> str:
        return f"recorded by filters-80, seed {self.judge}"


def known_record(path: str | Path, dataset: str, judge: int) -> dict[str, Any]:
    """A record of ``filters-80`` with the truth and the rivals of one draw of candidates."""
    for record in records.read(path):
        same = record.get("protocol") == "filters-80" and record["label"] == "hcdc"
        if same and record["dataset"] == dataset and record["judge_seed"] == judge:
            return record
    raise InputError(f"'{path}' has no record of filters-80 with label 'hcdc' for {dataset}, seed {judge}")


def judged(
    task: GraphTask,
    made: Mapping[tuple[str, int], CondensedDataset],
    source: Mapping[str, Any],
    judge: int,
    device: str,
) -> list[dict[str, Any]]:
    """How each copy, and the regression on its trainings, rank the candidates of a recorded evaluation."""
    space = PolynomialFilter()
    configs = space.sample(source["candidates"], numpy_stream(judge, "judge"))
    first, *others = made
    found = evaluate(
        made[first], candidates=configs, seed=judge, task=task, device=device, rivals=False,
        truth=RecordedTruth(configs, source),
        beside={json.dumps(key): made[key] for key in others},
    )  # fmt: skip
    ranked = {first: found, **dict(zip(others, found.rivals))}
    fresh = np.stack([space.encode(config).double().numpy() for config in configs])
    recorded = {r["name"]: r for r in source["rivals"] if r["name"] in RIVALS}
    told: list[dict[str, Any]] = []
    for (objective, trainings), result in ranked.items():
        probes = made[objective, trainings].meta["probes"]
        at, scores = np.asarray(probes["lam"], np.float64), stats.rankdata(probes["score"])
        predicted = kernel_ridge(at, scores, fresh) if trainings > 4 else np.zeros(len(fresh))
        told.append(
            {
                "dataset": found.dataset, "train_size": found.train_size, "val_size": found.val_size,
                "seed": found.seed, "judge_seed": judge, "candidates": len(configs),
                "objective": objective, "trainings": trainings,
                "spearman": result.spearman, "test_spearman": result.test_spearman,
                "regret": result.regret, "proxy": list(result.proxy),
                "proxy_seconds": found.proxy_seconds,
                "ridge": {
                    "spearman": spearman(np.asarray(source["truth"]), predicted),
                    "test_spearman": spearman(np.asarray(source["test"]), predicted),
                },
                "rivals": {
                    name: {key: r[key] for key in ("description", "spearman", "test_spearman")}
                    for name, r in recorded.items()
                },
                "environment": found.environment,
            }
        )  # fmt: skip
        logging.getLogger("hcdc").info(
            "%s seed %d, %s, %d trainings: spearman %.3f, ridge %.3f", found.dataset, found.seed, objective,
            trainings, result.spearman or float("nan"), told[-1]["ridge"]["spearman"],
        )  # fmt: skip
    return told


def main() -> None:
    parser = protocol_parser(__doc__, "cora", "200")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--judges", default="100", help="one seed of filters-80 for each of --seeds")
    parser.add_argument("--known", required=True, help="records of filters-80")
    parser.add_argument("--budgets", default="32")
    parser.add_argument("--objectives", default="both")
    parser.add_argument("--copies", help="folder of stored copies, which are reused")
    given = parser.parse_args()
    run(
        given.dataset, given.size, integers("--seeds", given.seeds), integers("--judges", given.judges),
        given.known, integers("--budgets", given.budgets), given.objectives.split(","), given.out,
        device=given.device, copies=given.copies,
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
