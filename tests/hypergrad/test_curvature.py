"""Curvature and mixed products against dense matrices."""

from __future__ import annotations

import pytest
import torch
from hypergrad_cases import F64, MAKERS, case, dense_hessian, dense_mixed, flatten, unflatten
from torch.func import hessian, jacrev, vmap

from hcdc.core.errors import InputError
from hcdc.hypergrad import (
    CURVATURES,
    gauss_newton_product,
    get_curvature,
    hessian_product,
    mixed_product,
    mixed_transpose,
)
from hcdc.hypergrad._curvature import gradient_and_tangents
from hcdc.hypergrad._vectors import dot, inner_each, size

CASES = list(MAKERS)


def off_optimum(name):
    """A point that is not stationary, so that no term vanishes by luck."""
    c = case(name)
    params, lam = c.one(1)
    generator = torch.Generator().manual_seed(3)
    moved = {k: v + 0.3 * torch.randn(v.shape, generator=generator, dtype=F64) for k, v in params.items()}
    return c.task, moved, lam


def materialise(product, params):
    basis = torch.eye(size(params), dtype=F64)
    return torch.stack([flatten(product(unflatten(row, params))) for row in basis], dim=1)


def dense_gauss_newton(task, params, lam, data):
    flat = flatten(params)

    def predict(vector):
        return task.predict(unflatten(vector, params), lam, data)

    outputs = predict(flat)
    jacobian = jacrev(predict)(flat).reshape(outputs.numel(), -1)
    inner = hessian(lambda o: task.loss(o.reshape(outputs.shape), data))(outputs.reshape(-1))
    return jacobian.T @ inner @ jacobian + hessian(lambda v: task.penalty(unflatten(v, params), lam))(flat)


@pytest.mark.parametrize("name", CASES)
def test_hessian_product(name):
    task, params, lam = off_optimum(name)
    product = materialise(hessian_product(task, params, lam, task.train), params)
    torch.testing.assert_close(product, dense_hessian(task, params, lam, task.train), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_gauss_newton_product(name):
    task, params, lam = off_optimum(name)
    product = materialise(gauss_newton_product(task, params, lam, task.train), params)
    torch.testing.assert_close(product, dense_gauss_newton(task, params, lam, task.train), rtol=0, atol=1e-12)
    assert torch.linalg.eigvalsh(product).min() > 0


# ||G - H|| / ||H|| (spectral norm) at the optimum, measured: 0 where the model is linear in theta.
BIAS = {"ridge": 0.0, "logistic": 0.0, "mlp": 0.33, "filter-dense": 0.25, "filter-sparse": 0.25}


@pytest.mark.parametrize("name", CASES)
def test_bias_of_gauss_newton_against_the_hessian(name):
    c = case(name)
    params, lam = c.one()
    curved = dense_hessian(c.task, params, lam, c.task.train)
    gauss_newton = dense_gauss_newton(c.task, params, lam, c.task.train)
    bias = (torch.linalg.matrix_norm(gauss_newton - curved, 2) / torch.linalg.matrix_norm(curved, 2)).item()
    assert bias == pytest.approx(BIAS[name], abs=0.05 if BIAS[name] else 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_mixed_products(name):
    task, params, lam = off_optimum(name)
    dense = dense_mixed(task, params, lam, task.train)
    direction = torch.linspace(-1, 2, len(lam), dtype=F64)
    product = mixed_product(task, params, lam, task.train, direction)
    torch.testing.assert_close(flatten(product), dense @ direction, rtol=0, atol=1e-12)
    v = unflatten(torch.linspace(1, -2, size(params), dtype=F64), params)
    transpose = mixed_transpose(task, params, lam, task.train, v)
    torch.testing.assert_close(transpose, dense.T @ flatten(v), rtol=0, atol=1e-12)
    assert transpose @ direction == pytest.approx(dot(v, product).item(), abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_gradient_and_tangents(name):
    task, params, lam = off_optimum(name)
    generator = torch.Generator().manual_seed(5)
    response = {k: torch.randn(len(lam), *v.shape, generator=generator, dtype=F64) for k, v in params.items()}
    gradient, tangents = gradient_and_tangents(
        task, params, lam, task.train, response, torch.eye(len(lam), dtype=F64)
    )
    dense = dense_hessian(task, params, lam, task.train), dense_mixed(task, params, lam, task.train)
    flat = vmap(flatten)(response).T
    torch.testing.assert_close(vmap(flatten)(tangents).T, dense[0] @ flat + dense[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(
        gradient, torch.func.grad(task.train_loss)(params, lam, task.train), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("name", CASES)
def test_vmapped_products_equal_looped_ones(name, curvature):
    c = case(name)
    make = get_curvature(curvature)
    generator = torch.Generator().manual_seed(9)
    v = {k: torch.randn(t.shape, generator=generator, dtype=F64) for k, t in c.params.items()}

    def apply(p, l, x):
        return make(c.task, p, l, c.task.train)(x)

    batch = vmap(apply)(c.params, c.lam, v)
    for b in range(len(c.lam)):
        params, lam = c.one(b)
        alone = apply(params, lam, {k: t[b] for k, t in v.items()})
        torch.testing.assert_close({k: t[b] for k, t in batch.items()}, alone, rtol=1e-12, atol=1e-13)


def test_a_lambda_without_influence_has_zero_mixed_derivative():
    c = case("filter-dense")
    params, lam = c.one()
    wide = torch.cat([lam, lam.new_ones(1)])

    class Blind(type(c.task)):
        def predict(self, params, lam, data):
            return super().predict(params, lam[:3], data)

    task = Blind(c.task.train, c.task.val, c.task.s_train, c.task.s_val, c.task.shapes)
    result = mixed_transpose(task, params, wide, task.train, params)
    assert result[3] == 0
    assert (result[:3] != 0).all()


def test_vectors_of_parameters():
    rows = {"a": torch.arange(6, dtype=F64).reshape(2, 3), "b": torch.ones(2, 1, 2, dtype=F64)}
    one = {"a": torch.tensor([1.0, 0, 2], dtype=F64), "b": torch.full((1, 2), 3.0, dtype=F64)}
    assert inner_each(rows, one).tolist() == [0 + 4 + 6, 3 + 10 + 6]
    assert flatten(unflatten(torch.arange(5, dtype=F64), one)).tolist() == [0, 1, 2, 3, 4]


def test_unknown_curvature_is_a_sentence():
    with pytest.raises(InputError, match="did you mean 'hessian'"):
        get_curvature("hesian")
