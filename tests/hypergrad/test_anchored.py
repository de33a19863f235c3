"""Alignment with anchors: ranks, the loss, its gradient in S_val against autograd and finite differences."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypergrad_cases import F64, MAKERS, case
from scipy import stats

from hcdc.datasets import Rows
from hcdc.hypergrad import (
    DISTANCES,
    alignment_loss,
    anchored_gradient,
    anchored_loss,
    batched_best_response,
    batched_hypergradient,
    exact,
    response_alignment_gradient,
    values_and_hypergradients,
)

CASES = list(MAKERS)


def points(c):
    """theta, lambda and J on S_train; g_T and v_T on the original."""
    response = batched_best_response(c.task, c.params_s, c.lam, c.task.s_train, exact())
    g_T = batched_hypergradient(c.task, c.params, c.lam, c.task.train, c.task.val, exact()).total
    lanes = range(len(c.lam))
    v_T = torch.stack([c.task.val_loss(*c.one(b), c.task.val) for b in lanes])
    return response, g_T, v_T


def plain(c, response, data):
    """Values and hypergradients lane by lane, by plain autograd that keeps its graph."""
    values, gradients = [], []
    for b in range(len(c.lam)):
        params = {k: v[b].clone().requires_grad_() for k, v in c.params_s.items()}
        lam = c.lam[b].clone().requires_grad_()
        loss = c.task.val_loss(params, lam, data)
        *of_params, direct = torch.autograd.grad(
            loss, [*params.values(), lam], create_graph=True, allow_unused=True, materialize_grads=True
        )
        through = [
            torch.tensordot(response[k][b].flatten(1), g.flatten(), 1) for k, g in zip(params, of_params)
        ]
        values.append(loss)
        gradients.append(direct + torch.stack(through).sum(0))
    return torch.stack(values), torch.stack(gradients)


def test_the_anchors_are_one_minus_the_correlation_of_ranks_with_values():
    rng = np.random.default_rng(0)
    g_T, g_S = torch.from_numpy(rng.normal(size=(2, 6, 3)))
    v_T, v_S = rng.integers(0, 4, 6).astype(float), rng.normal(size=6)
    oracle = 1 - stats.pearsonr(stats.rankdata(v_T), v_S).statistic
    for distance in DISTANCES:
        base = float(alignment_loss(g_T, g_S, distance))
        loss = anchored_loss(g_T, torch.from_numpy(v_T), g_S, torch.from_numpy(v_S), distance, 0.7)
        assert float(loss) == pytest.approx(base + 0.7 * oracle, abs=1e-12)


def test_the_anchors_see_order_alone_of_the_original_and_scale_of_neither():
    g = torch.eye(3, dtype=F64)
    v_T = torch.tensor([0.1, 0.2, 9.0], dtype=F64)
    straight = torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    assert float(anchored_loss(g, v_T, g, 100 * straight - 3, "cosine", 1.0)) == pytest.approx(0, abs=1e-12)
    assert float(anchored_loss(g, v_T, g, -straight, "cosine", 1.0)) == pytest.approx(2)
    assert float(anchored_loss(g, v_T, g, -straight, "cosine", 0.0)) == pytest.approx(0, abs=1e-12)
    assert float(anchored_loss(g[:1], v_T[:1], g[:1], straight[:1], "cosine", 5.0)) == pytest.approx(0)


@pytest.mark.parametrize("name", CASES)
def test_values_and_hypergradients_are_those_of_plain_autograd(name):
    c = case(name)
    response, _, _ = points(c)
    found = values_and_hypergradients(c.task, c.params_s, c.lam, response, c.task.s_val)
    torch.testing.assert_close(found, plain(c, response, c.task.s_val), rtol=1e-10, atol=1e-10)
    implicit = batched_hypergradient(c.task, c.params_s, c.lam, c.task.s_train, c.task.s_val, exact()).total
    torch.testing.assert_close(found[1], implicit, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_autograd(name, distance, weight):
    c = case(name)
    response, g_T, v_T = points(c)
    x = c.task.s_val.x.clone().requires_grad_()
    v_S, g_S = plain(c, response, c.task.replace(c.task.s_val, {"x": x}))
    expected_loss = anchored_loss(g_T, v_T, g_S, v_S, distance, weight)
    (expected,) = torch.autograd.grad(expected_loss, x)
    assert expected.abs().max() > 1e-3  # else the comparison would say nothing
    loss, gradient = anchored_gradient(
        c.task, c.params_s, c.lam, response, g_T, v_T, c.task.s_val, distance, weight
    )
    torch.testing.assert_close(loss, expected_loss.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient, {"x": expected}, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["logistic", "filter-sparse"])
def test_the_gradient_is_that_of_finite_differences(name):
    c = case(name)
    response, g_T, v_T = points(c)

    def loss(x):
        data = c.task.replace(c.task.s_val, {"x": x})
        v_S, g_S = values_and_hypergradients(c.task, c.params_s, c.lam, response, data)
        return anchored_loss(g_T, v_T, g_S, v_S, "cosine", 2.0)

    x = c.task.s_val.x
    _, gradient = anchored_gradient(
        c.task, c.params_s, c.lam, response, g_T, v_T, c.task.s_val, "cosine", 2.0
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        direction = torch.randn(x.shape, generator=generator, dtype=F64)
        slope = (loss(x + 1e-5 * direction) - loss(x - 1e-5 * direction)) / 2e-5
        assert float((gradient["x"] * direction).sum()) == pytest.approx(float(slope), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("distance", DISTANCES)
def test_without_anchors_it_is_the_alignment_gradient(distance):
    c = case("filter-dense")
    response, g_T, v_T = points(c)
    args = (c.task, c.params_s, c.lam, response, g_T)
    expected = response_alignment_gradient(*args, c.task.s_val, distance)
    found = anchored_gradient(*args, v_T, c.task.s_val, distance, 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


# --- mini-batches of S_val ----------------------------------------------------------------------------------


@pytest.fixture
def batches(monkeypatch):
    """The logistic case as a task that has mini-batches."""
    c = case("logistic")
    monkeypatch.setattr(c.task, "subset", lambda data, i: Rows(data.x[i], data.y[i]), raising=False)
    return c


def test_a_mini_batch_is_the_smaller_set_and_leaves_the_rest_alone(batches):
    c = batches
    response, g_T, v_T = points(c)
    index = torch.tensor([1, 4, 5])
    args = (c.task, c.params_s, c.lam, response, g_T, v_T)
    loss, gradient = anchored_gradient(*args, c.task.s_val, "cosine", 1.0, index)
    small = Rows(c.task.s_val.x[index], c.task.s_val.y[index])
    expected_loss, expected = anchored_gradient(*args, small, "cosine", 1.0)
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(gradient["x"][index], expected["x"])
    others = [i for i in range(len(c.task.s_val)) if i not in index]
    assert not gradient["x"][others].any()
    assert gradient["x"].shape == c.task.s_val.x.shape


def test_over_all_mini_batches_values_and_hypergradients_average_to_those_of_the_whole(batches):
    c = batches
    response, _, _ = points(c)
    args = (c.task, c.params_s, c.lam, response)
    every = [torch.tensor(i) for i in combinations(range(len(c.task.s_val)), 3)]
    found = [values_and_hypergradients(*args, c.task.subset(c.task.s_val, i)) for i in every]
    mean = tuple(torch.stack(parts).mean(0) for parts in zip(*found))
    torch.testing.assert_close(mean, values_and_hypergradients(*args, c.task.s_val), rtol=1e-10, atol=1e-10)


def test_all_of_it_in_one_mini_batch_changes_nothing(batches):
    c = batches
    response, g_T, v_T = points(c)
    args = (c.task, c.params_s, c.lam, response, g_T, v_T, c.task.s_val, "cosine", 1.0)
    everything = torch.arange(len(c.task.s_val))
    torch.testing.assert_close(anchored_gradient(*args, everything), anchored_gradient(*args))
