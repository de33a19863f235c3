"""All trajectories reach one optimum if the loss is convex, and connect p candidates by p paths."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cases import SEEDS, Draw
from torch.func import grad, vmap

from hcdc.hypergrad import batched_hypergradient, exact
from hcdc.spaces import Box
from hcdc.theory import Bilevel, meeting

WIDE = Box(["a", "b"], -100.0, 100.0)


@settings(max_examples=6)
@given(SEEDS, st.integers(2, 6))
def test_hypergradient_descent_meets_at_the_closed_form_optimum(seed, p):
    """L*(lambda) = ||B lambda - t||^2 / 2 + ||lambda||^2 / 4, with hypergradients of the library."""
    draw = Draw(seed)
    b, target = draw(3, 2), draw(3)
    task = Bilevel(
        lambda theta, lam: (theta - b @ lam).square().sum() / 2,
        lambda theta, lam: (theta - target).square().sum() / 2 + lam.square().sum() / 4,
        3,
    )

    def hypergradients(lam):
        params = {"theta": lam @ b.mT}  # theta*(lambda)
        return batched_hypergradient(task, params, lam, task.train, task.val, exact(), "hessian").total

    hessian = b.mT @ b + torch.eye(2, dtype=torch.float64) / 2
    least, most = torch.linalg.eigvalsh(hessian).tolist()
    lr, steps = 2 / (least + most), 30
    found = meeting(hypergradients, WIDE, 3 * draw(p, 2), steps, lr)
    for before, after in zip(found.spread, found.spread[1:]):
        assert after <= (1 - lr * least) * before * (1 + 1e-9) + 1e-12
    optimum = torch.linalg.solve(hessian, b.mT @ target)
    distances = (found.ends - optimum).norm(dim=1)
    assert float(distances.max()) <= (1 - lr * least) ** steps * 200 + 1e-9
    assert found.trajectory_points == p * (steps + 1)
    assert found.pair_points == p * (p - 1) // 2 * (steps + 1)


@pytest.mark.parametrize("p", [3, 10, 30])
def test_pairs_take_quadratically_many_points(p):
    starts = torch.linspace(-1, 1, p, dtype=torch.float64)[:, None]
    found = meeting(lambda lam: lam, Box(["a"], -1.0, 1.0), starts, 3, 0.5)
    assert found.pair_points / found.trajectory_points == (p - 1) / 2
    assert found.spread == pytest.approx([2, 1, 0.5, 0.25])


def test_two_valleys_do_not_meet():
    """(lambda^2 - 1)^2: without convexity the trajectories end in two places."""
    starts = torch.tensor([[-1.5], [-0.2], [0.2], [1.5]], dtype=torch.float64)
    slopes = vmap(grad(lambda lam: (lam.square() - 1).square().sum()))
    found = meeting(slopes, Box(["a"], -2.0, 2.0), starts, 200, 0.05)
    torch.testing.assert_close(found.ends[:, 0], torch.tensor([-1.0, -1.0, 1.0, 1.0]).double())
    assert found.spread[-1] == pytest.approx(2)
