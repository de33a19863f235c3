"""Learned copies of Coauthor Physics, and how they score the recorded filters of `hcdc.experiments.physics`.

    OMP_NUM_THREADS=1 python -m hcdc.experiments.physics_learned --size 25 --seed 600 \\
        --pool records/pools/physics-filters.jsonl --out F.jsonl

S_val follows a landscape with its default settings (``val_method="landscape"``), for polynomial filters. The
full trainings that it needs are those of the pool (81 steps, AdamW), at other filters. The pool's filters are
trained on the copy as on others: as many steps, each with its own learning rate, weight decay and dropout.

The first record is the copy's: CPU seconds of making it and of its full trainings with their hypergradients.
Then each of the pool's filters has one: its score on the copy (minus the loss on S_val), the CPU seconds of
that trial, and the loss that a Gaussian process on the same full trainings expects of it, without a copy. The
last one has the scores of the best of these full trainings, in a training of its own. The same command adds
what is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hcdc.condensers import Following, FollowsLandscape, Survey, plan
from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.landscape import fit_landscape
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset, data
from hcdc.experiments._command import as_command, rounded
from hcdc.experiments.physics import RECIPE, SPACES, Trial, split, train
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import GraphTask
from hcdc.training import run_candidates

PROTOCOL = "physics-learned"
SPACE = SPACES["filters"]
HOW = {"steps": RECIPE.steps, "optimizer": RECIPE.optimizer}
"""How the pool trains, on the data and on copies."""


def condensed(
    task: GraphTask, size: int, seed: int, options: Mapping[str, Any] | None = None
) -> tuple[CondensedDataset, dict[str, float]]:
    """A learned copy, and the CPU seconds of making it and, of these, of its full trainings."""
    spent = {}

    class Timed(Following):
        def survey(self, trainings: int, spread: int) -> Survey:
            begun = time.process_time()
            found = super().survey(trainings, spread)
            spent["full"] = time.process_time() - begun
            return found

    class TimedLandscape(FollowsLandscape):
        form = Timed

    made = plan(
        task, PolynomialFilter(), train_size=size, seed=seed, val_method="landscape", options=options,
        full_recipe=HOW, recipe=HOW,
    )  # fmt: skip
    begun = time.process_time()
    small = dataclasses.replace(made, way=TimedLandscape(**made.way.settings())).run(checkpoint=None)
    return small, {"making": time.process_time() - begun, **spent}


def scored(task: GraphTask, small: CondensedDataset, config: Config) -> tuple[float, float]:
    """The score of a filter of the pool on a copy, higher is better, and the CPU seconds of the trial."""
    recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
    begun = time.process_time()
    found = run_candidates(
        task, SPACE, [config], small.train, {"copy": small.val}, recipe, 0, "judge", "cpu",
        keep_diverged=True,
    )  # fmt: skip
    return -found[0].values["copy.loss"], time.process_time() - begun


def record(
    task: GraphTask,
    configs: Mapping[int, Config],
    size: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Make a copy and score filters on it; yields the records."""
    small, spent = condensed(task, size, seed, options)
    told = {"protocol": PROTOCOL, "train_size": size, "seed": seed}
    assert small.val is not None, "S_val is learned"
    yield {
        **told, "val_size": len(small.val), "seconds": spent, "recipe": small.meta["calibrated_recipe"],
        "settings": small.meta["settings"], "history": small.record["history"],
        "probes": small.meta["probes"], "full_trainings": small.record["full_trainings"],
    }  # fmt: skip
    expected = foreseen(small, list(configs.values()))
    scored(task, small, next(iter(configs.values())))  # the first training of a process takes longer
    for (number, config), loss in zip(configs.items(), expected):
        score, seconds = scored(task, small, config)
        yield {**told, "number": number, "score": score, "seconds": seconds, "expected": loss}


def foreseen(small: CondensedDataset, configs: Sequence[Config]) -> list[float]:
    """The losses that a Gaussian process on a copy's full trainings expects of filters."""
    space, probes = PolynomialFilter(), small.meta["probes"]
    given = [np.asarray(probes[key], np.float64) for key in ("lam", "loss", "gradient", "score")]
    at = [space.encode({d.name: config[d.name] for d in space.dimensions()}) for config in configs]
    found: list[float] = fit_landscape(*given, even=space.even).predict(torch.stack(at).numpy())[0].tolist()
    return found


def best_probe(task: GraphTask, probes: Mapping[str, Any]) -> dict[str, float]:
    """Validation and test score of the best full training behind a copy, trained once more for the test."""
    space = PolynomialFilter()
    config = space.decode(torch.tensor(probes["lam"][int(np.argmax(probes["score"]))]))
    found = train(task, space, config, Trial(task.train), 0, test=True)
    return {part: found[part] for part in ("val", "test")}


def pool_configs(file: str | Path) -> dict[int, Config]:
    """The configurations of a pool by their numbers."""
    return {line["number"]: line["config"] for line in records.read(file)}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--size", type=int, default=25, help="training nodes of the copy")
    parser.add_argument("--seed", type=int, default=600)
    parser.add_argument("--pool", default="records/pools/physics-filters.jsonl")
    parser.add_argument("--out", required=True, help="file to append records to")
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = split(data("coauthor_physics"))  # type: ignore[arg-type]
    where = {"environment": records.environment()}
    configs, out = pool_configs(given.pool), Path(given.out)
    found = list(records.read(out)) if out.exists() else []
    if not found:
        for line in record(task, configs, given.size, given.seed):
            records.append(out, {**rounded(line), **where})
            found.append(line)
    if "best_probe" not in found[-1]:
        told = {"protocol": PROTOCOL, "train_size": given.size, "seed": given.seed}
        best = rounded(best_probe(task, found[0]["probes"]))
        records.append(out, {**told, "best_probe": best, **where})
    trials = [line["seconds"] for line in found if "number" in line]
    logging.getLogger("hcdc").info(
        "made in %.0f s, %.0f of them full trainings; %.2f s per trial",
        found[0]["seconds"]["making"], found[0]["seconds"]["full"], np.mean(trials),
    )  # fmt: skip


if __name__ == "__main__":
    as_command(main)
