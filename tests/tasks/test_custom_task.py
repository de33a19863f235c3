"""The library's derivatives for a user's own task, against the closed form.

Readings of an instrument at times t, each with a precision, are fitted by a polynomial; lambda holds log10 of
the penalty of each power. What a synthetic set may learn are the times and the precisions of its readings.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from hcdc.core.seeds import stream
from hcdc.datasets import SplitData
from hcdc.hypergrad import (
    alignment_gradient,
    alignment_loss,
    batched_hypergradient,
    conjugate_gradient,
    exact,
    hypergradient,
)
from hcdc.spaces import Box
from hcdc.tasks import Task

POWERS = 4
SPACE = Box([f"power_{k}" for k in range(POWERS)], 1e-3, 1.0, "log")


@dataclass(frozen=True)
class Readings:
    t: torch.Tensor
    y: torch.Tensor
    precision: torch.Tensor


class CurveTask(Task):
    """min over theta of mean_i precision_i (sum_k theta_k t_i^k - y_i)^2 + sum_k 10^lambda_k theta_k^2."""

    kind = "curve"

    def __init__(self, train, val):
        self.data = SplitData("readings", train, val, test=None)

    def init(self, generator):
        return {"theta": torch.randn(POWERS, generator=generator, dtype=torch.float64)}

    def predict(self, params, lam, data):
        return (data.t[:, None] ** torch.arange(POWERS) @ params["theta"])[:, None]

    def loss(self, outputs, data):
        return (data.precision * (outputs[:, 0] - data.y) ** 2).mean()

    def penalty(self, params, lam):
        return (10**lam * params["theta"] ** 2).sum()

    def sample(self, part, size, seed):
        data = getattr(self, part)
        picked = torch.randperm(len(data.t), generator=stream(seed, "sample", part))[:size]
        return Readings(data.t[picked], data.y[picked], data.precision[picked])

    def tensors(self, data):
        return {"t": data.t, "precision": data.precision}

    def replace(self, data, tensors):
        return dataclasses.replace(data, **tensors)

    def optimum(self, lam, data):
        """The oracle: normal equations."""
        z = data.t[:, None] ** torch.arange(POWERS)
        weighted = z * data.precision[:, None] / len(data.t)
        return {"theta": torch.linalg.solve(weighted.t() @ z + torch.diag(10**lam), weighted.t() @ data.y)}


def readings(count, seed):
    generator = torch.Generator().manual_seed(seed)
    t = 2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1
    noise = 0.3 * torch.randn(count, generator=generator, dtype=torch.float64)
    precision = 0.5 + torch.rand(count, generator=generator, dtype=torch.float64)
    return Readings(t, torch.sin(3 * t) + noise, precision)


@pytest.fixture
def task():
    return CurveTask(readings(200, 0), readings(200, 1))


def lambdas(count, seed=0):
    configs = SPACE.sample(count, np.random.default_rng(seed))
    return torch.stack([SPACE.encode(config) for config in configs])


@pytest.mark.parametrize("curvature", ["hessian", "gauss_newton"])
def test_its_hypergradient_is_that_of_the_closed_form(task, curvature):
    lam = lambdas(1)[0]
    params = task.optimum(lam, task.train)
    expected = grad(lambda at: task.val_loss(task.optimum(at, task.train), at, task.val))(lam)
    for solver in (exact(), conjugate_gradient(iterations=10, tolerance=1e-13)):
        found = hypergradient(task, params, lam, task.train, task.val, solver, curvature)
        torch.testing.assert_close(found.total, expected, rtol=1e-8, atol=1e-12)


def hypergradients(task, lams, train, val):
    """g ``[B, H]`` at the optimum of ``train``, through the closed form."""

    def outer(lam):
        return task.val_loss(task.optimum(lam, train), lam, val)

    return vmap(grad(outer))(lams)


def test_its_batch_of_hypergradients(task):
    lams = lambdas(5)
    params = vmap(task.optimum, in_dims=(0, None))(lams, task.train)
    found = batched_hypergradient(
        task, params, lams, task.train, task.val, conjugate_gradient(10, tolerance=1e-13)
    )
    expected = hypergradients(task, lams, task.train, task.val)
    torch.testing.assert_close(found.total, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("distance", ["cosine", "scaled_l2"])
def test_the_gradient_in_its_own_learnable_tensors(task, distance):
    lams = lambdas(6)
    g = hypergradients(task, lams, task.train, task.val)
    s_train, s_val = task.sample("train", 12, seed=0), task.sample("val", 6, seed=0)
    params = vmap(task.optimum, in_dims=(0, None))(lams, s_train)
    loss, slopes = alignment_gradient(task, params, lams, g, s_train, s_val, exact(), distance=distance)

    def oracle(tensors):
        return alignment_loss(g, hypergradients(task, lams, s_train, task.replace(s_val, tensors)), distance)

    torch.testing.assert_close(loss, oracle(task.tensors(s_val)))
    for name, tensor in task.tensors(s_val).items():
        for i in range(len(tensor)):
            ends = []
            for sign in (1, -1):
                moved = tensor.clone()
                moved[i] += sign * 1e-6
                ends.append(float(oracle({**task.tensors(s_val), name: moved})))
            assert float(slopes[name][i]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_a_synthetic_validation_set_is_learned(task, seed):
    """Eight learned readings align with 200 real ones, also at lambdas that were not used to learn them."""
    lams, fresh = lambdas(20, seed=0), lambdas(20, seed=1)
    s_train, s_val = task.sample("train", 20, seed), task.sample("val", 8, seed)
    params = vmap(task.optimum, in_dims=(0, None))(lams, s_train)
    g, g_fresh = (hypergradients(task, at, task.train, task.val) for at in (lams, fresh))

    def held_out(val):
        return float(alignment_loss(g_fresh, hypergradients(task, fresh, s_train, val), "scaled_l2"))

    before = held_out(s_val)
    tensors = {name: tensor.clone() for name, tensor in task.tensors(s_val).items()}
    optimiser = torch.optim.Adam(tensors.values(), lr=0.02)
    for _ in range(50):
        _, slopes = alignment_gradient(
            task, params, lams, g, s_train, task.replace(s_val, tensors), exact(), distance="scaled_l2"
        )
        for name, tensor in tensors.items():
            tensor.grad = slopes[name]
        optimiser.step()
    after = held_out(task.replace(s_val, tensors))
    assert after < 0.6 * before, (before, after)
