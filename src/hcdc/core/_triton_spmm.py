"""CSR times dense on a GPU, one program a row and a block of columns (Triton).

With a batch folded into columns the dense side is thousands of columns wide: every entry of the sparse matrix then reads
one contiguous stretch of a row, and the product runs at the speed of the cache. The vendor's sparse product, tuned for
narrow right sides, was 5 to 10 times slower at these shapes (benchmarks/spmm.py).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    indptr, indices, values, dense, out, columns, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    start = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    total = tl.zeros((BLOCK,), dtype=out.dtype.element_ty)
    for position in range(start, end):
        column = tl.load(indices + position)
        value = tl.load(values + position)
        total += value * tl.load(dense + column * columns + offsets, mask=mask, other=0.0)
    tl.store(out + row.to(tl.int64) * columns + offsets, total, mask=mask)


def spmm(indptr: Tensor, indices: Tensor, values: Tensor, dense: Tensor, rows: int) -> Tensor:
    """``[rows, n] CSR @ dense [n, k]`` for int64 indices; float32 or float64, accumulated in that precision."""
    dense = dense.contiguous()
    columns = dense.shape[1]
    out: Tensor = torch.empty(rows, columns, dtype=dense.dtype, device=dense.device)
    block = min(1024, max(32, triton.next_power_of_2(columns)))
    grid: Any = (rows, triton.cdiv(columns, block))
    with torch.cuda.device(dense.device):
        _kernel[grid](indptr, indices, values, dense, out, columns, BLOCK=block)
    return out
