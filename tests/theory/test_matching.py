"""Lemma sdc-valid: gradients that match on an affinely spanning trajectory give the original optimum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from theory_cases import SEEDS, Draw
from torch.func import grad

from hcdc.core.errors import InputError
from hcdc.theory import LeastSquares, match_on_span, matched_copy, matching_validity

SIZES = st.integers(1, 5)


@given(SEEDS, SIZES)
def test_gradients_and_optimum_are_those_of_the_loss(seed, d):
    draw = Draw(seed)
    one, w = draw.regression(d + 6, d), draw(3, d)
    by_autograd = torch.stack([grad(one.loss)(row) for row in w])
    torch.testing.assert_close(one.gradients(w), by_autograd, rtol=1e-9, atol=1e-9)
    assert float(grad(one.loss)(one.optimum()).norm()) < 1e-8


@given(SEEDS, SIZES, st.integers(0, 3))
def test_a_copy_that_matches_on_an_affine_span_has_the_original_optimum(seed, d, more):
    draw = Draw(seed)
    original, trajectory = draw.regression(d + 8, d), draw(d + 1, d)
    found = matching_validity(original, matched_copy(original, d + more, seed), trajectory)
    assume(found.affine_span > 1e-3)
    assert found.mismatch < 1e-9
    assert found.distance < 1e-8
    assert abs(found.excess) < 1e-8


@given(SEEDS, SIZES, st.floats(1e-6, 1.0))
def test_the_distance_is_bounded_by_the_mismatch(seed, d, size):
    draw = Draw(seed)
    original, trajectory = draw.regression(d + 8, d), draw(d + 3, d)
    exactly = matched_copy(original, d + 4, seed)
    synthetic = LeastSquares(exactly.z + size * draw(d + 4, d), exactly.y + size * draw(d + 4))
    found = matching_validity(original, synthetic, trajectory)
    assert 0 < found.distance <= found.bound * (1 + 1e-9)
    w_t, w_s = original.optimum(), synthetic.optimum()
    assert found.excess == pytest.approx(float((original.z @ (w_s - w_t)).square().sum()), rel=1e-6, abs=1e-9)


def test_the_bound_is_not_loose_by_orders_of_magnitude():
    """In one dimension with two far points and a small error, both sides nearly agree."""
    original = LeastSquares(torch.tensor([[1.0]]).double(), torch.tensor([0.0]).double())
    synthetic = LeastSquares(torch.tensor([[1.0]]).double(), torch.tensor([0.01]).double())
    found = matching_validity(original, synthetic, torch.tensor([[-1.0], [1.0]]).double())
    assert found.distance == pytest.approx(0.01)
    assert found.bound == pytest.approx(0.01, rel=1e-3)


@given(SEEDS, SIZES, st.floats(0.1, 10.0))
def test_a_linear_span_is_not_enough(seed, d, strength):
    """The premise as printed: d points span R^d, gradients match on them, and the optimum is another one."""
    draw = Draw(seed)
    original, trajectory = draw.regression(d + 8, d), draw(d, d)
    q = torch.linalg.solve(trajectory, torch.ones(d, dtype=torch.float64))
    assume(torch.linalg.cond(trajectory) < 1e3)
    assume(abs(float(q @ original.optimum()) - 1) > 1e-2)
    synthetic = match_on_span(original, trajectory, d + 2, strength)
    found = matching_validity(original, synthetic, trajectory)
    assert found.linear_span > 1e-4
    assert found.mismatch < 1e-8
    assert found.affine_span == 0
    assert found.bound == float("inf")
    assert found.distance > 1e-8
    assert found.excess > 0
    # one further point off the plane tells them apart
    more = torch.cat([trajectory, torch.zeros(1, d, dtype=torch.float64)])
    assert matching_validity(original, synthetic, more).mismatch > 1e-3


def test_a_copy_needs_as_many_rows_as_features():
    with pytest.raises(InputError, match="at least 4 rows"):
        matched_copy(Draw(0).regression(9, 4), 3)
