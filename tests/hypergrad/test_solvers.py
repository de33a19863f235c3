"""Solvers on matrices whose answer is known, and their behaviour where there is none."""

from __future__ import annotations

import pytest
import torch
from hypergrad_cases import F64, flatten, unflatten
from torch.func import vmap

from hcdc.core.errors import InputError
from hcdc.hypergrad import (
    REASONS,
    SOLVERS,
    conjugate_gradient,
    exact,
    full_precision,
    get_solver,
    identity,
    neumann,
)
from hcdc.hypergrad._solvers import top_eigenvalue

LIKE = {"a": torch.zeros(2, 3, dtype=F64), "b": torch.zeros(2, dtype=F64)}
N = 8


def matrix_with(eigenvalues, seed=0, dtype=F64):
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=F64))
    return ((basis * torch.tensor(eigenvalues, dtype=F64)) @ basis.T).to(dtype)


def vector(seed=1, dtype=F64):
    return torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def product(matrix):
    return lambda v: unflatten(matrix @ flatten(v), LIKE)


def solve(solver, matrix, b):
    return solver(product(matrix), unflatten(b, LIKE))


POSITIVE = [0.5, 0.8, 1, 1.3, 2, 2.5, 3, 4]
INDEFINITE = [-1, 0.8, 1, 1.3, 2, 2.5, 3, 4]


@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [(neumann(400), 1e-10), (conjugate_gradient(20, tolerance=1e-12), 1e-10), (exact(), 1e-12)],
    ids=["neumann", "cg", "exact"],
)
def test_solves_a_positive_definite_system(solver, tolerance):
    matrix, b = matrix_with(POSITIVE), vector()
    result = solve(solver, matrix, b)
    torch.testing.assert_close(
        flatten(result.x), torch.linalg.solve(matrix, b), rtol=tolerance, atol=tolerance
    )
    assert result.stopped == 0
    assert 2 < result.top_eigenvalue <= 4 * (1 + 1e-12)
    assert REASONS[int(result.stopped)] == "converged"


