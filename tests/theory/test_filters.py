"""Proposition sdc-gnns: the printed bound fails; the repaired one is a supremum, and attained."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from theory_cases import SEEDS, Draw

from hcdc.core.errors import InputError
from hcdc.datasets import normalise_dense
from hcdc.theory import (
    LeastSquares,
    filter_transfer,
    gin0,
    matched_copy,
    printed_violations,
    realisable_supremum,
    relative_error,
    shared_moment_supremum,
)

NODES, FEATURES = 12, 3


def draws(seed):
    draw = Draw(seed)
    adj = draw.graph(NODES)
    return draw, draw(NODES, FEATURES), gin0(adj), normalise_dense(adj)


def test_the_printed_bound_fails_on_every_random_graph():
    found = printed_violations(500)
    assert (found.graphs, found.violated) == (500, 500)
    assert found.largest_error < found.smallest_bound  # not even close
    assert printed_violations(5, seed=1) != printed_violations(5, seed=2)


@given(SEEDS)
def test_the_printed_sides_are_those_of_a_condensed_graph(seed):
    """Make a copy without edges with GIN-0, train GCN on it, and compare with GCN on the graph."""
    draw, x, gin, gcn = draws(seed)
    y = draw(NODES)
    copy = matched_copy(LeastSquares(gin @ x, y), 5)
    empty = torch.zeros(5, 5, dtype=torch.float64)
    torch.testing.assert_close(gin0(empty), normalise_dense(empty))
    trained = LeastSquares(normalise_dense(empty) @ copy.z, copy.y)
    found = filter_transfer(x, gin, gcn, y)
    assert found.error == pytest.approx(relative_error(LeastSquares(gcn @ x, y), trained), rel=1e-6)
    grams = [LeastSquares(c @ x, y).gram for c in (gin, gcn)]
    values = torch.linalg.svdvals(grams[0] @ torch.linalg.inv(grams[1]))
    assert found.printed == pytest.approx(float(max(values[0] - 1, 1 - values[-1])), rel=1e-6)


@given(SEEDS)
def test_the_same_filter_transfers_without_error(seed):
    draw, x, gin, _ = draws(seed)
    assert filter_transfer(x, gin, gin, draw(NODES)).error < 1e-9
    assert realisable_supremum(x, gin, gin).supremum < 1e-9


@given(SEEDS)
def test_the_supremum_over_realisable_labels_is_attained_and_never_passed(seed):
    draw, x, gin, gcn = draws(seed)
    found = realisable_supremum(x, gin, gcn)
    assert filter_transfer(x, gin, gcn, found.labels).error == pytest.approx(found.supremum, rel=1e-7)
    assert found.lower <= found.supremum * (1 + 1e-9)
    for w in draw(20, FEATURES):
        assert filter_transfer(x, gin, gcn, gcn @ x @ w).error <= found.supremum * (1 + 1e-7)


@given(SEEDS)
def test_the_supremum_over_labels_with_shared_moments(seed):
    """The printed proof's silent premise; Q appears inverted."""
    draw, x, gin, gcn = draws(seed)
    made, used = gin @ x, gcn @ x
    found = shared_moment_supremum(x, gin, gcn)
    torch.testing.assert_close(made.mT @ found.labels, used.mT @ found.labels, rtol=1e-6, atol=1e-7)
    assert filter_transfer(x, gin, gcn, found.labels).error == pytest.approx(found.supremum, rel=1e-5)
    assert found.lower <= found.supremum * (1 + 1e-9)
    both = torch.cat([made, used], 1)
    for w in draw(10, FEATURES):
        y = torch.linalg.pinv(both.mT) @ (used.mT @ used @ w).repeat(2)
        assert filter_transfer(x, gin, gcn, y).error <= found.supremum * (1 + 1e-5)
    q = (made.mT @ made) @ torch.linalg.inv(used.mT @ used)
    inverted = torch.linalg.svdvals(torch.linalg.inv(q))
    assert found.lower == pytest.approx(float(max(inverted[0] - 1, 1 - inverted[-1])), rel=1e-5)


@given(SEEDS)
def test_over_all_labels_the_error_has_no_bound(seed):
    """Labels orthogonal to the new filter's features have W^T = 0; near them the error explodes."""
    draw, x, gin, gcn = draws(seed)
    made, used = gin @ x, gcn @ x
    hidden = made[:, 0] - used @ torch.linalg.lstsq(used, made[:, :1]).solution[:, 0]
    base = used @ draw(FEATURES)
    errors = [filter_transfer(x, gin, gcn, hidden + size * base).error for size in (1e-6, 1e-8)]
    assert errors[1] == pytest.approx(100 * errors[0], rel=0.05)


def test_shared_moments_need_independent_columns():
    _, x, gin, _ = draws(0)
    with pytest.raises(InputError, match="independent columns"):
        shared_moment_supremum(x, gin, gin)
