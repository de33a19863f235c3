"""A learned adjacency matches one filter for any features, and so overfits it (Proposition sdc-overfit)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.theory._matching import LeastSquares, smallest_singular


@dataclass(frozen=True, eq=False)
class MatchingAdjacency:
    """The result of `matching_adjacency`.

    Attributes:
        adjacency: A' ``[c, c]``, symmetric and positive semi-definite; entries may be negative.
        synthetic: The regression of the copy, with Z' = A' X'.
        gram_error: ||Z'^T Z' - Z^T Z|| / ||Z^T Z||.
        moment_error: ||Z'^T y' - Z^T y|| / ||Z^T y||.
    """

    adjacency: Tensor
    synthetic: LeastSquares
    gram_error: float
    moment_error: float


def matching_adjacency(original: LeastSquares, x_s: Tensor) -> MatchingAdjacency:
    """Proposition sdc-overfit: for any X' of full column rank some A' makes gradients match everywhere.

    The filter is C(A') = A'. With X'^+ the pseudo-inverse, A' = X'^+T H X'^+ where H is the geometric mean of
    X'^T X' and Z^T Z: it solves H (X'^T X')^-1 H = Z^T Z, so Z'^T Z' = Z^T Z. This A' is undirected, which is
    more than the paper claims. It is not non-negative, which the paper claims too: see `nonnegative_gap`.

    Args:
        original: T, with Z = C(A) X ``[n, d]`` of full column rank.
        x_s: X' ``[c, d]``, whatever it shows.
    """
    c, d = x_s.shape
    if smallest_singular(x_s) == 0:
        raise InputError(f"x_s: {c} rows and {d} columns of full column rank are needed; these are not")
    own, wanted = x_s.mT @ x_s, original.gram
    root = _root(own)
    inverse_root = torch.linalg.inv(root)
    mean = root @ _root(inverse_root @ wanted @ inverse_root) @ root
    inverse = torch.linalg.pinv(x_s)
    adjacency = inverse.mT @ mean @ inverse
    adjacency = (adjacency + adjacency.mT) / 2
    z = adjacency @ x_s
    synthetic = LeastSquares(z, z @ torch.linalg.solve(wanted, original.moment))
    return MatchingAdjacency(
        adjacency,
        synthetic,
        gram_error=float((synthetic.gram - wanted).norm() / wanted.norm()),
        moment_error=float((synthetic.moment - original.moment).norm() / original.moment.norm()),
    )


def _root(matrix: Tensor) -> Tensor:
    """The square root of a symmetric positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.mT
    return root


def nonnegative_gap(gram: Tensor) -> float:
    """How far every non-negative A' stays from matching if X' >= 0: ||min(Z^T Z, 0)||.

    Filters such as GCN, SGC and GIN-0 turn A' >= 0 into C(A') >= 0, so (C' X')^T C' X' >= 0 entry by entry.
    If Z^T Z has a negative entry, it cannot be matched. This refutes Proposition sdc-overfit as printed.

    Args:
        gram: Z^T Z of the original ``[d, d]``.
    """
    return float(gram.clamp_max(0).norm())
