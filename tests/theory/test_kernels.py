"""Proposition sdc-1dcnns: from kernel size K to K' <= K, and not beyond."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from theory_cases import SEEDS, Draw

from hcdc.core.errors import InputError
from hcdc.theory import kernel_gradient, kernel_moments, kernel_transfer, match_on_span, silent_pair


def dense_gradient(x, y, alpha, w):
    """The formulas of the appendix, with P written down as a matrix."""
    n, order = len(y), len(alpha) // 2
    shift = torch.zeros(n, n, dtype=x.dtype)
    shift[torch.arange(n), (torch.arange(n) - 1) % n] = 1
    powers = [
        torch.linalg.matrix_power(shift if k >= 0 else shift.mT, abs(k)) for k in range(-order, order + 1)
    ]
    c = sum(a * p for a, p in zip(alpha, powers))
    rest = c @ x @ w - y
    return torch.cat([torch.stack([2 * (p @ x @ w) @ rest for p in powers]), 2 * x.mT @ c.mT @ rest])


@given(SEEDS, st.integers(0, 2), st.integers(1, 4))
def test_the_gradient_against_dense_shifts(seed, order, d):
    draw = Draw(seed)
    args = draw(7, d), draw(7), draw(2 * order + 1), draw(d)
    torch.testing.assert_close(kernel_gradient(*args), dense_gradient(*args), rtol=1e-10, atol=1e-10)


@given(SEEDS, st.integers(0, 3), st.data())
def test_a_smaller_kernel_is_matched_at_least_as_well_for_any_two_sets(seed, order, data):
    smaller = data.draw(st.integers(0, order))
    draw = Draw(seed)
    sets = (draw(9, 3), draw(9)), (draw(5, 3), draw(5))
    found = kernel_transfer(*sets, draw(2 * smaller + 1), draw(3), order)
    assert found.small <= found.large * (1 + 1e-12)
    assert found.small > 0


@given(SEEDS, st.integers(0, 3), st.integers(1, 4))
def test_a_matched_copy_matches_every_smaller_kernel_and_no_larger_one(seed, order, d):
    draw = Draw(seed)
    window = draw(5, d), draw(5)
    original, synthetic = silent_pair(*window, 5 + 4 * order + 2, order)
    assert len(synthetic[1]) < len(original[1])
    for smaller in range(order + 1):
        alpha, w = draw(2 * smaller + 1), draw(d)
        expected = kernel_gradient(*original, alpha, w)
        torch.testing.assert_close(kernel_gradient(*synthetic, alpha, w), expected, rtol=1e-9, atol=1e-9)
    alpha, w = draw(2 * order + 3), draw(d)
    difference = kernel_gradient(*synthetic, alpha, w) - kernel_gradient(*original, alpha, w)
    assert float(difference.norm()) > 1e-6


@given(SEEDS, st.integers(1, 4))
def test_a_spanning_trajectory_is_not_enough(seed, d):
    """K = K' = 0: matched on d + 1 points that span the space of [alpha, W], and nowhere else."""
    draw = Draw(seed)
    original, plane = draw.regression(d + 6, d), draw(d, d)
    assume(torch.linalg.cond(plane) < 1e3)
    q = torch.linalg.solve(plane, torch.ones(d, dtype=torch.float64))
    synthetic = match_on_span(original, plane, d + 1)
    ws = draw(d + 1, d)
    alphas = 1 / (ws @ q)[:, None]
    theta = torch.cat([alphas, ws], 1)
    assume(torch.linalg.svdvals(theta)[-1] > 1e-3)
    assume(float(alphas.abs().max()) < 1e3)

    def mismatch(alpha, w):
        pair = [kernel_gradient(one.z, one.y, alpha, w) for one in (original, synthetic)]
        return float((pair[0] - pair[1]).norm() / pair[0].norm())

    assert max(mismatch(a, w) for a, w in zip(alphas, ws)) < 1e-7
    assert mismatch(2 * alphas[0], ws[0]) > 1e-7


@pytest.mark.parametrize(("order", "d", "enough"), [(0, 4, True), (1, 4, True), (1, 5, False), (2, 6, False)])
def test_how_many_moments_a_spanning_trajectory_fixes(order, d, enough):
    draw, p = Draw(0), 2 * order + 1
    few = kernel_moments(draw(p + d, p), draw(p + d, d))
    assert few.unknowns == p * (d * (d + 1) // 2 + d)
    assert (few.rank == few.unknowns) is enough
    assert few.rank <= (p + d) * (p + d - 1)
    many = kernel_moments(draw(3 * (p + d), p), draw(3 * (p + d), d))
    assert many.rank == many.unknowns


def test_bad_sizes_are_sentences():
    draw = Draw(0)
    with pytest.raises(InputError, match="order 0: at least 1"):
        kernel_transfer((draw(5, 2), draw(5)), (draw(4, 2), draw(4)), draw(3), draw(2), 0)
    with pytest.raises(InputError, match="length 8: at least 11"):
        silent_pair(draw(5, 2), draw(5), 8, 1)
