"""Distances, and the gradient of alignment in S_val against a recorded dense solve and finite differences."""

from __future__ import annotations

import pytest
import torch
from hypergrad_cases import F64, MAKERS, case, dense_hessian, dense_mixed, flatten
from torch.func import grad

from hcdc.core.errors import InputError
from hcdc.hypergrad import (
    DISTANCES,
    alignment_gradient,
    alignment_loss,
    batched_best_response,
    batched_hypergradient,
    batched_response_hypergradient,
    conjugate_gradient,
    cosine,
    exact,
    identity,
    neumann,
    response_alignment_gradient,
    scaled_l2,
)

CASES = list(MAKERS)


def original(c):
    """g_T at the optima of the original training loss."""
    return batched_hypergradient(c.task, c.params, c.lam, c.task.train, c.task.val, exact(), "hessian").total


def recorded(c, x, g_T, distance, inverse):
    """D by plain autograd: a dense matrix in place of the solver, everything recorded."""
    data = c.task.replace(c.task.s_val, {"x": x})
    hypergradients = []
    for b in range(len(c.lam)):
        params = {k: v[b].clone().requires_grad_() for k, v in c.params_s.items()}
        lam = c.lam[b].clone().requires_grad_()
        loss = c.task.val_loss(params, lam, data)
        gradients = torch.autograd.grad(
            loss, [*params.values(), lam], create_graph=True, allow_unused=True, materialize_grads=True
        )
        of_params = torch.cat([g.reshape(-1) for g in gradients[:-1]])
        plain = {k: v.detach() for k, v in params.items()}
        curved = dense_hessian(c.task, plain, c.lam[b], c.task.s_train)
        mixed = dense_mixed(c.task, plain, c.lam[b], c.task.s_train)
        hypergradients.append(gradients[-1] - mixed.T @ inverse(curved, of_params))
    return alignment_loss(g_T, torch.stack(hypergradients), distance)


def by_autograd(c, g_T, distance, inverse):
    x = c.task.s_val.x.clone().requires_grad_()
    loss = recorded(c, x, g_T, distance, inverse)
    return loss.detach(), torch.autograd.grad(loss, x)[0]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", CASES)
def test_adjoint_equals_autograd_through_a_recorded_dense_solve(name, distance):
    c = case(name)
    g_T = original(c)
    expected_loss, expected = by_autograd(c, g_T, distance, torch.linalg.solve)
    assert 0.02 < expected_loss < 1.98
    assert expected.abs().max() > 1e-3  # else the comparison would say nothing
    args = (c.task, c.params_s, c.lam)
    loss, gradient = alignment_gradient(
        *args, g_T, c.task.s_train, c.task.s_val, exact(), "hessian", distance, chunk_size=3
    )
    torch.testing.assert_close(loss, expected_loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient, {"x": expected}, rtol=1e-10, atol=1e-10)
    response = batched_best_response(*args, c.task.s_train, exact(), "hessian")
    loss, gradient = response_alignment_gradient(*args, response, g_T, c.task.s_val, distance)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient, {"x": expected}, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["mlp", "filter-sparse"])
