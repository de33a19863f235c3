"""The local quadratic model: exact for quadratics, of the stated order otherwise, void without curvature."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from theory_cases import SEEDS, Draw
from torch.func import grad

from hcdc.datasets import Graph, Nodes
from hcdc.hypergrad import exact
from hcdc.tasks import LinearConvTask
from hcdc.theory import Bilevel, difference_order, distance_order, newton, response_order

STEPS = (0.02, 0.01, 0.005)
P, H = 4, 3


def positive(draw):
    root = draw(P, P)
    return root @ root.mT + torch.eye(P, dtype=torch.float64)


def quadratic(draw):
    """Both losses quadratic in (theta, lambda)."""
    a, b, c, mixed = positive(draw), draw(P, H), positive(draw), draw(P, H)
    target = draw(P)

    def train(theta, lam):
        return theta @ a @ theta / 2 - theta @ b @ lam

    def val(theta, lam):
        return (theta - target) @ c @ (theta - target) / 2 + theta @ mixed @ lam

    return Bilevel(train, val, P)


def smooth(draw):
    """Strongly convex in theta, but not quadratic."""
    a, b, target = positive(draw), draw(P, H), draw(P)

    def train(theta, lam):
        return theta @ a @ theta / 2 + torch.log1p(theta.square()).sum() - theta @ (b @ lam).sin()

    def val(theta, lam):
        return torch.cosh(theta - target).sum() + (theta * lam[0].square()).sum()

    return Bilevel(train, val, P)


def setting(make, seed):
    draw = Draw(seed)
    task = make(draw)
    direction = draw(H)
    return draw, task, newton(task, {"theta": torch.zeros(P).double()}), draw(H), direction / direction.norm()


@settings(max_examples=10)
@given(SEEDS)
def test_for_quadratics_model_and_truth_are_the_same_at_any_step(seed):
    _, task, solution, lam, direction = setting(quadratic, seed)
    assert float(grad(task.train_loss)(solution(lam), lam, task.train)["theta"].norm()) < 1e-9
    args = (task, solution, lam, direction, (10.0, 1.0, 0.1), exact())
    assert max(response_order(*args).errors) < 1e-9
    assert max(difference_order(*args).errors) < 1e-8


@settings(max_examples=8)
@given(SEEDS)
def test_for_other_losses_errors_shrink_at_the_stated_order(seed):
    draw, task, solution, lam, direction = setting(smooth, seed)
    args = (task, solution, lam, direction, STEPS, exact())
    response, difference = response_order(*args), difference_order(*args)
    assert response.order == pytest.approx(2, abs=0.3)
    assert difference.order == pytest.approx(2, abs=0.3)
    assert min(*response.errors, *difference.errors) > 0
    away = distance_order(task, solution, lam, {"theta": draw(P)}, STEPS, exact())
    assert away.order == pytest.approx(1, abs=0.3)


def test_the_linear_convolution_of_the_paper_is_of_second_order():
    """Quadratic in W but not in (W, lambda); theta* in closed form."""
    draw = Draw(3)
    parts = [Nodes(Graph(draw(12, 3), None), draw(12)) for _ in range(2)]
    task = LinearConvTask(*parts, order=1, form="cnn", ridge=0.1)
    lam, direction = draw(3), draw(3)
    args = (task, lambda at: task.solve(at, task.train), lam, direction, (0.01, 0.005, 0.0025), exact())
    assert response_order(*args).order == pytest.approx(2, abs=0.1)
    assert difference_order(*args).order == pytest.approx(2, abs=0.1)


def test_without_curvature_there_is_no_linear_response():
    """theta^4 / 4 - lambda theta at lambda = 0: theta* = lambda^1/3, whatever J one takes."""
    task = Bilevel(
        lambda theta, lam: (theta**4 / 4 - lam * theta).sum(), lambda theta, lam: theta.square().sum(), 1
    )

    def solution(lam):
        return {"theta": lam.sign() * lam.abs() ** (1 / 3)}

    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    found = response_order(task, solution, zero, one, (1e-4, 1e-5, 1e-6), exact(damping=1.0))
    assert found.order == pytest.approx(1 / 3, abs=0.01)
