"""Protocol ``graphs-cost``: how well a copy ranks graph filters, against the full trainings it was made from.

Each seed is condensed with several numbers of trainings on the original graph and several objectives: a
Gaussian process of losses and hypergradients that S_val follows (``landscape``), the same from losses alone
(``landscape-values``), and alignment of hypergradients (``aligned``), values (``values``) or both (``both``).
Candidates, their truth and some rivals come from records of ``filters-80``, so no candidate is trained on the
full graph again. The Gaussian process and a kernel ridge regression see the same trainings; the real
validation set has the same S_train.

Copies that follow a landscape share their trainings: fewer are the first of more, as in single runs. The
seconds told are those of a single run. ``--lengths`` shortens the trainings on the original graph.

    python -m hcdc.experiments.graph_cost --dataset cora --size 35 --seeds 200,201 --judges 100,101 \\
        --known records/filters-80.jsonl --budgets 8,32 --objectives both --out FILE
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hcdc.condensers import Company, Following, FollowsLandscape, Plan, Survey, plan
from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.landscape import fit_landscape
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
    "landscape": {"val_method": "landscape"},
    "landscape-random": {"val_method": "landscape", "options": {"spread": 1}},
    "landscape-values": {"val_method": "landscape", "options": {"spread": 1, "slopes": False}},
    "both": {"val_method": "both"},
    "values": {"val_method": "both", "options": {"anchors": 1e4}},  # hypergradients no longer count
    "aligned": {"val_method": "aligned"},
}
RIVALS = ("one-seed-full", "equal-cost", "early-stopping")
"""Rivals taken from the record; ``equal-cost`` is one whole training with one seed there."""
Key = tuple[str, float, int]
"""Objective, length and number of trainings."""
REAL = ("real-val", "real-val-loss")
DEFAULT = 192
"""Trainings of the default settings: 80 trajectories of 2 points, and 32 lambdas that watch."""


def shares(argument: str, text: str) -> list[float]:
    """Shares in (0, 1] from a list with commas."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < share <= 1 for share in found):
        raise InputError(f"{argument} {text}: give shares of the steps, at most 1, e.g. 1,0.5,0.25")
    return found


