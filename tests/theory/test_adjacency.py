"""Proposition sdc-overfit: any features are matched by some adjacency, for one filter only."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory_cases import SEEDS, Draw

from hcdc.core.errors import InputError
from hcdc.datasets import normalise_dense
from hcdc.theory import (
    LeastSquares,
    gin0,
    matching_adjacency,
    matching_validity,
    nonnegative_gap,
    relative_error,
)


@given(SEEDS, st.integers(1, 4), st.integers(0, 4))
def test_any_features_are_matched(seed, d, more):
    draw = Draw(seed)
    original, x_s = draw.regression(d + 8, d), draw(d + more, d)
    found = matching_adjacency(original, x_s)
    assert found.gram_error < 1e-7
    assert found.moment_error < 1e-7
    torch.testing.assert_close(found.adjacency, found.adjacency.mT)
    assert float(torch.linalg.eigvalsh(found.adjacency)[0]) > -1e-7 * float(found.adjacency.norm())
    torch.testing.assert_close(found.synthetic.z, found.adjacency @ x_s)
    assert matching_validity(original, found.synthetic, draw(d + 1, d)).distance < 1e-5


@given(SEEDS)
def test_the_match_does_not_carry_over_to_another_filter(seed):
    """Made for C(A) = A, used with C(A) = A + I: noise as features gives another optimum."""
    draw = Draw(seed)
    adj, x, y = gin0(draw.graph(12)), draw(12, 3), draw(12)
    found = matching_adjacency(LeastSquares(adj @ x, y), x_s := draw(5, 3))
    assert relative_error(LeastSquares(adj @ x, y), found.synthetic) < 1e-5
    other = LeastSquares(gin0(adj) @ x, y), LeastSquares(gin0(found.adjacency) @ x_s, found.synthetic.y)
    assert relative_error(*other) > 1e-3


@given(SEEDS, st.integers(2, 4), st.integers(0, 3))
def test_no_non_negative_adjacency_matches_a_negative_gram(seed, d, more):
    """The proposition as printed asks for A' >= 0."""
    draw = Draw(seed)
    original = draw.regression(d + 8, d)
    gap = nonnegative_gap(original.gram)
    x_s = draw(d + more, d).abs()
    for weights in draw(20, d + more, d + more).abs():
        adj = weights + weights.mT
        for filtered in (adj, gin0(adj), normalise_dense(adj)):
            z = filtered @ x_s
            assert float((z.mT @ z - original.gram).norm()) >= gap * (1 - 1e-12)
    signed = matching_adjacency(original, x_s).adjacency
    if gap > 1e-6:
        assert float(signed.min()) < 0


def test_the_gap_is_that_of_the_negative_entries():
    gram = torch.tensor([[2.0, -1.0], [-1.0, 3.0]])
    assert nonnegative_gap(gram) == pytest.approx(2**0.5)
    assert nonnegative_gap(gram.abs()) == 0


@given(SEEDS)
def test_the_normalised_filter_cannot_enlarge_features(seed):
    """The filter of GCN has norm 1, so small features match no large gram, whatever the signs."""
    draw = Draw(seed)
    adj, x_s = draw(5, 5).abs(), draw(5, 2)
    z = normalise_dense(adj + adj.mT) @ x_s
    slack = x_s.mT @ x_s - z.mT @ z
    assert float(torch.linalg.eigvalsh(slack)[0]) > -1e-10


def test_features_need_full_rank():
    with pytest.raises(InputError, match="full column rank"):
        matching_adjacency(Draw(0).regression(9, 2), torch.ones(4, 2, dtype=torch.float64))
