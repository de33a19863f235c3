"""Constant sparse matrices that multiply dense tensors under autograd and torch.func.

``torch.func`` cannot trace CSR tensors. Here a plain Python object holds the constant matrix, and one
autograd function, which is its own double backward, multiplies it with a dense tensor. Under ``vmap``, also
nested, all lanes arrive in one call. A GPU folds B lanes into one product with B times the columns. A CPU
takes lanes one by one, which avoids a copy and keeps the dense side in cache (benchmarks/spmm.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor


class SparseMatrix:
    """A constant matrix in CSR form, with its transpose.

    Both are built up front, because plain tensors cannot be created inside a ``torch.func`` transform.

    Args:
        indptr: ``[rows + 1]`` int64.
        indices: ``[nnz]`` int64, column of each entry.
        values: ``[nnz]`` floating point.
        shape: ``(rows, columns)``.
        symmetric: The matrix equals its transpose, so the transpose is not stored.
    """

    def __init__(
        self, indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int], symmetric: bool = False
    ):
        self.indptr, self.indices, self.values = indptr, indices, values
        self.shape = (int(shape[0]), int(shape[1]))
        self.symmetric = symmetric
        self._csr = _csr_tensor(indptr, indices, values, self.shape)
        self._transpose = self if symmetric else None

    @classmethod
    def from_scipy(
        cls, matrix: Any, dtype: torch.dtype = torch.float32, symmetric: bool = False
    ) -> SparseMatrix:
        """From any scipy sparse matrix; duplicates are summed, stored zeros dropped, indices sorted."""
        forward = cls._one_way(matrix, dtype, symmetric)
        if not symmetric:
            backward = cls._one_way(matrix.T, dtype, False)
            forward._transpose, backward._transpose = backward, forward
        return forward

    @classmethod
    def _one_way(cls, matrix: Any, dtype: torch.dtype, symmetric: bool) -> SparseMatrix:
        csr = matrix.tocsr().copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
        csr.sort_indices()
        return cls(
            torch.from_numpy(csr.indptr.astype(np.int64)),
            torch.from_numpy(csr.indices.astype(np.int64)),
            torch.from_numpy(np.ascontiguousarray(csr.data)).to(dtype),
            csr.shape,
            symmetric,
        )

    def to_scipy(self) -> Any:
        from scipy import sparse

        values = self.values.detach().cpu().numpy()
        return sparse.csr_matrix((values, self.indices.cpu().numpy(), self.indptr.cpu().numpy()), self.shape)

    @property
    def nnz(self) -> int:
        return int(self.indices.numel())

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> SparseMatrix:
        """A copy on another device or in another precision; itself if nothing changes."""
        if self.values.to(device=device, dtype=dtype) is self.values:
            return self
        forward = self._moved(device, dtype)
        if not self.symmetric:
            backward = self.t()._moved(device, dtype)
            forward._transpose, backward._transpose = backward, forward
        return forward

    def _moved(self, device: torch.device | str | None, dtype: torch.dtype | None) -> SparseMatrix:
        values = self.values.to(device=device, dtype=dtype)
        indptr, indices = self.indptr.to(device), self.indices.to(device)
        return SparseMatrix(indptr, indices, values, self.shape, self.symmetric)

    def t(self) -> SparseMatrix:
        """The transpose."""
        assert self._transpose is not None, "made by from_scipy"
        return self._transpose

    def rows(self, index: Tensor) -> SparseMatrix:
        """The given rows, in the order given."""
        return SparseMatrix.from_scipy(self.to_scipy()[index.cpu().numpy()], self.dtype).to(self.device)

    def submatrix(self, index: Tensor) -> SparseMatrix:
        """Rows and columns of ``index``: the induced subgraph of an adjacency matrix."""
        keep = index.cpu().numpy()
        kept = self.to_scipy()[keep][:, keep]
        return SparseMatrix.from_scipy(kept, self.dtype, self.symmetric).to(self.device)

    def to_dense(self) -> Tensor:
        return self._csr.to_dense()

    def multiply(self, dense: Tensor) -> Tensor:
        """Plain product with a ``[columns, k]`` or ``[B, columns, k]`` tensor, without autograd."""
        if dense.dim() == 3:
            return self._multiply_lanes(dense)
        return self._csr @ dense

    def _multiply_lanes(self, dense: Tensor) -> Tensor:
        lanes, columns, k = dense.shape
        if dense.is_cuda:
            wide = self.multiply(dense.movedim(0, 1).reshape(columns, lanes * k))
            return wide.reshape(self.shape[0], lanes, k).movedim(1, 0)
        out = dense.new_empty(lanes, self.shape[0], k)
        for lane, into in zip(dense, out):
            torch.mm(self._csr, lane, out=into)
        return out

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Product with ``[columns]``, ``[columns, k]`` or ``[B, columns, k]``, differentiable twice."""
        if dense.dim() == 1:
            product: Tensor = _SparseMatmul.apply(dense.unsqueeze(1), self)  # type: ignore[no-untyped-call]
            return product.squeeze(1)
        product = _SparseMatmul.apply(dense, self)  # type: ignore[no-untyped-call]
        return product

    def polynomial(self, coefficients: Tensor, dense: Tensor) -> Tensor:
        """sum_k c_k M^k dense for a square M and constant c, with one product per power.

        Differentiable once, in ``dense``, by plain reverse mode; not for ``torch.func``. Each term is
        rounded as if multiplied and added by itself.

        Args:
            coefficients: c ``[B, K + 1]``.
            dense: ``[B, n, k]``.
        """
        result: Tensor = _SparsePolynomial.apply(dense, coefficients, self)  # type: ignore[no-untyped-call]
        return result

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype}, device={self.device})"


