"""Products with the curvature of the training loss and with its mixed derivatives, without storing a matrix.

A product is linearised once, at theta, and then applied. The model does not run forward again for every
vector, and a ``vmap`` over vectors shares the linearisation. It needs the memory of one recorded gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp, vmap

from hcdc.core.errors import unknown_name
from hcdc.hypergrad._vectors import MatVec, add
from hcdc.networks import Params
from hcdc.tasks import Task

Curvature = Callable[[Task, Params, Tensor, Any], MatVec]


def _linearise(function: Callable[..., Any], *at: Any) -> tuple[Any, Callable[..., Any]]:
    """The value at a point, and v -> (Jacobian)^T v there."""
    result: Any = vjp(function, *at)
    return result[0], result[1]


def hessian_product(task: Task, params: Params, lam: Tensor, data: Any) -> MatVec:
    """v -> (d^2 L^train / d theta^2) v, one double backward pass per product.

    Args:
        task: What is learned.
        params: theta, the point of the Hessian.
        lam: lambda ``[H]``.
        data: The training set.
    """
    _, pull = _linearise(lambda p: grad(task.train_loss)(p, lam, data), params)

    def product(v: Params) -> Params:
        result: Params = pull(v)[0]
        return result

    return product


def gauss_newton_product(task: Task, params: Params, lam: Tensor, data: Any) -> MatVec:
    """v -> J^T (d^2 loss / d outputs^2) J v + (d^2 penalty / d theta^2) v with J = d predict / d theta.

    It is positive semi-definite if the loss is convex in the outputs and the penalty in theta. It drops the
    model's second derivative, so it equals the Hessian if the model is linear in theta or every example is
    fitted exactly. The model is linearised once, when the product is made: J^T by reverse mode and J as the
    transpose of that linear map, so a product does not run the model forward again.
    """

    def predict(p: Params) -> Tensor:
        return task.predict(p, lam, data)

    outputs, pull = _linearise(predict, params)
    _, push = _linearise(lambda cotangent: pull(cotangent)[0], torch.zeros_like(outputs))

    def loss_gradient(o: Tensor) -> Tensor:
        result: Tensor = grad(task.loss)(o, data)
        return result

    def penalty_gradient(p: Params) -> Params:
        result: Params = grad(task.penalty)(p, lam)
        return result

    def product(v: Params) -> Params:
        curved = jvp(loss_gradient, (outputs,), push(v))[1]
        return add(pull(curved)[0], jvp(penalty_gradient, (params,), (v,))[1])

    return product


CURVATURES: dict[str, Curvature] = {"hessian": hessian_product, "gauss_newton": gauss_newton_product}


def get_curvature(name: str) -> Curvature:
    """The curvature of that name, see `CURVATURES`."""
    if name not in CURVATURES:
        raise unknown_name("curvature", name, CURVATURES)
    return CURVATURES[name]


def mixed_product(task: Task, params: Params, lam: Tensor, data: Any, direction: Tensor) -> Params:
    """(d^2 L^train / d theta d lambda) direction: how the training gradient moves with lambda.

    Args:
        direction: A direction ``[H]`` in lambda.

    Returns:
        Tensors with the shapes of ``params``.
    """
    _, pull = _linearise(lambda p: grad(task.train_loss, argnums=1)(p, lam, data), params)
    result: Params = pull(direction)[0]
    return result


def mixed_transpose(task: Task, params: Params, lam: Tensor, data: Any, v: Params) -> Tensor:
    """v^T (d^2 L^train / d theta d lambda), ``[H]``: the transpose of `mixed_product`."""
    _, pull = _linearise(lambda at: grad(task.train_loss)(params, at, data), lam)
    result: Tensor = pull(v)[0]
    return result


def gradient_and_tangents(
    task: Task, params: Params, lam: Tensor, data: Any, response: Params, basis: Tensor
) -> tuple[Params, Params]:
    """d L^train / d theta and its total derivatives in lambda along ``response``.

    The joint Hessian in (theta, lambda) is symmetric, so its reverse-mode product with (J_h, e_h) is the
    tangent.

    Args:
        response: J = d theta / d lambda, with leading dimension H.
        basis: The identity ``[H, H]``.

    Returns:
        The gradient, and (d^2 L / d theta^2) J_h + d^2 L / d theta d lambda_h with leading dimension H.
    """
    both = grad(task.train_loss, argnums=(0, 1))
    (gradient, _), pull = _linearise(lambda p, at: both(p, at, data), params, lam)
    tangents: Params = vmap(lambda j, e: pull((j, e))[0])(response, basis)
    return gradient, tangents
