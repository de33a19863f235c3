"""Counts behind the complexity appendix: exactly linear, constant, and equal results of the two forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hcdc.hypergrad import (
    batched_best_response,
    conjugate_gradient,
    exact,
    neumann,
    response_alignment_gradient,
)
from hcdc.theory import Meter, complexity_counts, counting, jacobian_gradient
from hcdc.theory._complexity import instance


@pytest.fixture(scope="module")
def panels():
    return {panel.title: panel for panel in complexity_counts()}


def lines(panels, start):
    (found,) = [panel for title, panel in panels.items() if title.startswith(start)]
    return np.array(found.x), [np.array(values) for values in found.lines.values()]


def is_line(x, values):
    return np.ptp(np.diff(values) / np.diff(x)) == 0


def test_the_meter_counts_numbers_and_live_bytes():
    a = torch.ones(100, dtype=torch.float64)
    with Meter() as meter:
        b = a + 1  # 100 read, 100 written
        c = b.view(10, 10).sum()  # a view is free; 100 read, 1 written
    assert meter.work == 301
    assert meter.peak == 808
    with Meter() as meter:
        for _ in range(5):
            c = a * 2
            del c
        c = a * 2
    assert meter.peak == 800
    assert float(c[0]) == 2
    assert b.sum() == 200


def test_products_are_counted():
    matrix = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    rhs = {"w": torch.ones(3)}
    for solver, expected in ((neumann(7, 0.1), 7), (neumann(7), 17), (conjugate_gradient(4), 4)):
        wrapped, count = counting(solver)
        found = wrapped(lambda v: {"w": matrix @ v["w"]}, rhs)
        assert count[0] == expected
        torch.testing.assert_close(found.x, solver(lambda v: {"w": matrix @ v["w"]}, rhs).x)


def test_time_is_exactly_linear_in_p_and_quadratic_for_pairs(panels):
    p, (pairs, trajectories) = lines(panels, "Time is linear in p")
    assert is_line(p, trajectories)
    assert is_line(p * (p - 1) / 2, pairs)
    assert pairs[-1] > 4 * trajectories[-1]


def test_time_is_exactly_linear_in_the_parameters_and_in_the_hyperparameters(panels):
    x, both = lines(panels, "Time is linear in P + H")
    assert all(is_line(x, values) for values in both)
    assert all(values[-1] > values[0] for values in both)


def test_memory_does_not_grow_with_the_neumann_terms(panels):
    terms, (recorded, series) = lines(panels, "Memory is constant")
    assert len(set(series.tolist())) == 1
    assert is_line(terms, recorded)
    assert recorded[-1] > 3 * recorded[0]


def test_the_adjoint_form_saves_a_factor_that_grows_with_h(panels):
    h, (rows, adjoint) = lines(panels, "Memory of an S_val step")
    assert (rows >= h * 2048 * 8).all()  # the H x B numbers of the Jacobian
    assert adjoint[-1] < 1.01 * adjoint[0]
    h, (rows, adjoint) = lines(panels, "Time of an S_val step")
    steps = np.diff(rows) / np.diff(h)
    assert np.ptp(steps) < 0.01 * steps.mean()  # O(H B)
    assert steps.min() > 2048
    assert (np.diff(adjoint) / np.diff(h)).max() < 2048
    assert rows[-1] / adjoint[-1] > 5


def test_the_adjoint_form_takes_two_solves_whatever_h(panels):
    h, (response, adjoint) = lines(panels, "Curvature products")
    np.testing.assert_array_equal(response, 5 * h)
    assert set(adjoint.tolist()) == {10}


def test_both_forms_give_the_same_gradient():
    task, params, lam, train, val = instance(6, 4, 1)
    response = batched_best_response(task, params, lam, train, exact())
    g_t = torch.linspace(-1, 1, 4, dtype=torch.float64)[None]
    loss, adjoint = response_alignment_gradient(task, params, lam, response, g_t, val)
    one, single = ({name: tensor[0] for name, tensor in each.items()} for each in (params, response))
    dense_loss, dense = jacobian_gradient(task, one, lam[0], single, g_t[0], val)
    torch.testing.assert_close(dense_loss, loss)
    torch.testing.assert_close(dense, adjoint, rtol=1e-9, atol=1e-12)
    assert float(adjoint["x"].norm()) > 1e-3