def _csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # torch warns of its beta state on first use
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(indptr, indices, values, shape)


class _SparseMatmul(torch.autograd.Function):
    """``matrix @ dense`` for a constant matrix: linear in ``dense``, so jvp and vjp are products too."""

    @staticmethod
    def forward(dense: Tensor, matrix: SparseMatrix) -> Tensor:
        return matrix.multiply(dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, SparseMatrix], output: Tensor) -> None:
        ctx.matrix = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.t() @ grad, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        product: Tensor = ctx.matrix @ tangent
        return product

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], dense: Tensor, matrix: SparseMatrix) -> tuple[Tensor, int]:
        lanes = dense.movedim(in_dims[0], 0)  # [B, columns, k], or [B, C, columns, k] in a nested vmap
        product = matrix @ lanes.reshape(-1, *lanes.shape[-2:])
        return product.reshape(*lanes.shape[:-2], *product.shape[-2:]), 0


class _SparsePolynomial(torch.autograd.Function):
    """`SparseMatrix.polynomial`; its transpose is that polynomial in M^T, by Horner's rule.

    Lanes come in blocks: one on a CPU, which keeps it in cache, and all of them on a GPU.
    """

    @staticmethod
    def forward(ctx: Any, dense: Tensor, coefficients: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix, ctx.coefficients = matrix, coefficients
        out = torch.empty_like(dense)
        for z, into, c in _blocks(dense, out, coefficients):
            torch.mul(z, c[0], out=into)
            for factor in c[1:]:
                z = matrix.multiply(z)
                into += z * factor
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        transpose = ctx.matrix.t()
        out = torch.empty_like(grad)
        for g, into, c in _blocks(grad, out, ctx.coefficients):
            total = g * c[-1]
            for factor in reversed(c[:-1]):
                total = transpose.multiply(total).add_(g * factor)
            into.copy_(total)
        return out, None, None


def _blocks(dense: Tensor, out: Tensor, coefficients: Tensor) -> Iterable[tuple[Tensor, Tensor, Any]]:
    """Blocks of lanes of ``dense`` and ``out``, each with its coefficients, first to last."""
    if dense.is_cuda:
        return [(dense, out, coefficients.t()[:, :, None, None])]
    return zip(dense, out, coefficients.tolist())


def matmul(matrix: Tensor | SparseMatrix, dense: Tensor) -> Tensor:
    """``matrix @ dense`` for a dense or a constant sparse matrix."""
    return matrix @ dense
