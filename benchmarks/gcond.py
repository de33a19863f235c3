"""Seconds an epoch of GCond: this library against the plain form of the same algorithm, in one run.

    python benchmarks/gcond.py [--dataset cora] [--size 35] [--threads 2] [--out FILE]

The plain form (tests/condensers/plain_gcond.py, the oracle of the tests) concatenates all pairs of nodes for
the adjacency's MLP, makes the adjacency again for the inner loop, gives each class a forward pass of its own
on both graphs and differentiates twice. Both do the same steps from the same start, and their matching
distances are compared. Epochs that step the adjacency and epochs that step the features are timed apart, by
the clock and in processor time (of all threads; other work on the machine disturbs it less). A run has 1 of
the former to 4 of the latter.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from hcdc import datasets
from hcdc.condensers import make_reducer
from hcdc.condensers._gcond import GCond
from hcdc.condensers._pge import init_pge
from hcdc.condensers._sgc import init_sgc, rows
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.files import write_atomic
from hcdc.core.labels import allocate_labels, draw_members, members
from hcdc.core.progress import Phase, Progress
from hcdc.core.records import environment, jsonable
from hcdc.core.seeds import stream
from hcdc.datasets import GraphData
from hcdc.tasks import GraphTask

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "condensers"))
from plain_gcond import PlainPGE, plain_epoch

FIRST_FEATURE_EPOCH = 10


def now() -> tuple[float, float]:
    """The clock, and the processor time of this process."""
    return time.perf_counter(), time.process_time()


def since(begin: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    return end[0] - begin[0], end[1] - begin[1]


class Clock(Progress):
    """Notes when each epoch ends and the figure it reports."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[float, float]] = []
        self.distances: list[float] = []

    def phase(self, name: str, total: int = 1) -> Phase:
        owner = self
        owner.ends.append(now())

        class Timed(Phase):
            def step(self, done: int, figure: str = "") -> None:
                owner.ends.append(now())
                owner.distances.append(float(figure.split()[-1]))

        return Timed(self, name, total)


def ours(reducer: GCond, task: GraphTask, size: int) -> tuple[list[tuple[float, float]], list[float]]:
    """Seconds (by the clock, of processors) and matching distance of each epoch."""
    clock = Clock()
    reducer.reduce(task, "train", size, 0, progress=clock, checkpoint=Checkpoint(None))
    return [since(a, b) for a, b in itertools.pairwise(clock.ends)], clock.distances


def plain(
    reducer: GCond, task: GraphTask, size: int, epochs: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """The same of the plain form: ``epochs`` that step the adjacency, then as many that step the features."""
    nodes, classes = task.train, task.num_classes
    y = allocate_labels(nodes.y, size, classes)
    start = stream(0, "gcond", "train", "start")
    counts = y.bincount(minlength=classes).tolist()
    picked = torch.cat(draw_members(members(nodes.y, classes), counts, start))
    x = rows(nodes.graph, nodes.positions()[picked]).clone().requires_grad_()
    pge = PlainPGE(x.shape[1], reducer.pge_hidden).take(init_pge(x.shape[1], reducer.pge_hidden, start))
    feature_optimiser = torch.optim.Adam([x], lr=reducer.lr_feat)
    pge_optimiser = torch.optim.Adam(pge.parameters(), lr=reducer.lr_adj)
    original = (nodes.graph.x, nodes.graph.propagation(), nodes.y, nodes.positions())
    seconds, distances = [], []
    for epoch in range(2 * epochs):
        layer = init_sgc(x.shape[1], classes, 0, stream(0, "gcond", "train", epoch))[0]
        begin = now()
        distances.append(
            plain_epoch(reducer, x, pge, feature_optimiser, pge_optimiser, layer, y, original, epoch < epochs)
        )
        seconds.append(since(begin, now()))
    return seconds, distances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--size", type=int, default=35)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="epochs of the plain form, of each kind")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("records") / "gcond.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = datasets.data(options.dataset)
    assert isinstance(data, GraphData)
    task = GraphTask(data)
    reducer = make_reducer("gcond", "cora", epochs=FIRST_FEATURE_EPOCH + 10)
    assert isinstance(reducer, GCond)

    own_seconds, own_distances = ours(reducer, task, options.size)
    plain_seconds, plain_distances = plain(reducer, task, options.size, options.epochs)
    k = options.epochs
    worst = max(abs(a - b) / b for a, b in zip(own_distances[:k], plain_distances[:k]))
    assert worst < 0.02, f"the two forms differ: {own_distances[:k]} and {plain_distances[:k]}"
    found: dict[str, Any] = {}
    for which, name in enumerate(("seconds", "cpu_seconds")):
        forms = [(own_seconds, FIRST_FEATURE_EPOCH), (plain_seconds, k)]
        adjacency = [statistics.median(e[which] for e in each[:first]) for each, first in forms]
        features = [statistics.median(e[which] for e in each[first:]) for each, first in forms]
        found[f"{name}_per_adjacency_epoch"], found[f"{name}_per_feature_epoch"] = adjacency, features
        found[f"{name}_of_600_epochs_projected"] = [
            600 * (0.2 * a + 0.8 * f) for a, f in zip(adjacency, features)
        ]
    run, cpu = found["seconds_of_600_epochs_projected"], found["cpu_seconds_of_600_epochs_projected"]
    record = {
        "benchmark": "gcond",
        "dataset": data.name,
        "size": options.size,
        "columns": ["hcdc", "plain"],
        **found,
        "ratio": run[1] / run[0],
        "cpu_ratio": cpu[1] / cpu[0],
        "largest_relative_difference_of_distances": worst,
        "environment": environment(),
    }
    write_atomic(options.out, json.dumps(jsonable(record), indent=2) + "\n")
    print(f"600 epochs on {data.name}, {options.size} nodes: {run[0]:.0f} s, plain form {run[1]:.0f} s")
    print(f"{record['ratio']:.1f} times faster; processor time {cpu[0]:.0f} s and {cpu[1]:.0f} s")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