def test_adjoint_of_a_truncated_series_is_exact(name):
    """K Neumann terms are one symmetric polynomial of A, and the adjoint is the same, scale included."""
    c = case(name)
    g_T = original(c)
    solver = neumann(5)

    def series(matrix, b):
        def product(v):
            return {k: (matrix @ flatten(v)).split(sizes)[i].reshape(shape[k]) for i, k in enumerate(shape)}

        shape = {k: v.shape[1:] for k, v in c.params_s.items()}
        sizes = [s.numel() for s in shape.values()]
        parts = {k: part.reshape(shape[k]) for k, part in zip(shape, b.split(sizes))}
        return flatten(solver(product, parts).x)

    _, expected = by_autograd(c, g_T, "cosine", series)
    _, gradient = alignment_gradient(
        c.task, c.params_s, c.lam, g_T, c.task.s_train, c.task.s_val, solver, "hessian", "cosine"
    )
    torch.testing.assert_close(gradient["x"], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "solver", [exact(), neumann(4), identity(0.5), conjugate_gradient(22, tolerance=1e-13)]
)
@pytest.mark.parametrize("distance", DISTANCES)
def test_finite_differences(distance, solver):
    c = case("filter-dense")
    g_T = original(c)

    def loss(x):
        data = c.task.replace(c.task.s_val, {"x": x})
        g_S = batched_hypergradient(c.task, c.params_s, c.lam, c.task.s_train, data, solver).total
        return alignment_loss(g_T, g_S, distance)

    _, gradient = alignment_gradient(
        c.task, c.params_s, c.lam, g_T, c.task.s_train, c.task.s_val, solver, distance=distance
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        direction = torch.randn(c.task.s_val.x.shape, generator=generator, dtype=F64)
        slope = (loss(c.task.s_val.x + 1e-5 * direction) - loss(c.task.s_val.x - 1e-5 * direction)) / 2e-5
        assert (gradient["x"] * direction).sum().item() == pytest.approx(slope.item(), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("distance", DISTANCES)
def test_steps_down_the_gradient_align(distance):
    """25 steps that share one J halve the distance."""
    c = case("filter-sparse")
    g_T = original(c)
    response = batched_best_response(c.task, c.params_s, c.lam, c.task.s_train, exact())
    data, first = c.task.s_val, None
    for _ in range(25):
        loss, gradient = response_alignment_gradient(c.task, c.params_s, c.lam, response, g_T, data, distance)
        first = loss if first is None else first
        data = c.task.replace(data, {"x": data.x - 0.3 * gradient["x"] / gradient["x"].norm()})
    g_S = batched_response_hypergradient(c.task, c.params_s, c.lam, response, data)
    assert alignment_loss(g_T, g_S, distance) < 0.5 * first


def test_cosine():
    g_T = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert cosine(g_T, 5 * g_T).item() == pytest.approx(0, abs=1e-6)
    assert cosine(g_T, -g_T).item() == pytest.approx(2)
    assert cosine(g_T, g_T.flip(1)).item() == pytest.approx(1)
    assert cosine(g_T, torch.tensor([[3.0, 0.0], [0.0, 0.0]])).item() == pytest.approx(0.5)  # zeros: 1
    zero = grad(lambda g: cosine(g_T, g))(torch.zeros(2, 2))
    assert torch.isfinite(zero).all()


def test_scaled_l2():
    generator = torch.Generator().manual_seed(0)
    g_T = torch.randn(5, 3, generator=generator, dtype=F64)
    g_S = g_T + 0.5 * torch.randn(5, 3, generator=generator, dtype=F64)
    assert scaled_l2(g_T, 7 * g_T).item() == pytest.approx(0, abs=1e-15)
    assert scaled_l2(g_T, -g_T).item() == pytest.approx(1)
    scales = torch.linspace(0, 2, 2001, dtype=F64)
    tried = ((scales[:, None, None] * g_S - g_T) ** 2).sum((1, 2)) / (g_T**2).sum()
    assert scaled_l2(g_T, g_S).item() == pytest.approx(tried.min().item(), rel=1e-5)
    assert scaled_l2(g_T, g_S) <= tried.min()
    # one scale for the batch: lanes with scales of their own are not aligned, though each cosine is 1
    uneven = g_T * torch.tensor([1, 2, 3, 4, 5], dtype=F64)[:, None]
    assert cosine(g_T, uneven).item() == pytest.approx(0, abs=1e-12)
    assert scaled_l2(g_T, uneven) > 0.05


def test_scaled_l2_gradient_by_the_envelope_theorem():
    generator = torch.Generator().manual_seed(0)
    g_T = torch.randn(5, 1, generator=generator, dtype=F64)  # one dimension is fine here
    g_S = g_T + 0.5 * torch.randn(5, 1, generator=generator, dtype=F64)
    found = grad(lambda g: scaled_l2(g_T, g))(g_S)
    for b in range(5):
        step = torch.zeros(5, 1, dtype=F64)
        step[b] = 1e-6
        slope = (scaled_l2(g_T, g_S + step) - scaled_l2(g_T, g_S - step)) / 2e-6
        assert found[b].item() == pytest.approx(slope.item(), rel=1e-7, abs=1e-10)
    assert (grad(lambda g: scaled_l2(g_T, g))(-g_S) == 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: alignment_loss(torch.ones(4, 1), torch.ones(4, 1), "cosine"), "choose distance 'scaled_l2'"),
        (lambda: alignment_loss(torch.ones(4, 2), torch.ones(4, 2), "cosin"), "did you mean 'cosine'"),
        (lambda: alignment_loss(torch.ones(4, 2), torch.ones(3, 2)), r"got shapes \(4, 2\) and \(3, 2\)"),
    ],
)
def test_bad_arguments_are_sentences(call, message):
    with pytest.raises(InputError, match=message):
        call()
