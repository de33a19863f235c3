"""Products of one constant sparse matrix with B dense matrices: hcdc's own against other ways to take them.

    python benchmarks/spmm.py [--device cuda] [--out FILE]

Forms, timed in turn within one run, so that ratios hold whatever the machine:
    hcdc       SparseMatrix under vmap: on a CPU lane after lane into one tensor, on a GPU folded into columns
    folded     the batch copied into columns, one CSR product of torch (MKL or cuSPARSE), and copied back
    loop       one CSR product of torch a lane, stacked
    gradient   hcdc's product with its gradient, vmap(grad(...)): two products
The least time over repeats counts. The matrices have the sizes of known graphs and random entries.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from scipy import sparse
from torch import Tensor
from torch.func import grad, vmap

from hcdc.core.files import write_atomic
from hcdc.core.records import environment, jsonable
from hcdc.core.seeds import numpy_stream, stream
from hcdc.core.sparse import SparseMatrix

# nodes and entries of P
SHAPES = {"cora": (2708, 13_264), "pubmed": (19_717, 108_365), "physics": (34_493, 530_417)}
COLUMNS = 64
LANES = {"cpu": (1, 16, 64), "cuda": (16, 64, 256)}


def matrix(nodes: int, entries: int, device: str) -> SparseMatrix:
    """A random symmetric matrix with about so many entries."""
    rng = numpy_stream(0, "spmm", nodes)
    half = sparse.random(nodes, nodes, entries / 2 / nodes**2, "csr", random_state=rng)
    return SparseMatrix.from_scipy(half + half.T, symmetric=True).to(device)


def best_seconds(work: dict[str, Callable[[], Any]], device: str, repeats: int = 7) -> dict[str, float]:
    """Least seconds of each form; the forms take turns, so that a disturbance does not hit one alone."""
    best = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for form, run in work.items():
            start = time.perf_counter()
            run()
            if device != "cpu":
                torch.cuda.synchronize()
            best[form] = min(best[form], time.perf_counter() - start)
    return best


def forms(a: SparseMatrix, batch: Tensor) -> dict[str, Callable[[], Any]]:
    """The work of each form on ``batch [B, n, k]``."""
    lanes, nodes, columns = batch.shape
    vendor = torch.sparse_csr_tensor(a.indptr, a.indices, a.values, a.shape)
    gradient = vmap(grad(lambda z: (a @ z).square().sum()))

    def folded() -> Tensor:
        product = vendor @ batch.movedim(0, 1).reshape(nodes, lanes * columns)
        return product.reshape(nodes, lanes, columns).movedim(1, 0).contiguous()

    return {
        "hcdc": lambda: vmap(lambda z: a @ z)(batch),
        "folded": folded,
        "loop": lambda: torch.stack([vendor @ lane for lane in batch]),
        "gradient": lambda: gradient(batch),
    }


def measure(device: str) -> list[dict[str, Any]]:
    """One row a matrix and number of lanes."""
    rows = []
    for name, (nodes, entries) in SHAPES.items():
        a = matrix(nodes, entries, device)
        for lanes in LANES[torch.device(device).type]:
            batch = torch.randn(lanes, nodes, COLUMNS, generator=stream(0, "spmm", lanes)).to(device)
            work = forms(a, batch)
            torch.testing.assert_close(work["hcdc"](), work["folded"](), rtol=1e-3, atol=1e-3)
            took = best_seconds(work, device)
            row: dict[str, Any] = {"matrix": name, "nodes": nodes, "entries": a.nnz, "lanes": lanes}
            row |= {f"{form}_ms": 1e3 * value for form, value in took.items()}
            row |= {f"{form}_over_hcdc": took[form] / took["hcdc"] for form in ("folded", "loop", "gradient")}
            rows.append(row)
            ratios = "".join(f"  {key} {value:.2f}" for key, value in row.items() if "_over_" in key)
            print(f"{name:8s} {lanes:4d} lanes  hcdc {row['hcdc_ms']:9.2f} ms{ratios}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    out = args.out or Path(__file__).parent / "records" / f"spmm-{torch.device(args.device).type}.json"
    record = {
        "environment": environment(args.device),
        "columns_a_lane": COLUMNS,
        "rows": measure(args.device),
    }
    write_atomic(out, json.dumps(jsonable(record), indent=1) + "\n")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
