"""Record graph networks and their training settings on a real graph (``hcdc.experiments.recorded_pool``).

The graph is ``coauthor_physics``: 34,493 authors, joined if they wrote together, in 5 fields. A random split
gives some nodes to training, some to validation and the rest to the test. The setting is inductive, as in
GCond: each part sees its own subgraph. An author's words are reduced to 128 features, since the first layer
on all 8,415 words takes as long on a small copy as on the data. The score is accuracy.

    OMP_NUM_THREADS=1 python -m hcdc.experiments.physics --configs 200 --shard 0/14 --out physics-0.jsonl

Each of ``--configs`` random configurations is trained on five draws of a copy (random training nodes), in
short trainings, and in full; the second seed repeats the full training. Copies and short trainings are scored
on the real validation nodes. Seconds are CPU seconds of all threads, for the training and the validation.
``--space gnns`` has the graph networks of the zoo, ``--space filters`` polynomial filters. ``--shard 2/7``
trains those configurations whose number leaves 2 when divided by 7; the files of all shards together are the
pool. The same command continues: what ``--out`` has is not trained again.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import scipy.sparse
import torch
from torch import Tensor

from hcdc.core import records
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import InputError, NumericalError, require
from hcdc.core.labels import draw_members, members
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream, stream
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import GraphData, Nodes, data
from hcdc.experiments._command import as_command, check_names, rounded
from hcdc.spaces import GNNZoo, PolynomialFilter, Product, Space, Training, stack
from hcdc.tasks import GraphTask
from hcdc.training import init_many, score_many, train_many

PROTOCOL = "physics-pool"
PARTS = (8000, 3000)
"""Nodes for training and validation; the others are the test."""
FEATURES = 128
"""Words are reduced to this many features: the first singular vectors of the training nodes."""
COPY = 400
"""Nodes of a copy."""
DRAWS = 5
"""Draws of the copy."""
RECIPE = Recipe(steps=81, optimizer="adamw")
"""A full training. AdamW's weight decay is no part of the loss, so sums of losses compare candidates."""
SHARES = (1 / 27, 1 / 9, 1 / 3)
"""Shares of the steps."""
SLOW = "sage-max"
"""A filter that is left out: its steps take ten times as long as the others'."""
HOW = Training({"lr": (1e-4, 0.1), "weight_decay": (1e-3, 1.0), "dropout": (0.0, 0.8)})
SPACES: Mapping[str, Space] = {
    "gnns": Product(GNNZoo(further=True), HOW),
    "filters": Product(PolynomialFilter(), HOW),
}
"""What is searched."""
log = logging.getLogger("hcdc")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One rung of a configuration: its training set, and its share of the steps."""

    train: Nodes
    steps: float = 1.0


def split(whole: GraphData, parts: Sequence[int] = PARTS, features: int = FEATURES) -> GraphTask:
    """The inductive task on a random split, with ``features`` features."""
    decomposition = require("sklearn.decomposition", "learn")
    order = torch.from_numpy(numpy_stream(0, "physics-split").permutation(len(whole.y)))
    train, val, test = (nodes.sort().values for nodes in order.tensor_split([parts[0], sum(parts)]))
    x = whole.graph.x
    assert isinstance(x, SparseMatrix), "the words of an author are a sparse row"
    words = scipy.sparse.csr_matrix((x.values, x.indices, x.indptr), x.shape)
    found = decomposition.TruncatedSVD(features, random_state=0).fit(words[train.numpy()])
    seen = torch.from_numpy(found.transform(words)).float()
    graph = whole.graph.with_x(seen / seen[train].std())
    return GraphTask(dataclasses.replace(whole, graph=graph, train=train, val=val, test=test), "inductive")


def trials(task: GraphTask, size: int = COPY) -> tuple[dict[str, Trial], dict[str, float]]:
    """All rungs of a configuration and their shares of the full training, by name.

    A copy is what the condenser ``"random"`` makes: nodes in the original class proportions and the edges
    between them, here stored sparsely.
    """
    found, shares = {}, {}
    pools, wanted = (
        members(task.train.y, task.num_classes),
        task.labels("train", size).bincount(minlength=task.num_classes),
    )
    for draw in range(DRAWS):
        nodes = torch.cat(draw_members(pools, wanted.tolist(), stream(draw, "physics-copy")))
        copy = dataclasses.replace(task.data, train=task.data.train[nodes])
        found[f"copy:{draw}"] = Trial(GraphTask(copy, "inductive").train)
        shares[f"copy:{draw}"] = size / len(task.data.train)
    for share in SHARES:
        found[f"short:{share:.3g}"], shares[f"short:{share:.3g}"] = Trial(task.train, share), share
    return {**found, "full": Trial(task.train)}, {**shares, "full": 1.0}


def configurations(space: Space, count: int) -> list[Config]:
    """Random configurations; a longer list begins with the shorter one."""
    rng = numpy_stream(0, "physics-pool")
    found: list[Config] = []
    while len(found) < count:
        config = space.sample(1, rng)[0]
        if config.get("filter") != SLOW:
            found.append({n: float(f"{v:.4g}") if isinstance(v, float) else v for n, v in config.items()})
    return found


def train(
    task: GraphTask, space: Space, config: Config, trial: Trial, seed: int, test: bool = False
) -> dict[str, float]:
    """Validation score, seconds and summed training loss of one training, and the test score if wanted."""
    candidate = space.candidate(config, task.features, task.num_classes)
    recipe = dataclasses.replace(RECIPE, steps=round(trial.steps * RECIPE.steps), **candidate.recipe)
    losses: list[Tensor] = []
    begun = time.process_time()
    bound, lam = task.bind(space, config).by_recipe(recipe), stack(space, [config])
    start = init_many(bound, [(config_hash(config),)], seed, "physics", "cpu")
    params = train_many(bound, start, lam, trial.train, recipe, watch=losses.append)
    found = {"val": 0.0, "test": 0.0}
    with suppress(NumericalError):  # a training that diverged scores nothing
        found["val"] = float(score_many(bound, params, lam, task.val).score)
    found["seconds"] = time.process_time() - begun
    found["train_loss"] = float(torch.stack(losses).sum())
    with suppress(NumericalError):
        found["test"] = float(score_many(bound, params, lam, task.test).score) if test else 0.0
    return found


def record(
    task: GraphTask,
    name: str,
    configs: Mapping[int, Config],
    seeds: int,
    out: str | Path,
    size: int = COPY,
) -> Iterator[dict[str, Any]]:
    """Train what ``out`` lacks and append it; yields each new record.

    The first seed trains on all rungs, the others in full only. Each seed passes over all configurations
    before the next one.

    Args:
        task: The task.
        name: Of `SPACES`.
        configs: Configurations by their number.
        seeds: Full trainings of each.
        out: The file of records.
        size: Nodes of a copy.
    """
    old = records.read(out) if Path(out).exists() else ()
    done = {(r["number"], r["seed"]) for r in old if r.get("protocol") == PROTOCOL and r["space"] == name}
    where, space = records.environment(), SPACES[name]
    rungs, shares = trials(task, size)
    for config in list(configs.values())[:1]:  # the first training of a process takes longer
        train(task, space, config, Trial(task.train, 1 / RECIPE.steps), 0)
    for seed in range(seeds):
        for number, config in configs.items():
            if (number, seed) in done:
                continue
            found = {
                rung: train(task, space, config, trial, seed, rung == "full")
                for rung, trial in rungs.items()
                if seed == 0 or rung == "full"
            }
            line = rounded({
                "protocol": PROTOCOL, "space": name, "number": number, "seed": seed,
                "val": {rung: one["val"] for rung, one in found.items()},
                "seconds": {rung: one["seconds"] for rung, one in found.items()},
                "train_loss": {rung: one["train_loss"] for rung, one in found.items()},
                "test": found["full"]["test"],
            })  # fmt: skip
            exact = {"config": config, "shares": {rung: shares[rung] for rung in found}}
            records.append(out, {**line, **exact, "environment": where})
            yield line


def _shard(text: str) -> tuple[int, int]:
    """``2/7`` as numbers."""
    first, slash, last = text.partition("/")
    if not (slash and first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise InputError(f"--shard {text}: give NUMBER/COUNT with a number below the count, e.g. 0/7")
    return int(first), int(last)


def main(arguments: Sequence[str] | None = None) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--space", default="gnns", help=", ".join(SPACES))
    parser.add_argument("--configs", type=int, default=200, help="random configurations")
    parser.add_argument("--seeds", type=int, default=2, help="full trainings of each")
    parser.add_argument("--shard", default="0/1", help="which configurations, such as 2/7")
    parser.add_argument("--out", type=Path, required=True, help="file to append records to")
    given = parser.parse_args(arguments)
    check_names("--space", [given.space], SPACES)
    first, step = _shard(given.shard)
    every = configurations(SPACES[given.space], given.configs)
    own = dict(list(enumerate(every))[first::step])
    task = split(data("coauthor_physics"))  # type: ignore[arg-type]
    for line in record(task, given.space, own, given.seeds, given.out):
        spent = sum(line["seconds"].values())
        log.info("%d, seed %d: %.4f, %.1f s", line["number"], line["seed"], line["val"]["full"], spent)


if __name__ == "__main__":
    as_command(main)
