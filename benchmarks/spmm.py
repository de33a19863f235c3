"""Products of one constant sparse matrix with B dense matrices: folded into columns, against one lane after another.

    python benchmarks/spmm.py [--device cuda] [--out FILE]

Forms, timed in turn within one run, so that ratios hold whatever the machine:
    folded    hcdc's SparseMatrix under vmap: one product with B times the columns (on a GPU by the Triton kernel)
    loop      SparseMatrix, one product a lane
    vendor    torch's CSR product with the batch folded into columns (the library behind it: MKL or cuSPARSE)
    gradient  folded, with the gradient: vmap(grad(...)), which is two products
The matrices have the sizes of citation graphs and of a larger graph; entries are random.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from scipy import sparse
from torch import Tensor
from torch.func import grad, vmap

from hcdc.core import sparse as module
from hcdc.core.files import write_atomic
from hcdc.core.records import environment, jsonable
from hcdc.core.seeds import numpy_stream, stream
from hcdc.core.sparse import SparseMatrix

SHAPES = {
    "cora": (2708, 13_264),
    "pubmed": (19_717, 108_365),
    "physics": (34_493, 530_417),
}  # nodes, entries of P
COLUMNS = 64
LANES = (1, 16, 64)
GPU_LANES = (16, 64, 256)


def matrix(nodes: int, entries: int, device: str) -> SparseMatrix:
    """A random symmetric matrix with about so many entries."""
    rng = numpy_stream(0, "spmm", nodes)
    half = sparse.random(nodes, nodes, entries / 2 / nodes**2, "csr", random_state=rng)
    return SparseMatrix.from_scipy(half + half.T, symmetric=True).to(device)


def seconds(work: Callable[[], Any], device: str, least: float = 0.3) -> float:
    """Median seconds of one call, after one to warm up."""

    def once() -> float:
        start = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    once()
    times = [once() for _ in range(3)]
    while sum(times) < least and len(times) < 200:
        times.append(once())
    return statistics.median(times)


def forms(a: SparseMatrix, batch: Tensor) -> dict[str, Callable[[], Any]]:
    """The work of each form on ``batch [B, n, k]``."""
    lanes, nodes, columns = batch.shape
    vendor = torch.sparse_csr_tensor(a.indptr, a.indices, a.values, a.shape)
    gradient = vmap(grad(lambda z: (a @ z).square().sum()))
    return {
        "folded": lambda: vmap(lambda z: a @ z)(batch),
        "loop": lambda: [a @ lane for lane in batch],
        "vendor": lambda: vendor @ batch.movedim(0, 1).reshape(nodes, lanes * columns),
        "gradient": lambda: gradient(batch),
    }


def measure(device: str) -> list[dict[str, Any]]:
    rows = []
    for name, (nodes, entries) in SHAPES.items():
        a = matrix(nodes, entries, device)
        for lanes in LANES if device == "cpu" else GPU_LANES:
            batch = torch.randn(lanes, nodes, COLUMNS, generator=stream(0, "spmm", lanes)).to(device)
            work = forms(a, batch)
            folded, vendor = work["folded"](), work["vendor"]()
            torch.testing.assert_close(
                folded.movedim(0, 1).reshape(vendor.shape), vendor, rtol=1e-3, atol=1e-3
            )
            took = {form: seconds(run, device) for form, run in work.items()}
            rows.append(
                {
                    "matrix": name,
                    "nodes": nodes,
                    "entries": a.nnz,
                    "lanes": lanes,
                    **{f"{form}_ms": 1e3 * value for form, value in took.items()},
                    "loop_over_folded": took["loop"] / took["folded"],
                    "vendor_over_folded": took["vendor"] / took["folded"],
                }
            )
            print(
                f"{device:5s} {name:8s} {lanes:4d} lanes  folded {1e3 * took['folded']:9.2f} ms  "
                f"loop x{took['loop'] / took['folded']:5.2f}  vendor x{took['vendor'] / took['folded']:5.2f}  "
                f"gradient x{took['gradient'] / took['folded']:5.2f}",
                flush=True,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    out = args.out or Path(__file__).parent / "records" / f"spmm-{torch.device(args.device).type}.json"
    gpu = args.device != "cpu"
    record = {
        "environment": environment(args.device),
        "product": "triton" if gpu and module._triton is not None else "torch CSR",
        "columns_a_lane": COLUMNS,
        "rows": measure(args.device),
    }
    write_atomic(out, json.dumps(jsonable(record), indent=1) + "\n")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
