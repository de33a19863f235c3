"""Transfer of a copy from the filter that made it to another one (Proposition sdc-gnns).

The copy has no edges, so every filter leaves its features as they are, and training any GNN on it gives
W^S = Z_C^+ y, the optimum of the filter C that made the copy. The other filter's optimum is W^T = Z_C'^+ y.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hcdc.core.errors import InputError
from hcdc.core.seeds import stream
from hcdc.datasets import normalise_dense
from hcdc.theory._matching import LeastSquares, smallest_singular


@dataclass(frozen=True)
class FilterTransfer:
    """The two sides of the printed claim: ``error >= printed``.

    Attributes:
        error: ||W^S - W^T|| / ||W^T||.
        printed: max(sigma_max(Q) - 1, 1 - sigma_min(Q)).
    """

    error: float
    printed: float


@dataclass(frozen=True, eq=False)
class TransferSupremum:
    """A supremum of the relative error over a set of labels, with labels that attain it.

    Attributes:
        supremum: sigma_max(R - I) of the error map R, W^S = R W^T.
        lower: max(sigma_max(R) - 1, 1 - sigma_min(R)), at most the supremum.
        labels: y ``[n]`` that attains the supremum.
    """

    supremum: float
    lower: float
    labels: Tensor


def gin0(adj: Tensor) -> Tensor:
    """A + I ``[n, n]``, the filter of GIN-0 (the filter of GCN is `hcdc.datasets.normalise_dense`)."""
    return adj + torch.eye(len(adj), dtype=adj.dtype)


def relative_error(original: LeastSquares, synthetic: LeastSquares) -> float:
    """||W^S - W^T|| / ||W^T||."""
    w_t = original.optimum()
    return float((synthetic.optimum() - w_t).norm() / w_t.norm())


def filter_transfer(x: Tensor, made_with: Tensor, used_with: Tensor, y: Tensor) -> FilterTransfer:
    """Proposition sdc-gnns as printed, for one set of labels; it does not hold (`printed_violations`).

    Q = (Z_C^T Z_C) (Z_C'^T Z_C')^-1. The proof puts Z_C^T y in place of Z_C'^T y, inverts Q, and takes the
    largest stretch of a matrix for its stretch of one vector.

    Args:
        x: X ``[n, d]``.
        made_with, used_with: C(A) and C'(A), ``[n, n]``.
        y: Labels ``[n]``.
    """
    made, used = LeastSquares(made_with @ x, y), LeastSquares(used_with @ x, y)
    q = torch.linalg.solve(used.gram, made.gram).mT
    return FilterTransfer(relative_error(used, made), _stretch(q))


def realisable_supremum(x: Tensor, made_with: Tensor, used_with: Tensor) -> TransferSupremum:
    """What is true: the largest error over labels that the new filter can fit, y = Z_C' W.

    Then W^T = W and W^S = R W with R = Z_C^+ Z_C', so the supremum is sigma_max(R - I), attained by the top
    right singular vector. Over *all* y the supremum is infinite as soon as Z_C and Z_C' have different column
    spaces: take y orthogonal to Z_C' only.

    Args:
        x: X ``[n, d]``.
        made_with, used_with: C(A) and C'(A), ``[n, n]``.
    """
    used = used_with @ x
    r = torch.linalg.lstsq(made_with @ x, used).solution
    supremum, w = _largest(r)
    return TransferSupremum(supremum, _stretch(r), used @ w)


def shared_moment_supremum(x: Tensor, made_with: Tensor, used_with: Tensor) -> TransferSupremum:
    """The printed form, repaired: labels with Z_C^T y = Z_C'^T y, as the printed proof assumes in silence.

    Then R = (Z_C^T Z_C)^-1 (Z_C'^T Z_C'), which is the transposed inverse of the printed Q, and the bound
    holds for the worst such y, not for each.

    Args:
        x: X ``[n, d]`` with n >= 2 d.
        made_with, used_with: C(A) and C'(A), ``[n, n]``; [Z_C, Z_C'] of full column rank 2 d.
    """
    made, used = made_with @ x, used_with @ x
    both = torch.cat([made, used], 1)
    if smallest_singular(both) == 0:
        raise InputError("x: the two filtered feature matrices must have 2 d independent columns together")
    gram = used.mT @ used
    r = torch.linalg.solve(made.mT @ made, gram)
    supremum, w = _largest(r)
    wanted = (gram @ w).repeat(2)
    return TransferSupremum(supremum, _stretch(r), torch.linalg.pinv(both.mT) @ wanted)


def _largest(r: Tensor) -> tuple[float, Tensor]:
    """sigma_max(R - I) and its right singular vector."""
    _, values, rows = torch.linalg.svd(r - torch.eye(len(r), dtype=r.dtype))
    return float(values[0]), rows[0]


def _stretch(matrix: Tensor) -> float:
    """max(sigma_max - 1, 1 - sigma_min)."""
    values = torch.linalg.svdvals(matrix)
    return float(torch.maximum(values[0] - 1, 1 - values[-1]))


@dataclass(frozen=True)
class Violations:
    """The printed bound on random graphs.

    Attributes:
        graphs: Graphs tried.
        violated: Graphs on which the error was below the printed bound.
        largest_error: Largest relative error seen.
        smallest_bound: Smallest printed bound seen.
    """

    graphs: int
    violated: int
    largest_error: float
    smallest_bound: float


def printed_violations(graphs: int = 500, nodes: int = 12, features: int = 3, seed: int = 0) -> Violations:
    """How often GIN-0 -> GCN violates the printed bound on random graphs, features and labels.

    Args:
        graphs: Random graphs; each pair of nodes has an edge with probability .3.
        nodes: n.
        features: d, normal; labels are normal too.
        seed: Seeds the draws.
    """
    found = []
    for number in range(graphs):
        generator = stream(seed, "theory-graph", number)
        edges = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64) < 0.3
        upper = edges.triu(1).double()
        adj = upper + upper.mT
        x = torch.randn(nodes, features, generator=generator, dtype=torch.float64)
        y = torch.randn(nodes, generator=generator, dtype=torch.float64)
        found.append(filter_transfer(x, gin0(adj), normalise_dense(adj), y))
    return Violations(
        graphs,
        violated=sum(one.error < one.printed for one in found),
        largest_error=max(one.error for one in found),
        smallest_bound=min(one.printed for one in found),
    )
