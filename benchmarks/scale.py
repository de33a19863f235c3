"""One outer step of HCDC on a graph of Reddit2's size, on the CPU: seconds and peak memory of every phase.

    python benchmarks/scale.py [--fraction 1.0] [--lanes 2] [--chunk 2] [--out FILE]

The graph is generated, since only its size matters here: as many nodes, edges, features and classes as
Reddit2, with degree-corrected blocks for structure, in random node order. The outer step is that of the
batched schedule with its training on the original graph cut short: parameters at a few lambdas on the
original, the hypergradients there by conjugate gradients on Gauss-Newton products, parameters and
responses on S_train, one alignment gradient and one Adam step on S_val. The peak is that of the resident set
of the whole process, the generation of the graph included.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from hcdc.core.files import write_atomic
from hcdc.core.progress import peak_memory_gib
from hcdc.core.recipe import Recipe
from hcdc.core.records import environment, jsonable
from hcdc.core.seeds import numpy_stream
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, GraphData
from hcdc.hypergrad import (
    batched_best_response,
    batched_hypergradient,
    conjugate_gradient,
    response_alignment_gradient,
)
from hcdc.networks import Params
from hcdc.spaces import PolynomialFilter, stack
from hcdc.tasks import GraphTask
from hcdc.training import adam_step, init_many, train_many

NODES, ENTRIES, FEATURES, CLASSES = 232_965, 23_213_838, 602, 41  # Reddit2
TRAIN, VAL = 153_431, 23_831
LIMIT_GIB = 16.0


def adjacency(y: np.ndarray, pairs: int, rng: np.random.Generator) -> SparseMatrix:
    """``pairs`` distinct undirected edges: heavy-tailed degrees, four of five within a class."""
    n = len(y)
    order = np.argsort(y, kind="stable")  # nodes of a class lie together
    weight = 1 + rng.pareto(2.5, n)
    heaped = np.concatenate([[0.0], np.cumsum(weight[order])])
    edge = np.searchsorted(y[order], np.arange(CLASSES + 1))
    below, above = heaped[edge[:-1]], heaped[edge[1:]]

    def draw(low: Any, high: Any, count: int) -> np.ndarray:
        at = np.searchsorted(heaped, rng.uniform(low, high, count), side="right") - 1
        return order[np.minimum(at, n - 1)]

    count = int(1.15 * pairs)
    first = draw(0.0, heaped[-1], count)
    inside = rng.random(count) < 0.8
    second = draw(
        np.where(inside, below[y[first]], 0.0), np.where(inside, above[y[first]], heaped[-1]), count
    )
    low, high = np.minimum(first, second).astype(np.int64), np.maximum(first, second)
    keys = np.unique(low[low != high] * n + high[low != high])
    keys = np.sort(rng.permutation(keys)[:pairs])
    rows, columns = (keys // n).astype(np.int32), (keys % n).astype(np.int32)
    half = sparse.csr_matrix((np.ones(len(keys), np.float32), (rows, columns)), (n, n))
    return SparseMatrix.from_scipy(half + half.T, symmetric=True)


def generated(fraction: float) -> GraphData:
    """A graph of ``fraction`` of Reddit2's nodes and edges."""
    rng = numpy_stream(0, "scale-graph")
    n = int(NODES * fraction)
    y = rng.integers(0, CLASSES, n)
    x = rng.standard_normal((n, FEATURES), dtype=np.float32)
    centres = rng.standard_normal((CLASSES, FEATURES), dtype=np.float32) * 0.1
    for label in range(CLASSES):
        x[y == label] += centres[label]
    graph = Graph(torch.from_numpy(x), adjacency(y, int(ENTRIES * fraction) // 2, rng))
    nodes = torch.from_numpy(rng.permutation(n))
    cuts = [int(TRAIN * fraction), int(VAL * fraction)]
    parts = nodes.split([*cuts, n - sum(cuts)])
    return GraphData("generated", "memory", graph, torch.from_numpy(y), *parts, num_classes=CLASSES)


class Phases:
    """Seconds by the clock, seconds of CPU (other work on the machine stretches them less), peak so far."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start, cpu = time.perf_counter(), time.process_time()
        yield
        row = {
            "phase": name,
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu,
            "peak_gib": peak_memory_gib(),
        }
        self.rows.append(row)
        print(
            f"{name:28s} {row['seconds']:8.1f} s  ({row['cpu_seconds']:8.1f} s of CPU)  "
            f"peak so far {row['peak_gib']:5.2f} GiB",
            flush=True,
        )


def outer_step(args: argparse.Namespace, phase: Phases) -> dict[str, Any]:
    """One outer step; returns the figures that tell whether it did its work."""
    space = PolynomialFilter(order=3, width=64)
    with phase("generate the graph"):
        data = generated(args.fraction)
    entries = data.graph.adj.nnz  # type: ignore[union-attr]
    task = GraphTask(data).bind(space)
    with phase("prepare matrices"):
        task.prepare(task.train)
    s_train = task.sample("train", args.train_size, 0)
    s_val = task.sample("val", args.val_size, 0)

    configs = space.sample(args.lanes, numpy_stream(0, "scale"))
    lam = stack(space, configs)
    keys = [(lane,) for lane in range(args.lanes)]
    solver = conjugate_gradient(args.iterations, damping=1e-3)
    with phase(f"train {args.steps} steps, original"):
        init = init_many(task, keys, 0, "scale-original", "cpu")
        parts = [
            train_many(
                task, _lanes(init, k, args.chunk), lam[k : k + args.chunk], task.train, Recipe(args.steps)
            )
            for k in range(0, args.lanes, args.chunk)
        ]
        params = {name: torch.cat([part[name] for part in parts]) for name in init}
    with phase("original hypergradients"):
        target = task.target()
        original = batched_hypergradient(
            target, params, lam, target.train, target.val, solver, "gauss_newton", chunk_size=args.chunk
        )
    with phase("train on S_train"):
        init = init_many(task, keys, 0, "scale-small", "cpu")
        small = train_many(task, init, lam, s_train, Recipe())
    with phase("responses on S_train"):
        task.prepare(s_val)
        response = batched_best_response(task, small, lam, s_train, solver)
    with phase("alignment gradient and step"):
        loss, gradient = response_alignment_gradient(task, small, lam, response, original.total, s_val)
        tensors = {name: tensor.clone() for name, tensor in task.tensors(s_val).items()}
        zeros = [{name: torch.zeros_like(tensor) for name, tensor in tensors.items()} for _ in range(2)]
        adam_step(tensors, gradient, *zeros, 1, 1e-3)
    moved = float((tensors["x"] - task.tensors(s_val)["x"]).abs().max())
    if not (torch.isfinite(original.total).all() and torch.isfinite(gradient["x"]).all() and moved > 0):
        raise SystemExit("the outer step did not produce finite figures")
    return {
        "nodes": data.graph.num_nodes,
        "adjacency_entries": entries,
        "features": FEATURES,
        "classes": CLASSES,
        "train_nodes": len(data.train),
        "val_nodes": len(data.val),
        "solver_iterations": original.diagnostics.iterations,
        "solver_residual": original.diagnostics.residual,
        "original_hypergradients": original.total,
        "alignment_loss": loss,
        "largest_change_of_s_val": moved,
    }


def _lanes(params: Params, start: int, count: int) -> Params:
    return {name: tensor[start : start + count] for name, tensor in params.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--fraction", type=float, default=1.0, help="of Reddit2's nodes and edges")
    parser.add_argument("--lanes", type=int, default=2, help="lambdas of the step")
    parser.add_argument("--chunk", type=int, default=2, help="lambdas at once on the original graph")
    parser.add_argument("--steps", type=int, default=2, help="training steps on the original graph")
    parser.add_argument("--iterations", type=int, default=5, help="of conjugate gradients")
    parser.add_argument("--train-size", type=int, default=5 * CLASSES)
    parser.add_argument("--val-size", type=int, default=2 * CLASSES)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "records" / "scale.json")
    args = parser.parse_args()
    phase = Phases()
    figures = outer_step(args, phase)
    record = {
        "environment": environment("cpu"),
        "graph": "generated: the size of Reddit2, not its content",
        "settings": {k: v for k, v in vars(args).items() if k != "out"},
        **figures,
        "phases": phase.rows,
        "seconds": sum(row["seconds"] for row in phase.rows),
        "cpu_seconds": sum(row["cpu_seconds"] for row in phase.rows),
        "load_average": os.getloadavg(),
        "peak_gib": peak_memory_gib(),
        "limit_gib": LIMIT_GIB,
    }
    write_atomic(args.out, json.dumps(jsonable(record), indent=1) + "\n")
    print(
        f"{record['seconds']:.0f} s, peak {record['peak_gib']:.2f} GiB of {LIMIT_GIB:.0f}; wrote {args.out}"
    )
    if record["peak_gib"] > LIMIT_GIB:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
