"""Protocol ``graphs-pay``: what a trial costs on a graph and on copies of it, and when a copy pays.

    OMP_NUM_THREADS=1 python -m hcdc.experiments.graph_pays --dataset coauthor_physics --split 60 --out FILE

Seconds are CPU seconds. Training on the graph is transductive, with one seed, and extrapolated from a few
steps; a shortened training has a tenth of them. ``--split own`` is the data's split (20 nodes of a class for
training), ``--split 60`` has 60 / 20 / 20 per cent of the nodes. ``--dataset generated`` has the size of
Reddit2 times ``--fraction``, and random content. Copies:

- ``landscape``, for filters: 5 nodes of a class for training, 12 for validation, 3 seeds. Condensing is
  priced by its parts: trainings on the graph with their hypergradients (for which the solver takes a few
  steps more), companions on the copy, and the steps of S_val.
- ``random``: 5 % of the training nodes (at least 5 of a class) with the edges between them, one seed, scored
  on the real validation nodes. It costs nothing to make.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import time
from typing import Any

import numpy as np
import torch
from scipy import sparse

from hcdc.condensers import FollowsLandscape
from hcdc.core import records
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData, Nodes, data
from hcdc.experiments._command import as_command, check_names, rounded
from hcdc.spaces import PolynomialFilter, Space, Training, stack
from hcdc.tasks import GraphTask
from hcdc.training import init_many, score_many, train_many

PROTOCOL = "graphs-pay"
REDDIT2 = {"nodes": 232_965, "entries": 23_213_838, "features": 602, "classes": 41, "train": 153_431}
SPLITS = ("own", "60")
SPACES: dict[str, Space] = {"filters": PolynomialFilter(), "gcn": Training(["lr", "weight_decay"])}
"""Polynomial filters, and the training of a 2-layer GCN."""
STEPS, SEEDS = 200, 3
"""Steps of a training, on the graph and on a copy, and initialisations of a trial on a learned copy."""
SHORT, SHARE = 0.1, 0.05
"""Steps of a shortened training, and training nodes of a random copy."""


def generated(fraction: float) -> GraphData:
    """A graph of ``fraction`` of Reddit2's nodes and edges: random edges, features and labels."""
    rng = numpy_stream(0, "pays-graph")
    n, entries, train = (int(REDDIT2[key] * fraction) for key in ("nodes", "entries", "train"))
    ends = rng.integers(0, n, (2, entries // 2), dtype=np.int32)
    half = sparse.csr_matrix((np.ones(entries // 2, np.float32), (ends[0], ends[1])), (n, n))
    half.setdiag(0)
    both = half + half.T
    both.data[:] = 1
    x = torch.from_numpy(rng.standard_normal((n, REDDIT2["features"]), dtype=np.float32))
    nodes = torch.from_numpy(rng.permutation(n))
    first, second, third = nodes[:train], nodes[train:][: n // 10], nodes[train + n // 10 :]
    y = torch.arange(n) % REDDIT2["classes"]
    graph = Graph(x, SparseMatrix.from_scipy(both, symmetric=True))
    return GraphData("generated", "memory", graph, y, first, second, third, REDDIT2["classes"])


def split(whole: GraphData, name: str) -> GraphData:
    """The data with a split of `SPLITS`."""
    if name == "own":
        return whole
    nodes = torch.from_numpy(numpy_stream(0, "pays-split").permutation(np.flatnonzero(whole.y >= 0)))
    parts = nodes.tensor_split([int(0.6 * len(nodes)), int(0.8 * len(nodes))])
    train, val, test = (part.sort().values for part in parts)
    return dataclasses.replace(whole, train=train, val=val, test=test, split="60 / 20 / 20 per cent")


class Clock:
    """CPU seconds of trainings of one candidate of a space."""

    def __init__(self, task: GraphTask, space: Space):
        config = space.sample(1, numpy_stream(0, "pays"))[0]
        self.task, self.lam = task.bind(space, config), stack(space, [config])

    def train(self, on: Nodes, steps: int, lanes: int = 1) -> tuple[float, Any]:
        """Seconds of a training of ``lanes`` seeds, and the weights."""
        start = init_many(self.task, [(k,) for k in range(lanes)], 0, "pays", "cpu")
        self.task.prepare(on)
        begun = time.process_time()
        params = train_many(self.task, start, self.lam.expand(lanes, -1), on, Recipe(steps=steps))
        return time.process_time() - begun, params

    def step(self, on: Nodes, steps: int) -> float:
        """Seconds of a step, without what the first one takes longer."""
        self.train(on, 1)
        return self.train(on, steps)[0] / steps

    def score(self, params: Any, on: Nodes) -> float:
        """Seconds of a validation."""
        self.task.prepare(on)
        begun = time.process_time()
        score_many(self.task, params, self.lam.expand(len(next(iter(params.values()))), -1), on)
        return time.process_time() - begun


def prices(task: GraphTask, space: Space, steps: int) -> dict[str, Any]:
    """CPU seconds of a full and a shortened training, and of making and trying each copy."""
    clock, classes = Clock(task, space), task.num_classes
    step = clock.step(task.train, steps)
    least = clock.train(task.sample("train", 5 * classes, 0), 1)[1]
    validate = clock.score(least, task.val)
    count = max(5 * classes, round(SHARE * len(task.train)))
    spent, _ = clock.train(random_copy(task, count), STEPS)
    copies = {"random": {"nodes": count, "condense": 0.0, "trial": spent + validate}}
    if isinstance(space, PolynomialFilter):
        way, s_train = FollowsLandscape(), task.sample("train", 5 * classes, 0)
        clock.train(s_train, 1)
        spent, params = clock.train(s_train, STEPS, SEEDS)
        on_copy = spent / SEEDS / STEPS
        condense = way.trainings * (STEPS + way.iterations + 2) * step
        condense += (way.companions * STEPS + way.steps * min(way.batch, way.companions)) * on_copy
        trial = spent + clock.score(params, task.sample("val", 12 * classes, 0))
        learned = {"nodes": 5 * classes, "condense": condense, "trial": trial, "trainings": way.trainings}
        copies["landscape"] = learned
    return {
        "step": step, "validate": validate, "full": STEPS * step + validate,
        "short": SHORT * STEPS * step + validate, "copies": copies, "measured_steps": steps,
    }  # fmt: skip


def random_copy(task: GraphTask, count: int, seed: int = 0) -> Nodes:
    """Random training nodes with the edges between them, stored sparsely."""
    picked = numpy_stream(seed, "pays-copy").choice(len(task.train), count, replace=False)
    index = task.train.positions()[torch.from_numpy(np.sort(picked))]
    return Nodes(task.data.graph.sparse_subgraph(index), task.data.y[index])


def break_even(condense: float, trial: float, other: float) -> int | None:
    """Trials from which a copy is cheaper than other trainings; None: never."""
    return None if trial >= other else max(1, int(np.ceil(condense / (other - trial))))


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--dataset", default="coauthor_physics", help="a graph, or generated")
    parser.add_argument("--out", required=True, help="file to append records to")
    parser.add_argument("--split", default="own", help=", ".join(SPLITS))
    parser.add_argument("--steps", type=int, default=5, help="steps to extrapolate from")
    parser.add_argument("--fraction", type=float, default=1.0, help="of Reddit2's size, if generated")
    given = parser.parse_args()
    check_names("--split", [given.split], SPLITS)
    made = given.dataset == "generated"
    whole = generated(given.fraction) if made else data(given.dataset)
    task = GraphTask(split(whole, given.split))  # type: ignore[arg-type]
    for name, space in SPACES.items():
        found = prices(task, space, given.steps)
        assert isinstance(task.data.graph.adj, SparseMatrix)
        told = {
            "dataset": given.dataset, "fraction": given.fraction if made else None, "split": given.split,
            "space": name, "nodes": task.data.graph.num_nodes, "entries": task.data.graph.adj.nnz,
            "features": task.features, "train": len(task.train), "val": len(task.val),
            "environment": records.environment(),
        }  # fmt: skip
        records.append(given.out, {"protocol": PROTOCOL, **told, **rounded(found)})
        logging.getLogger("hcdc").info("%s, %s, %s: %s", given.dataset, given.split, name, rounded(found))


if __name__ == "__main__":
    as_command(main)
