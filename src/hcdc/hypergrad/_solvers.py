"""Solvers for A x = b that use A only through its products.

A solver is a function ``(matvec, rhs) -> Solution``; the factories here hold its settings. Every solver runs
a fixed number of iterations and freezes finished lanes by a mask, because data-dependent stopping does not
``vmap``. All diagnostics are tensors: scalars for one system, ``[B]`` under ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from hcdc.core.errors import InputError, unknown_name
from hcdc.hypergrad._vectors import MatVec, add, dot, flatten, norm, scaled, select, size, unflatten
from hcdc.networks import Params

CONVERGED, USED_UP, NEGATIVE_CURVATURE, DIVERGING = 0, 1, 2, 3
REASONS = {
    CONVERGED: "converged",
    USED_UP: "iterations used up",
    NEGATIVE_CURVATURE: "negative curvature",
    DIVERGING: "diverging",
}

ROWS = 64
"""Rows of a dense matrix made at once by `exact`, which bounds the memory."""


class Diagnostics(NamedTuple):
    """How a solve went.

    Attributes:
        residual: ||b - A x|| / ||b||, for the damped matrix if there is damping.
        iterations: Iterations that contributed to x, int64.
        stopped: Why the solver stopped, int64: 0 converged, 1 iterations used up, 2 negative curvature, 3
            diverging (see `REASONS`).
        top_eigenvalue: Largest eigenvalue modulus that the solver saw (a lower bound unless the solver is
            `exact`); NaN if not measured.
    """

    residual: Tensor
    iterations: Tensor
    stopped: Tensor
    top_eigenvalue: Tensor


class Solution(NamedTuple):
    """x with A x close to b, and how the solve went (see `Diagnostics`)."""

    x: Params
    residual: Tensor
    iterations: Tensor
    stopped: Tensor
    top_eigenvalue: Tensor

    @property
    def diagnostics(self) -> Diagnostics:
        return Diagnostics(self.residual, self.iterations, self.stopped, self.top_eigenvalue)


Solver = Callable[[MatVec, Params], Solution]


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch TF32 off (its 10-bit mantissa ruins a solve), and restore the old setting afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


def damped(matvec: MatVec, damping: float) -> MatVec:
    """v -> (A + damping I) v."""
    return matvec if damping == 0 else lambda v: add(matvec(v), v, damping)


def top_eigenvalue(matvec: MatVec, like: Params, iterations: int = 10) -> Tensor:
    """A lower bound on the largest eigenvalue modulus of a symmetric matrix; one product per iteration.

    It starts from a fixed low-discrepancy vector, neither random nor the right-hand side: a solve and its
    adjoint then find the same scale, and no ``vmap`` lane draws random numbers.
    """
    first = next(iter(like.values()))
    steps = torch.arange(1, size(like) + 1, dtype=torch.float64, device=first.device)
    start = torch.remainder(steps * 0.6180339887498949, 1.0) - 0.5
    v = unflatten((start / start.norm()).to(first.dtype), like)
    value = first.new_zeros(())
    for _ in range(iterations):
        v = matvec(v)
        value = norm(v)
        v = scaled(v, 1 / torch.where(value > 0, value, 1))
    return value


def neumann(
    terms: int = 20,
    alpha: float | str = "auto",
    damping: float = 0.0,
    power_iterations: int = 10,
    tolerance: float = 1e-6,
) -> Solver:
    """x = alpha sum_{j < terms} (I - alpha A)^j b, the Neumann series; memory does not grow with ``terms``.

    Equal to differentiating through ``terms`` gradient-descent steps of size alpha at the optimum. It
    converges if 0 < alpha * eigenvalue < 2 for every eigenvalue, so never with negative curvature. A lane
    whose terms begin to grow is therefore frozen at its best partial sum (at least one term) and flagged as
    diverging. The residual is exact and free: b - A x is the first omitted term.

    Args:
        terms: Number of terms, one product each.
        alpha: The scale, or ``"auto"``: 1 / top eigenvalue by power iteration.
        damping: Added to the diagonal.
        power_iterations: Products spent on ``alpha="auto"``.
        tolerance: Relative residual below which a lane counts as converged.
    """
    _at_least("terms", terms, 1)
    _at_least("power_iterations", power_iterations, 1)
    _at_least("damping", damping, 0)
    if isinstance(alpha, str):
        if alpha != "auto":
            raise InputError(f"alpha '{alpha}': a positive number or 'auto' is needed")
    elif not alpha > 0:
        raise InputError(f"alpha {alpha}: a positive number or 'auto' is needed")

    def solve(matvec: MatVec, rhs: Params) -> Solution:
        product = damped(matvec, damping)
        like = next(iter(rhs.values()))
        top = torch.full_like(dot(rhs, rhs), torch.nan)
        scale: Tensor | float
        if isinstance(alpha, str):
            top = top_eigenvalue(product, rhs, power_iterations)
            scale = 1 / torch.where(top > 0, top, 1)
        else:
            scale = alpha
        slack = 1 + torch.finfo(like.dtype).eps ** 0.5
        total = _safe(norm(rhs))
        term, length = rhs, norm(rhs)
        x = {name: torch.zeros_like(tensor) for name, tensor in rhs.items()}
        active = torch.ones_like(length, dtype=torch.bool)
        count = torch.zeros_like(length, dtype=torch.int64)
        for j in range(terms):
            following = add(term, product(term), -scale)
            next_length = norm(following)
            shrinks = next_length <= length * slack
            if j:
                active = active & shrinks
            x = select(active, add(x, term, scale), x)
            count = count + active
            length = torch.where(active, next_length, length)
            term = select(active, following, term)
            if not j:
                active = active & shrinks
        residual = length / total
        stopped = torch.where(residual <= tolerance, CONVERGED, torch.where(active, USED_UP, DIVERGING))
        return Solution(x, residual, count, stopped, top)

    return solve


def conjugate_gradient(iterations: int = 20, damping: float = 0.0, tolerance: float = 1e-6) -> Solver:
    """Conjugate gradients, for positive definite matrices; a lane with p^T A p <= 0 stops and is flagged.

    With a tolerance below 1e-6, iterations may go on beyond what rounding allows, and diverge on a singular
    matrix. A lane that had come below 1e-6 and left again returns its best iterate.

    Args:
        iterations: Most iterations, one product each; finished lanes wait.
        damping: Added to the diagonal.
        tolerance: Relative residual at which a lane is finished.
    """
    _at_least("iterations", iterations, 1)
    _at_least("damping", damping, 0)
    _at_least("tolerance", tolerance, 0)

    def solve(matvec: MatVec, rhs: Params) -> Solution:
        product = damped(matvec, damping)
        eps = torch.finfo(next(iter(rhs.values())).dtype).eps
        x = {name: torch.zeros_like(tensor) for name, tensor in rhs.items()}
        r = p = rhs
        kept = x
        start = rr = least = dot(rhs, rhs)
        top = torch.zeros_like(rr)
        active = rr > 0
        count = torch.zeros_like(rr, dtype=torch.int64)
        stopped = torch.where(active, USED_UP, CONVERGED)
        for _ in range(iterations):
            ap = product(p)
            curvature, pp = dot(p, ap), dot(p, p)
            top = torch.where(active, torch.fmax(top, curvature / _safe(pp)), top)
            positive = curvature > eps * top * pp
            stopped = torch.where(active & ~positive, NEGATIVE_CURVATURE, stopped)
            active = active & positive
            step = rr / torch.where(active, curvature, 1)
            x = select(active, add(x, p, step), x)
            r = select(active, add(r, ap, -step), r)
            new = dot(r, r)
            better = active & (new < least)
            kept, least = select(better, x, kept), torch.where(better, new, least)
            count = count + active
            finished = active & (new <= tolerance**2 * start)
            stopped = torch.where(finished, CONVERGED, stopped)
            active = active & ~finished
            p = select(active, add(r, p, new / _safe(rr)), p)
            rr = new
        diverged = (rr > 4 * least) & (least < 1e-12 * start)  # squares
        x, rr = select(diverged, kept, x), torch.where(diverged, least, rr)
        return Solution(x, rr.sqrt() / _safe(start.sqrt()), count, stopped, top)

    return solve


def identity(scale: float = 1.0) -> Solver:
    """x = scale * b: a multiple of the identity replaces the inverse; one product, only for the residual.

    Args:
        scale: The multiple.
    """

    def solve(matvec: MatVec, rhs: Params) -> Solution:
        x = scaled(rhs, scale)
        length = norm(rhs)
        residual = norm(add(rhs, matvec(x), -1.0)) / _safe(length)
        stopped = torch.where(residual <= 1e-6, CONVERGED, USED_UP)
        count = torch.zeros_like(length, dtype=torch.int64)
        return Solution(x, residual, count, stopped, torch.full_like(length, torch.nan))

    return solve


def exact(damping: float = 0.0) -> Solver:
    """Solves with the dense matrix (P products) and its eigenvalues: for small problems and tests.

    An indefinite matrix is still inverted, and flagged (2). Refuses more than 20,000 parameters.

    Args:
        damping: Added to the diagonal.
    """
    _at_least("damping", damping, 0)

    def solve(matvec: MatVec, rhs: Params) -> Solution:
        b = flatten(rhs)
        if len(b) > 20_000:
            raise InputError(
                f"the exact solver makes a {len(b)} x {len(b)} matrix; at most 20000 parameters are allowed"
            )
        product = damped(matvec, damping)
        basis = torch.eye(len(b), dtype=b.dtype, device=b.device)
        matrix = vmap(lambda row: flatten(product(unflatten(row, rhs))), chunk_size=ROWS)(basis)
        values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
        x = vectors @ ((vectors.mT @ b) / values)
        residual = torch.linalg.vector_norm(b - matrix @ x) / _safe(torch.linalg.vector_norm(b))
        stopped = torch.where(values.amin() > 0, CONVERGED, NEGATIVE_CURVATURE)
        count = torch.full_like(stopped, len(b))
        return Solution(unflatten(x, rhs), residual, count, stopped, values.abs().amax())

    return solve


SOLVERS: dict[str, Callable[..., Solver]] = {
    "neumann": neumann,
    "conjugate_gradient": conjugate_gradient,
    "identity": identity,
    "exact": exact,
}


def get_solver(name: str, **settings: Any) -> Solver:
    """The solver of that name with its settings, see `SOLVERS`."""
    if name not in SOLVERS:
        raise unknown_name("solver", name, SOLVERS)
    try:
        return SOLVERS[name](**settings)
    except TypeError as error:
        raise InputError(f"solver '{name}' does not take these settings: {error}") from error


def _safe(value: Tensor) -> Tensor:
    """The value as a divisor: 1 where it is 0."""
    return torch.where(value > 0, value, 1)


def _at_least(what: str, value: float, least: float) -> None:
    if not value >= least:
        raise InputError(f"{what} {value}: at least {least} is needed")
