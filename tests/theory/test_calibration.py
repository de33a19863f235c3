"""Theorem equi-hga-hc: what alignment implies, what implies calibration, and the printed claim's failure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from theory_cases import SEEDS, Draw
from torch.func import grad

from hcdc.core.errors import InputError
from hcdc.hypergrad import cosine, scaled_l2
from hcdc.theory import discordant_pairs, opposite_order, path_order, scale_bound, violating_path

SLOPES = st.floats(0.1, 5.0)


def waves(draw, dimension=2):
    """A smooth loss with hills and valleys."""
    a, b, c = draw(4, dimension), draw(4), draw(dimension)
    return lambda lam: (torch.sin(a @ lam) * b).sum() + 0.1 * (lam - c).square().sum()


def descent(loss, lam, steps=40, lr=0.01):
    """Points along which the loss falls: gradient descent with small steps."""
    points = [lam]
    for _ in range(steps):
        points.append(points[-1] - lr * grad(loss)(points[-1]))
    return torch.stack(points)


def test_the_printed_claim_has_a_counter_example():
    found = opposite_order()
    loss_t, loss_s = np.array(found.loss_t), np.array(found.loss_s)
    assert (np.diff(loss_t) * np.diff(loss_s) > 0).all()  # aligned on all four intervals
    first, second = found.pair
    assert loss_t[first] > loss_t[second]
    assert loss_s[first] < loss_s[second]
    assert discordant_pairs(torch.tensor(loss_t), torch.tensor(loss_s)) > 0


def test_the_cosine_cannot_see_it_and_one_scale_can():
    found = opposite_order()
    slopes = [np.diff(loss) for loss in (found.loss_t, found.loss_s)]
    g_t, g_s = (torch.tensor(np.stack([s, 0 * s], 1)) for s in slopes)
    assert float(cosine(g_t, g_s)) == pytest.approx(0, abs=1e-12)
    assert float(scaled_l2(g_t, g_s)) > 0.2


@given(st.lists(st.tuples(SLOPES, SLOPES, st.sampled_from([-1, 1])), min_size=2, max_size=8))
def test_aligned_slopes_keep_the_order_wherever_the_original_is_monotone(pieces):
    """One dimension, any positive ratio of slopes."""
    signs = np.array([sign for _, _, sign in pieces])
    loss_t, loss_s = (np.cumsum([0, *(signs * [piece[k] for piece in pieces])]) for k in (0, 1))
    for start in range(len(pieces)):
        for end in range(start + 1, len(pieces) + 1):
            if len(set(signs[start:end])) == 1:
                part = slice(start, end + 1)
                assert discordant_pairs(torch.tensor(loss_t[part]), torch.tensor(loss_s[part])) == 0


@settings(max_examples=15)
@given(SEEDS)
def test_aligned_losses_agree_along_monotone_paths(seed):
    """Two valleys with a scale each: aligned everywhere, in order along descents, not across the ridge."""
    draw = Draw(seed)
    depth, ratio = draw(2).abs() + 0.5, draw(2).abs() + 0.2

    def loss(scales):
        def of(lam):
            side = (lam[0] > 0).double()
            scale = scales[0] * (1 - side) + scales[1] * side
            return scale * ((lam[0].square() - 1).square() - 1) + 0 * lam[1]

        return of

    loss_t, loss_s = loss(depth), loss(depth * ratio)
    start = torch.cat([0.3 * torch.tanh(draw(1)) + 0.5, draw(1)])
    for one in (start, start * torch.tensor([-1.0, 1.0])):
        found = path_order(loss_t, loss_s, descent(loss_t, one))
        assert found.monotone
        assert found.discordant == 0
        assert found.cosine == pytest.approx(1)
    ends = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    values = [torch.stack([f(end) for end in ends]) for f in (loss_t, loss_s)]
    opposite = (depth[0] - depth[1]) * (depth * ratio)[0].sub((depth * ratio)[1]) < 0
    assert discordant_pairs(*values) == int(opposite)


@given(SEEDS)
def test_any_increasing_function_of_the_original_is_aligned_and_calibrated(seed):
    draw = Draw(seed)
    loss_t = waves(draw)
    found = path_order(loss_t, lambda lam: torch.exp(0.5 * loss_t(lam)), draw(30, 2))
    assert found.cosine == pytest.approx(1)
    assert found.discordant == 0


@given(SEEDS)
def test_where_gradients_are_not_aligned_a_monotone_path_is_ordered_differently(seed):
    draw = Draw(seed)
    loss_t, loss_s, lam = waves(draw), waves(draw), draw(2)
    slopes = grad(loss_t)(lam), grad(loss_s)(lam)
    angle = torch.nn.functional.cosine_similarity(*slopes, dim=0)
    assume(float(angle) < 0.9)
    assume(min(float(g.norm()) for g in slopes) > 0.1)
    ends = violating_path(loss_t, loss_s, lam, 1e-4)
    path = ends[0] + torch.linspace(0, 1, 5, dtype=torch.float64)[:, None] * (ends[1] - ends[0])
    found = path_order(loss_t, loss_s, path)
    assert found.monotone
    assert found.discordant == 10  # every pair
    assert loss_t(ends[1]) > loss_t(ends[0])


def test_where_a_gradient_vanishes_there_is_no_direction():
    with pytest.raises(InputError, match="a gradient vanishes"):
        violating_path(lambda l: l.square().sum(), lambda l: l.sum(), torch.zeros(2), 0.1)


def test_aligned_gradients_have_no_violating_path():
    with pytest.raises(InputError, match="aligned"):
        violating_path(lambda l: l.sum(), lambda l: 2 * l.sum(), torch.zeros(2), 0.1)


@given(SEEDS, st.floats(0.1, 10.0), st.floats(-3, 3))
def test_one_scale_for_all_gradients_gives_calibration(seed, a, b):
    draw = Draw(seed)
    loss_t = waves(draw)

    def loss_s(lam):
        return a * loss_t(lam) + b

    points = draw(12, 2)
    found = scale_bound(loss_t, loss_s, points)
    assert found.scale == pytest.approx(a)
    assert found.bound < 1e-9 * a
    assert found.deviation < 1e-9 * max(a, 1)
    assert path_order(loss_t, loss_s, points).discordant == 0


@given(SEEDS, st.floats(0.01, 1.0))
def test_the_drift_is_bounded_by_the_misalignment_along_the_path(seed, size):
    draw = Draw(seed)
    loss_t, other = waves(draw), waves(draw)

    def loss_s(lam):
        return 2 * loss_t(lam) + size * other(lam)

    path = 0.5 * draw(4, 2).cumsum(0)
    found = scale_bound(loss_t, loss_s, path)
    assert found.bound > 0
    assert found.deviation <= found.bound + 1e-9
    if found.scale * found.change > found.bound:  # then the ends keep their order
        values = [torch.stack([f(path[0]), f(path[-1])]) for f in (loss_t, loss_s)]
        assert discordant_pairs(*values) == 0
