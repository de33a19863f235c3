"""Weights of a network's lanes on CUDA in Triton: three kernels for a step, whatever the number of layers.

Kernels that run as one block-diagonal kernel of all lanes are kept in that form, zeros included. A step
gathers their gradients from the diagonal blocks and scatters the new weights into them. A program works on a
piece of one parameter of one lane. Sums have a fixed order, so equal inputs give equal outputs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hcdc.networks import Params
from hcdc.training._optimizers import moved
from hcdc.training._weights import PRECISION, Layout, Weights

PIECE = 2048
"""Most entries per program."""


@triton.jit
def _place(table, pieces, PIECE: tl.constexpr):
    """Where the entries of a program lie in theta and among the matrices, and which of them exist."""
    lane, piece = tl.program_id(0) // pieces, tl.program_id(0) % pieces
    row = table + 7 * piece
    origin, size, first = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    base, inner, stride, shift = tl.load(row + 3), tl.load(row + 4), tl.load(row + 5), tl.load(row + 6)
    own = first + tl.arange(0, PIECE)
    entry = lane * size + own
    return origin + entry, base + (entry // inner) * stride + lane * shift + entry % inner, own < size


@triton.jit(do_not_specialize=["pieces", "matrices"])
def _gather(theta, gradient, of_matrices, of_vectors, table, squares, decay, pieces, matrices,
            PIECE: tl.constexpr):  # fmt: skip
    """Gradients with weight decay, and the sum of their squares."""
    at, where, inside = _place(table, pieces, PIECE)
    g = tl.load(of_matrices + where, inside & (at < matrices), 0.0).to(tl.float32)
    g += tl.load(of_vectors + (at - matrices), inside & (at >= matrices), 0.0)
    g += decay * tl.load(theta + at, inside, 0.0)
    tl.store(gradient + at, g, inside)
    tl.store(squares + tl.program_id(0), tl.sum(g * g, 0))


@triton.jit(do_not_specialize=["pieces"])
def _clip(gradient, table, squares, clip, pieces, PIECE: tl.constexpr, MOST: tl.constexpr):
    """Limit each lane's norm."""
    at, _, inside = _place(table, pieces, PIECE)
    each, lane = tl.arange(0, MOST), tl.program_id(0) // pieces
    norm = tl.sqrt(tl.sum(tl.load(squares + lane * pieces + each, each < pieces, 0.0), 0))
    g = tl.load(gradient + at, inside, 0.0)
    tl.store(gradient + at, g * tl.minimum(clip / (norm + 1e-6), 1.0), inside)


@triton.jit(do_not_specialize=["pieces", "matrices"])
def _scatter(theta, work, table, pieces, matrices, PIECE: tl.constexpr):
    """Put matrices where the network sees them."""
    at, where, inside = _place(table, pieces, PIECE)
    mask = inside & (at < matrices)
    tl.store(work + where, tl.load(theta + at, mask, 0.0).to(work.dtype.element_ty), mask)


class WideWeights(Weights):
    """`Weights` whose network sees some kernels in block-diagonal form.

    Args:
        layout, device: As for `Weights`.
        wide: Names of those kernels.
    """

    def __init__(self, layout: Layout, device: torch.device, wide: frozenset[str]):
        self.wide = wide
        super().__init__(layout, device)

    def _prepare(self, device: torch.device) -> None:
        lanes, self.plain, origin, base = self.layout.lanes, self.params, 0, 0
        rows: list[tuple[int, ...]] = []
        places: dict[str, tuple[int, int]] = {}
        for (name, shape), size in zip(self.layout.shapes.items(), self.layout.sizes):
            inner = shape[1] if len(shape) == 4 else size
            stride, shift = (lanes * inner, inner) if name in self.wide else (inner, 0)
            rows += [(origin, size, first, base, inner, stride, shift) for first in range(0, size, PIECE)]
            if len(shape) > 1:
                places[name] = base, lanes * size // inner * stride
                base += places[name][1]
            origin += lanes * size
        self.seen = torch.zeros(base, dtype=PRECISION, device=device)
        self.params: Params = {}
        for name, p in self.plain.items():
            if name not in places:
                self.params[name] = p
                continue
            start, count = places[name]
            part = self.seen[start : start + count]
            if p.dim() == 4:
                self.params[name] = part.view(len(p), *p.shape[2:], -1).permute(0, 3, 1, 2)
            else:
                self.params[name] = part.view(p.shape)
        self.table, self.pieces = moved(torch.tensor(rows, dtype=torch.int32), device), len(rows)
        self.squares = torch.zeros(lanes * self.pieces, device=device)
        most = max(p.numel() for p in self.params.values())
        types = {p.dtype for p in self.params.values()}
        self.nothing = {dtype: torch.zeros(most, dtype=dtype, device=device) for dtype in types}

    def refresh(self) -> None:
        _scatter[(len(self.squares),)](
            self.theta, self.seen, self.table, self.pieces, self.layout.matrices, PIECE
        )

    def trained(self) -> Params:
        super().refresh()
        return self.plain

    def collect(self, found: dict[str, Tensor | None], decay: float, clip: float) -> None:
        parts: dict[bool, list[Tensor]] = {True: [], False: []}
        for name, g in found.items():
            p = self.params[name]
            part = self.nothing[p.dtype][: p.numel()] if g is None else self.layout.flat(g)
            parts[p.dim() > 1].append(part)
        grid = (len(self.squares),)
        _gather[grid](
            self.theta, self.gradient, torch.cat(parts[True]), torch.cat(parts[False]), self.table,
            self.squares, float(decay), self.pieces, self.layout.matrices, PIECE,
        )  # fmt: skip
        if clip:
            most = triton.next_power_of_2(self.pieces)
            _clip[grid](self.gradient, self.table, self.squares, clip, self.pieces, PIECE, most)