def budget(trainings: int, val_method: str = "both") -> dict[str, Any]:
    """Settings that spend this many trainings. For alignment a quarter, at least 2, watch; each other is a
    trajectory."""
    if val_method == "landscape":
        return {"trainings": trainings}
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
    lengths: Sequence[float] = (1.0,),
    copies: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Condense and judge; appends one record per seed, budget and objective to ``out``.

    Args:
        judges: The seed of ``filters-80`` whose candidates judge each of ``seeds``.
        known: Records of ``filters-80`` with the truth of these candidates.
        budgets: Trainings on the original graph; 192 is the default.
        lengths: Shares of the full recipe's steps that these trainings take.
        copies: A folder of stored copies, which are reused.
        options: Changes to HCDC's settings, for tests of the protocol only.
    """
    check_names("--objectives", objectives, OBJECTIVES)
    if len(seeds) != len(judges):
        raise InputError(f"--judges: {len(judges)} seeds for {len(seeds)} of --seeds; give one for each")
    task = GraphTask(data(dataset))  # type: ignore[arg-type]
    for seed, judge in zip(seeds, judges):
        source = known_record(known, task.data.name, judge)
        made: dict[Key, CondensedDataset] = {}
        spent: dict[Key, float] = {}
        memory = Memory()
        for key in itertools.product(objectives, lengths, sorted(budgets, reverse=True)):
            planned = _planned(task, size, seed, *key, options or {})
            begun = time.process_time()
            if isinstance(planned.way, FollowsLandscape):
                made[key], spent[key] = memory.made(planned, device)
            else:
                made[key] = made_copy(planned, copies, device)
                spent[key] = time.process_time() - begun
        for record in judged(task, made, source, judge, device):
            key = record["objective"], record["length"], record["trainings"]
            told = {"cpu_seconds": spent[key], "making": made[key].record}
            records.append(out, {"protocol": PROTOCOL, **rounded({**record, **told})})


class Memory:
    """The trainings of one S_train, shared by copies that follow a landscape.

    Attributes:
        known: The original trainings by their steps and ``spread``.
        survey_seconds: CPU seconds of one of these trainings.
        company_seconds: CPU seconds of the companions.
        trained: Full trainings of the latest copy that were not known before.
    """

    def __init__(self) -> None:
        self.trained = 0
        self.known: dict[tuple[int, int], Survey] = {}
        self.companions: Company | None = None
        self.survey_seconds: dict[tuple[int, int], float] = {}
        self.company_seconds = 0.0

    def made(self, planned: Plan, device: str) -> tuple[CondensedDataset, float]:
        """The copy of a plan, and the CPU seconds that making it alone would take."""
        way = planned.way
        assert isinstance(way, FollowsLandscape)
        memory = self

        class Remembering(Following):
            def survey(self, trainings: int, spread: int) -> Survey:
                key = self.full.steps, spread
                known = memory.known.get(key)
                if known is None or len(known.lam) < trainings:
                    begun = time.process_time()
                    known = memory.known[key] = super().survey(trainings, spread)
                    memory.survey_seconds[key] = (time.process_time() - begun) / trainings
                    memory.trained = trainings
                return known.first(trainings)

            def company(self, count: int) -> Company:
                if memory.companions is None:
                    begun = time.process_time()
                    memory.companions = super().company(count)
                    memory.company_seconds = time.process_time() - begun
                return memory.companions

        class Remembered(FollowsLandscape):
            form = Remembering

        before, begun, self.trained = self.companions, time.process_time(), 0
        small = dataclasses.replace(planned, way=Remembered(**way.settings())).run(
            device=device, checkpoint=None
        )
        own, each = time.process_time() - begun, self.survey_seconds[planned.relaxed().steps, way.spread]
        own -= each * self.trained
        if before is None:
            own -= self.company_seconds
        return small, own + each * way.trainings + self.company_seconds


def _planned(
    task: GraphTask,
    size: int,
    seed: int,
    objective: str,
    length: float,
    trainings: int,
    options: Mapping[str, Any],
) -> Plan:
    """The plan of a copy; trainings on the original graph take a share ``length`` of their steps."""
    given = dict(OBJECTIVES[objective])
    own = {**budget(trainings, given["val_method"]), **given.pop("options", {}), **options}
    given |= {"method": "hcdc", "train_size": size, "seed": seed, "options": own}
    whole = plan(task, PolynomialFilter(), **given)
    if length == 1:
        return whole
    return plan(
        task, PolynomialFilter(), full_recipe={"steps": max(1, round(length * whole.full.steps))}, **given
    )


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
    made: Mapping[Key, CondensedDataset],
    source: Mapping[str, Any],
    judge: int,
    device: str,
) -> list[dict[str, Any]]:
    """How each copy, and the regression on its trainings, rank the candidates of a recorded evaluation."""
    space = PolynomialFilter()
    configs = space.sample(source["candidates"], numpy_stream(judge, "judge"))
    first, *others = made
    found = evaluate(
        made[first], candidates=configs, seed=judge, task=task, device=device, rivals=REAL,
        truth=RecordedTruth(configs, source),
        beside={json.dumps(key): made[key] for key in others},
    )  # fmt: skip
    ranked = {first: found, **dict(zip(others, found.rivals))}
    real = {rival.name: rival for rival in found.rivals if rival.name in REAL}
    fresh = np.stack([space.encode(config).double().numpy() for config in configs])
    recorded = {r["name"]: r for r in source["rivals"] if r["name"] in RIVALS}
    told: list[dict[str, Any]] = []
    for (objective, length, trainings), result in ranked.items():
        probes = made[objective, length, trainings].meta["probes"]
        at, scores = np.asarray(probes["lam"], np.float64), stats.rankdata(probes["score"])
        predicted = kernel_ridge(at, scores, fresh) if trainings > 4 else np.zeros(len(fresh))
        expected = _expected(probes, fresh, slopes=objective != "landscape-values")
        told.append(
            {
                "dataset": found.dataset, "train_size": found.train_size, "val_size": found.val_size,
                "seed": found.seed, "judge_seed": judge, "candidates": len(configs),
                "objective": objective, "trainings": trainings, "length": length,
                "spearman": result.spearman, "test_spearman": result.test_spearman,
                "regret": result.regret, "proxy": list(result.proxy),
                "proxy_seconds": found.proxy_seconds,
                "ridge": _agreement(source, predicted),
                "process": None if expected is None else _agreement(source, -expected),
                "subset": _subset(source, trainings, judge) if length == 1 else None,
                "recorded": _agreement(source, np.asarray(source["proxy"], np.float64)),
                "rivals": {
                    name: {key: r.get(key) for key in ("description", "spearman", "test_spearman")}
                    for name, r in recorded.items()
                }
                | {
                    name: {
                        "description": r.description, "spearman": r.spearman, "test_spearman": r.test_spearman
                    }
                    for name, r in real.items()
                },
                "environment": found.environment,
            }
        )  # fmt: skip
        logging.getLogger("hcdc").info(
            "%s seed %d, %s, %d trainings of length %g: spearman %.3f, ridge %.3f", found.dataset, found.seed,
            objective, trainings, length, result.spearman or float("nan"), told[-1]["ridge"]["spearman"],
        )  # fmt: skip
    return told


def _agreement(source: Mapping[str, Any], scores: NDArray[np.float64]) -> dict[str, float]:
    """Spearman's correlation with both truths of a record."""
    return {
        "spearman": spearman(np.asarray(source["truth"]), scores),
        "test_spearman": spearman(np.asarray(source["test"]), scores),
    }


def _expected(
    probes: Mapping[str, Any], fresh: NDArray[np.float64], slopes: bool
) -> NDArray[np.float64] | None:
    """What the Gaussian process expects, without a copy; None if the copy did not use one."""
    if "gradient" not in probes:
        return None
    lam, loss, gradient, score = (np.asarray(probes[key]) for key in ("lam", "loss", "gradient", "score"))
    found = fit_landscape(lam, loss, gradient if slopes else None, score, even=PolynomialFilter().even)
    return found.predict(fresh)[0]


def _subset(source: Mapping[str, Any], trainings: int, judge: int) -> dict[str, float]:
    """A rival: as many of the candidates with their very truth, all others tied in the middle."""
    truth = np.asarray(source["truth"], np.float64)
    chosen = numpy_stream(judge, "subset").permutation(len(truth))[:trainings]
    scores = np.full(len(truth), np.median(truth[chosen]))
    scores[chosen] = truth[chosen]
    return _agreement(source, scores)


def main() -> None:
    parser = protocol_parser(__doc__, "cora", "200")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--judges", default="100", help="one seed of filters-80 for each of --seeds")
    parser.add_argument("--known", required=True, help="records of filters-80")
    parser.add_argument("--budgets", default="32")
    parser.add_argument("--objectives", default="landscape")
    parser.add_argument("--lengths", default="1", help="shares of the steps of trainings on the original")
    parser.add_argument("--copies", help="folder of stored copies, which are reused")
    given = parser.parse_args()
    run(
        given.dataset, given.size, integers("--seeds", given.seeds), integers("--judges", given.judges),
        given.known, integers("--budgets", given.budgets), given.objectives.split(","), given.out,
        device=given.device, copies=given.copies, lengths=shares("--lengths", given.lengths),
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
