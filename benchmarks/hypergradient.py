"""Memory and time of the hypergradient: constant in the number of Neumann terms, linear in P + H a term.

    python benchmarks/hypergradient.py [--device cuda] [--width 512] [--out FILE]

Memory: the peak of one hypergradient of a network with K Neumann terms, against the derivative through K
recorded training steps, which is the same number at the optimum. On CUDA it is the peak of the allocator; on
the CPU the peak resident set of a fresh process for every measurement, minus that of one with K = 1.
Time: seconds a term, from the difference between two numbers of terms, over sizes of P at fixed H and of H at
fixed P; on the CPU processor time of one thread, which other processes disturb least.
All figures come from one run, so their ratios hold whatever the machine; the record is written beside it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hcdc.core.files import write_atomic
from hcdc.core.records import environment, jsonable
from hcdc.datasets import Rows
from hcdc.hypergrad import hypergradient, neumann
from hcdc.hypergrad._nested import unrolled_params
from hcdc.hypergrad._vectors import size
from hcdc.networks import Params
from hcdc.tasks import Task

INPUTS, CLASSES, EXAMPLES = 128, 8, 256
TERMS = (1, 5, 20, 80)
FORMS = ("neumann", "recorded")


class Network(Task):
    """Two layers of tanh units; lambda holds H log penalties, weight i of the middle one under i mod H."""

    kind = "benchmark"

    def __init__(self, width: int, hyperparameters: int, device: str):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, EXAMPLES, INPUTS, generator=generator)
        y = torch.randint(0, CLASSES, (2, EXAMPLES), generator=generator)
        self.sets = [Rows(x[i].to(device), y[i].to(device)) for i in range(2)]
        self.width, self.hyperparameters, self.device = width, hyperparameters, device

    @property
    def train(self) -> Rows:
        return self.sets[0]

    @property
    def val(self) -> Rows:
        return self.sets[1]

    def init(self, generator: torch.Generator) -> Params:
        shapes = {"a": (INPUTS, self.width), "b": (self.width, self.width), "c": (self.width, CLASSES)}
        return {
            name: (torch.randn(shape, generator=generator) / shape[0] ** 0.5).to(self.device)
            for name, shape in shapes.items()
        }

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        return torch.tanh(torch.tanh(data.x @ params["a"]) @ params["b"]) @ params["c"]

    def loss(self, outputs: Tensor, data: Rows) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs, data.y)

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * (lam.exp() * params["b"].reshape(-1, self.hyperparameters) ** 2).sum()

    def sample(self, part: str, size: int, seed: int) -> Rows:
        return self.train

    def tensors(self, data: Rows) -> dict[str, Tensor]:
        return {"x": data.x}

    def replace(self, data: Rows, tensors: dict[str, Tensor]) -> Rows:
        return Rows(tensors["x"], data.y)

    def to(self, device: torch.device | str) -> Task:
        return Network(self.width, self.hyperparameters, str(device))


def compute(task: Network, form: str, terms: int) -> Tensor:
    """The hypergradient by K Neumann terms, or through K recorded steps of the same size."""
    params = task.init(torch.Generator().manual_seed(1))
    lam = torch.full((task.hyperparameters,), -4.0, device=task.device)
    if form == "neumann":
        return hypergradient(task, params, lam, task.train, task.val, neumann(terms, alpha=0.1)).total
    at = lam.clone().requires_grad_()
    trained = unrolled_params(task, params, at, task.train, terms, 0.1)
    return torch.autograd.grad(task.val_loss(trained, at, task.val), at)[0]


def peak_mib(width: int, form: str, terms: int, device: str) -> float:
    """Peak memory of this process after one computation."""
    task = Network(width, 16, device)
    compute(task, form, 1)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    compute(task, form, terms)
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def in_fresh_process(width: int, form: str, terms: int, device: str) -> float:
    """`peak_mib` in a process of its own: the peak resident set of a process never goes down."""
    command = [
        sys.executable,
        __file__,
        "--device",
        device,
        "--width",
        str(width),
        "--peak",
        form,
        str(terms),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def memory(width: int, device: str) -> list[dict[str, Any]]:
    """Growth of peak memory over K = 1, in MiB, of both forms."""
    peaks = {(form, k): in_fresh_process(width, form, k, device) for form in FORMS for k in TERMS}
    return [
        {"terms": k, **{f"{form}_extra_mib": round(peaks[form, k] - peaks[form, 1], 1) for form in FORMS}}
        for k in TERMS
    ]


def seconds(task: Network, terms: int, repeats: int = 3) -> float:
    """Least seconds of one hypergradient over some repeats."""
    clock = time.process_time if task.device == "cpu" else time.perf_counter
    times = []
    for _ in range(repeats + 1):
        if task.device != "cpu":
            torch.cuda.synchronize()
        start = clock()
        compute(task, "neumann", terms)
        if task.device != "cpu":
            torch.cuda.synchronize()
        times.append(clock() - start)
    return min(times)


def timing(widths: list[int], hypers: list[int], device: str) -> list[dict[str, Any]]:
    """Seconds a term and for everything else, over sizes of P and of H."""
    rows = []
    for width, hyper in [*((w, 16) for w in widths), *((widths[-1], h) for h in hypers)]:
        task = Network(width, hyper, device)
        few, many = seconds(task, 5), seconds(task, 45)
        term = (many - few) / 40
        total = size(task.init(torch.Generator())) + hyper
        rows.append(
            {
                "P": total - hyper,
                "H": hyper,
                "ms_a_term": 1e3 * term,
                "ms_besides": 1e3 * (few - 5 * term),
                "ns_a_term_a_number": 1e9 * term / total,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as aligned text."""
    lines = [
        list(rows[0]),
        *([f"{v:.3g}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows),
    ]
    return "\n".join("  ".join(cell.rjust(20) for cell in line) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=256, help="hidden width of the memory measurement")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "records" / "hypergradient.json")
    parser.add_argument("--peak", nargs=2, metavar=("FORM", "TERMS"), help="measure one peak and print it")
    args = parser.parse_args()
    if args.peak:
        print(peak_mib(args.width, args.peak[0], int(args.peak[1]), args.device))
        return
    widths = [args.width // 2, args.width, args.width * 2, args.width * 4]
    grown = memory(args.width, args.device)
    print(f"memory beyond K = 1, width {args.width}\n{table(grown)}")
    torch.set_num_threads(1)
    timed = timing(widths, [256, 4096, 65536], args.device)
    print(f"time, {EXAMPLES} examples\n{table(timed)}")
    record = {"environment": environment(args.device), "width": args.width, "memory": grown, "time": timed}
    write_atomic(args.out, json.dumps(jsonable(record), indent=1) + "\n")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