@pytest.mark.parametrize("make", [neumann, conjugate_gradient, exact])
def test_damping_is_added_to_the_diagonal(make):
    matrix, b = matrix_with(POSITIVE), vector()
    settings = {} if make is exact else {"tolerance": 1e-12}
    settings |= {"terms": 400} if make is neumann else {}
    result = solve(make(damping=0.7, **settings), matrix, b)
    dense = torch.linalg.solve(matrix + 0.7 * torch.eye(N, dtype=F64), b)
    torch.testing.assert_close(flatten(result.x), dense, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("terms", [1, 2, 5, 20])
def test_neumann_is_the_partial_sum_and_its_residual_is_exact(terms):
    matrix, b, alpha = matrix_with(POSITIVE), vector(), 0.3
    result = solve(neumann(terms, alpha=alpha), matrix, b)
    step = torch.eye(N, dtype=F64) - alpha * matrix
    expected = alpha * sum(torch.linalg.matrix_power(step, j) @ b for j in range(terms))
    torch.testing.assert_close(flatten(result.x), expected, rtol=1e-12, atol=1e-12)
    residual = (b - matrix @ flatten(result.x)).norm() / b.norm()
    assert result.residual == pytest.approx(residual.item(), rel=1e-9)
    assert result.iterations == terms
    assert result.stopped == 1
    assert result.top_eigenvalue.isnan()


@pytest.mark.parametrize("eigenvalues", [POSITIVE, INDEFINITE, [-6, *INDEFINITE[1:]]])
def test_power_iteration_finds_the_largest_modulus_from_below(eigenvalues):
    found = top_eigenvalue(product(matrix_with(eigenvalues)), LIKE, 30)
    largest = max(abs(e) for e in eigenvalues)
    assert 0.97 * largest < found <= largest * (1 + 1e-12)


def test_neumann_diverging_is_frozen_at_its_best_partial_sum():
    matrix, b = matrix_with(INDEFINITE), vector()
    result = solve(neumann(200), matrix, b)
    assert result.stopped == 3
    assert 1 <= result.iterations < 200
    # no partial sum has a smaller residual than the one that was kept
    alpha = 1 / top_eigenvalue(product(matrix), LIKE, 10)
    x, sums = torch.zeros(N, dtype=F64), []
    for _ in range(200):
        x = x + alpha * (b - matrix @ x)
        sums.append((b - matrix @ x).norm())
    assert result.iterations - 1 == torch.stack(sums).argmin()
    assert result.residual == pytest.approx((torch.stack(sums).min() / b.norm()).item(), rel=1e-9)


def test_neumann_with_too_large_a_scale_keeps_the_first_term_and_says_so():
    matrix, b = matrix_with(POSITIVE), vector()
    result = solve(neumann(50, alpha=3.0), matrix, b)
    assert result.stopped == 3
    torch.testing.assert_close(flatten(result.x), 3.0 * b)


def test_conjugate_gradients_stop_at_negative_curvature():
    matrix, b = matrix_with(INDEFINITE), vector(2)
    result = solve(conjugate_gradient(50, tolerance=1e-12), matrix, b)
    assert result.stopped == 2
    assert torch.isfinite(flatten(result.x)).all()
    # the iterate that was kept is that of so many plain iterations, all of positive curvature
    x, r = torch.zeros(N, dtype=F64), b.clone()
    p = r.clone()
    for _ in range(int(result.iterations)):
        curvature = p @ matrix @ p
        assert curvature > 0
        step = (r @ r) / curvature
        x, new = x + step * p, r - step * (matrix @ p)
        p, r = new + (new @ new) / (r @ r) * p, new
    assert p @ matrix @ p <= 0
    torch.testing.assert_close(flatten(result.x), x)
    assert result.residual == pytest.approx((r.norm() / b.norm()).item(), rel=1e-9)


def test_negative_curvature_at_once_gives_zero():
    result = solve(conjugate_gradient(), -matrix_with(POSITIVE), vector())
    assert result.stopped == 2
    assert result.iterations == 0
    assert (flatten(result.x) == 0).all()


def test_exact_inverts_an_indefinite_matrix_and_flags_it():
    matrix, b = matrix_with(INDEFINITE), vector()
    result = solve(exact(), matrix, b)
    torch.testing.assert_close(flatten(result.x), torch.linalg.solve(matrix, b), rtol=1e-11, atol=1e-11)
    assert result.stopped == 2
    assert result.residual < 1e-13


def test_identity():
    matrix, b = matrix_with(POSITIVE), vector()
    result = solve(identity(0.25), matrix, b)
    torch.testing.assert_close(flatten(result.x), 0.25 * b)
    assert result.residual == pytest.approx(((b - 0.25 * matrix @ b).norm() / b.norm()).item())


@pytest.mark.parametrize("name", SOLVERS)
def test_zero_right_hand_side(name):
    result = solve(get_solver(name), matrix_with(POSITIVE), torch.zeros(N, dtype=F64))
    assert (flatten(result.x) == 0).all()
    assert result.stopped == 0
    assert result.residual == 0


def test_singular_consistent_system_has_no_blow_up_in_conjugate_gradients():
    """The right-hand side is consistent up to 1e-8: iterations end at the tolerance, before that shows.

    Without a tolerance they go on and diverge; the best iterate is returned.
    """
    for seed in range(40):
        matrix = matrix_with([0, 0, 0, 1, 1.5, 2, 3, 4], seed)
        b = matrix @ vector(seed) + 1e-8 * vector(seed + 100)
        exactly = torch.linalg.pinv(matrix, rtol=1e-10) @ b
        result = solve(conjugate_gradient(50), matrix, b)
        torch.testing.assert_close(flatten(result.x), exactly, rtol=0, atol=1e-6)
        assert result.stopped == 0
        assert result.iterations <= 6  # five different eigenvalues, and rounding
        result = solve(conjugate_gradient(50, tolerance=0.0), matrix, b)
        torch.testing.assert_close(flatten(result.x), exactly, rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", [neumann(30), conjugate_gradient(12), identity(0.3), exact()])
def test_lanes_of_a_batch_do_not_touch_each_other(solver):
    """Converging early, converging late, negative curvature, NaN: each lane as if it were alone."""
    spectra = [[2.0] * N, POSITIVE, INDEFINITE, [-e for e in POSITIVE]]
    matrices = torch.stack([matrix_with(e, seed) for seed, e in enumerate(spectra)])
    b = torch.stack([vector(seed) for seed in range(4)])
    batch = vmap(lambda m, v: solve(solver, m, v))(matrices, b)
    for lane in range(4):
        alone = solve(solver, matrices[lane], b[lane])
        for name, tensor in alone.x.items():
            torch.testing.assert_close(batch.x[name][lane], tensor, rtol=1e-10, atol=1e-12)
        assert batch.stopped[lane] == alone.stopped
        assert batch.iterations[lane] == alone.iterations
        torch.testing.assert_close(batch.residual[lane], alone.residual, rtol=1e-6, atol=1e-12)


def test_masked_lanes_of_conjugate_gradients_stop_at_different_iterations():
    matrices = torch.stack([matrix_with([2.0] * N), matrix_with(POSITIVE), matrix_with(INDEFINITE)])
    b = torch.stack([vector(0), vector(1), vector(2)])
    result = vmap(lambda m, v: solve(conjugate_gradient(30, tolerance=1e-10), m, v))(matrices, b)
    assert result.stopped.tolist() == [0, 0, 2]
    assert result.iterations[0] == 1
    assert result.iterations[1] == N


@pytest.mark.parametrize("solver", [neumann(10), conjugate_gradient(10)])
def test_a_lane_of_nan_stays_alone(solver):
    matrices = torch.stack([matrix_with(POSITIVE), torch.full((N, N), torch.nan, dtype=F64)])
    result = vmap(lambda m, v: solve(solver, m, v))(matrices, torch.stack([vector(), vector()]))
    alone = solve(solver, matrices[0], vector())
    torch.testing.assert_close(result.x["a"][0], alone.x["a"])
    assert result.stopped[1] in (2, 3)
    assert torch.isfinite(result.x["a"][1]).all()


@pytest.mark.parametrize("solver", [neumann(60), conjugate_gradient(20)])
def test_float32(solver):
    matrix, b = matrix_with(POSITIVE), vector()
    result = solve(solver, matrix.float(), b.float())
    assert result.x["a"].dtype == torch.float32
    torch.testing.assert_close(
        flatten(result.x).double(), torch.linalg.solve(matrix, b), rtol=2e-3, atol=1e-4
    )


def test_full_precision_restores_what_was_set():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        with full_precision():
            assert not torch.backends.cuda.matmul.allow_tf32
            assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
        with pytest.raises(RuntimeError), full_precision():
            raise RuntimeError
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_solver("neuman"), "did you mean 'neumann'"),
        (lambda: get_solver("exact", terms=3), "does not take these settings"),
        (lambda: neumann(0), "terms 0: at least 1"),
        (lambda: neumann(alpha="best"), "alpha 'best'"),
        (lambda: neumann(alpha=-1.0), "alpha -1.0"),
        (lambda: conjugate_gradient(damping=-0.1), "damping -0.1"),
        (lambda: exact(damping=float("nan")), "damping nan"),
    ],
)
def test_bad_settings_are_sentences(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_exact_refuses_a_matrix_that_cannot_be_held():
    rhs = {"a": torch.zeros(20_001, dtype=F64)}
    with pytest.raises(InputError, match="at most 20000"):
        exact()(lambda v: v, rhs)
