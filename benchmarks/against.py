"""This source against an older one, in one run: seconds, their ratio, and how far apart the results are.

    python benchmarks/against.py OLD_ROOT [--device cuda] [--cases dc,tm] [--rounds 5] [--out FILE]

OLD_ROOT/hcdc is the older package, e.g. from ``git archive COMMIT src | tar -x -C FOLDER``. Each source has a
process of its own, and the two take turns: one run of each case that also starts things up (``start``), then
the rounds, whose medians are compared. On CUDA other processes fill the compiler's cache before; their
results tell how far apart two runs of one source are (``again``). Times are the clock's on CUDA; on a CPU,
processor time of one thread, which other processes disturb least.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
COMPILED = (("dc", "dsa", "dm"), ("tm",))  # on CUDA, by process
Run = Callable[[], Tensor]


def images(method: str, device: str, **settings: Any) -> Run:
    """A short condensation of random images in the shape of CIFAR."""
    from hcdc.condensers import make_reducer
    from hcdc.core.checkpoint import Checkpoint
    from hcdc.core.progress import Progress
    from hcdc.datasets import ImageData, Images
    from hcdc.tasks import ImageTask

    real, size, width = (500, 100, 128) if device == "cuda" else (50, 10, 16)
    x = torch.randint(256, (10 * real, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    train = Images(x.to(device, torch.uint8), torch.arange(10, device=device).repeat_interleave(real))
    some, half = Images(train.x[::real], train.y[::real]), torch.full((3,), 0.5, device=device)
    data = ImageData("random", "memory", train, some, some, 10, half, half, tuple("0123456789"))
    task, reducer = ImageTask(data, "convnet"), make_reducer(method, width=width, depth=2, **settings)
    rest: dict[str, Any] = {"progress": Progress(), "checkpoint": Checkpoint(None)}
    return lambda: reducer.reduce(task, "train", size, 0, **rest).x


def filters(device: str, hypergradients: bool) -> Run:
    """Filters on the embedded graph, trained in one batch; or hypergradients of single ones."""
    from hcdc.core.recipe import Recipe
    from hcdc.core.seeds import numpy_stream
    from hcdc.datasets import data
    from hcdc.hypergrad import conjugate_gradient, hypergradient
    from hcdc.spaces import PolynomialFilter, stack
    from hcdc.tasks import GraphTask
    from hcdc.training import init_many, score_many, train_many

    gpu, space = device == "cuda", PolynomialFilter()
    task = GraphTask(data("embedded")).bind(space).to(device)
    task.prepare(task.train)
    lams = stack(space, space.sample(80 if gpu else 4, numpy_stream(0, "benchmark"))).to(device)
    start = init_many(task, [(str(k),) for k in range(len(lams))], 0, "benchmark", device)
    recipe, solver = Recipe(steps=100 if gpu else 10), conjugate_gradient(10, damping=1e-3)

    def trained() -> Tensor:
        params = train_many(task, start, lams, task.train, recipe)
        return score_many(task, params, lams, task.val).loss

    def solved() -> Tensor:
        params = {name: p[0] for name, p in start.items()}
        sets = task.train, task.val
        return torch.stack([hypergradient(task, params, lam, *sets, solver).total for lam in lams[:4]])

    return solved if hypergradients else trained


def cells(device: str) -> Run:
    """48 cells with 8 initialisations each, trained by the stream engine on 500 images."""
    from hcdc.core.recipe import Recipe
    from hcdc.datasets import Images
    from hcdc.spaces import NASBench201
    from hcdc.training import train_networks

    space = NASBench201()
    networks = [dataclasses.replace(space.network(3, 10, c), fused=True) for c in space.candidates()[:48]]
    x = torch.randn(500, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    train = Images(x.to(device), torch.arange(500, device=device) % 10)
    recipe = Recipe(steps=20, seeds=8, lr=0.025, weight_decay=3e-4, optimizer="sgd", batch=64, clip=5.0)

    def run() -> Tensor:
        def norms(*given):  # [1, parameters]: a row per training set; earlier versions keep it whole
            return torch.stack([p.float().norm() for p in given[-1].values()])[None]

        found = train_networks(networks, [train], recipe, norms, seed=0, role="benchmark", device=device)
        return torch.cat([made.flatten() for network in found for made in network[0]])

    return run


def graph(device: str) -> Run:
    """GCond with 35 nodes on Cora: 50 epochs, one round of its schedule; 600 epochs are 12 of these."""
    from hcdc.condensers import make_reducer
    from hcdc.core.checkpoint import Checkpoint
    from hcdc.core.progress import Progress
    from hcdc.datasets import data
    from hcdc.tasks import GraphTask

    task, reducer = GraphTask(data("cora")).to(device), make_reducer("gcond", "cora", epochs=50)
    rest: dict[str, Any] = {"progress": Progress(), "checkpoint": Checkpoint(None)}
    return lambda: reducer.reduce(task, "train", 35, 0, **rest).graph.x


def case(name: str, device: str) -> Run:
    """What is timed, by name."""
    gpu = device == "cuda"
    if name == "gcond":
        return graph(device)
    if name in ("dc", "dsa"):
        loops = {"outer": 10, "inner": 10, "batch_real": 256} if gpu else {"outer": 2, "inner": 2}
        return images(name, device, iterations=2, **loops)
    if name == "dm":
        return images(name, device, iterations=200 if gpu else 12, batch=256 if gpu else 16)
    if name == "tm":
        sizes = {"iterations": 20 if gpu else 3, "student_steps": 10, "experts": 2 if gpu else 1}
        return images(name, device, start_epochs=2, target_epochs=1, **sizes)
    return cells(device) if name == "cells" else filters(device, name == "hypergradients")


def serve(device: str, folder: str) -> None:
    """One source: run the cases named on the input, one per line; answer with seconds, store results."""
    answers, sys.stdout = sys.stdout, sys.stderr
    clock = time.perf_counter if device == "cuda" else time.process_time
    made: dict[str, Run] = {}
    for number, name in enumerate(map(str.strip, sys.stdin)):
        made[name] = made.get(name) or case(name, device)
        begun = clock()
        result = made[name]().detach().cpu()  # waits for the device
        answer = clock() - begun, f"{folder}/{number}.pt"
        torch.save(result, answer[1])
        print(json.dumps(answer), file=answers, flush=True)


class Source:
    """A process that runs one of the two sources."""

    def __init__(self, root: Path, device: str):
        self.folder = tempfile.TemporaryDirectory()
        command = [sys.executable, __file__, str(root), "--device", device, "--serve", self.folder.name]
        env = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)

    def ask(self, name: str) -> None:
        print(name, file=self.process.stdin, flush=True)

    def answer(self) -> tuple[float, Tensor]:
        seconds, result = json.loads(self.process.stdout.readline())
        return seconds, torch.load(result)


def compiled(roots: dict[str, Path], device: str, names: list[str]) -> dict[tuple[str, str], Tensor]:
    """Results of the compiled cases, from processes that run at the same time."""
    started = [(side, Source(roots[side], device), some) for side in roots for some in COMPILED]
    chosen = [(side, source, name) for side, source, some in started for name in some if name in names]
    for _, source, name in chosen:
        source.ask(name)
    return {(side, name): source.answer()[1] for side, source, name in chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, metavar="OLD_ROOT", help="folder that holds the older hcdc package")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--cases",
        default="dc,dsa,dm,tm,hypergradients,filters,cells",
        help="these and gcond; cells: CUDA only",
    )
    parser.add_argument("--rounds", type=int, default=5, help="alternations; at most 3 for cells")
    parser.add_argument("--out", type=Path, help="records/against.json, on a CPU against-cpu.json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.device, given.serve)
    from hcdc.core.files import write_atomic
    from hcdc.core.records import environment

    gpu, rows = given.device == "cuda", []
    names = [name for name in given.cases.split(",") if gpu or name != "cells"]
    roots = {"old": given.old.resolve(), "new": HERE.parent / "src"}
    before = compiled(roots, given.device, names) if gpu else {}
    sources = {side: Source(root, given.device) for side, root in roots.items()}
    for name in names:
        runs: dict[str, list[tuple[float, Tensor]]] = {side: [] for side in roots}
        for k in range(1 + min(given.rounds, 3 if name == "cells" else given.rounds)):
            for side in list(roots)[:: 1 - 2 * (k % 2)]:  # the other first in every second round
                sources[side].ask(name)
                runs[side].append(sources[side].answer())
        seconds = {side: statistics.median(s for s, _ in found[1:]) for side, found in runs.items()}
        start, first = ({side: found[0][i] for side, found in runs.items()} for i in range(2))
        row = {"case": name, "rounds": len(runs["new"]) - 1, "seconds": seconds, "start": start}
        apart = lambda a, b: float((a - b).double().norm() / b.double().norm())  # noqa: E731
        row |= {"ratio": seconds["new"] / seconds["old"], "difference": apart(first["new"], first["old"])}
        row["again"] = {s: apart(first[s], before[s, name]) for s in roots if (s, name) in before}
        rows.append(row)
        print(json.dumps(row), flush=True)
    out = given.out or HERE / "records" / ("against.json" if gpu else "against-cpu.json")
    record = {"benchmark": "against", "cases": rows, "environment": environment(given.device)}
    write_atomic(out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
