"""The hypergradient d L^val(theta*(lambda), lambda) / d lambda by the implicit function theorem, eq. (IFT).

There are two forms of the same derivative. The adjoint form (`hypergradient`) takes one solve, whatever the
dimension of lambda. The best-response form (`best_response`) takes one solve per dimension; after that, the
hypergradient of *any* validation set costs one gradient. The responses of finite training runs
(`unrolled_response`, `adam_response`) need no optimum and no solve: they are exact for the given run, at the
cost of one tangent per dimension in every step.

Functions without ``batched_`` handle one lambda and work inside ``torch.func.vmap``, as in the ``batched_``
forms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from hcdc.core.errors import InputError
from hcdc.core.recipe import Recipe
from hcdc.hypergrad._curvature import get_curvature, gradient_and_tangents, mixed_product, mixed_transpose
from hcdc.hypergrad._solvers import Diagnostics, Solution, Solver, full_precision
from hcdc.hypergrad._vectors import add, inner_each, scaled
from hcdc.networks import Params
from hcdc.tasks import Task


class Hypergradient(NamedTuple):
    """d L^val(theta*(lambda), lambda) / d lambda in its two parts, ``[H]`` (``[B, H]`` in a batch).

    Attributes:
        direct: d L^val / d lambda at fixed theta. Not zero if lambda enters the model, e.g. as a filter or an
            architecture.
        implicit: Through theta*(lambda): - (d^2 L^train / d lambda d theta) A^-1 (d L^val / d theta).
        diagnostics: How the solve went.
    """

    direct: Tensor
    implicit: Tensor
    diagnostics: Diagnostics

    @property
    def total(self) -> Tensor:
        """The hypergradient: direct + implicit."""
        return self.direct + self.implicit


@torch.no_grad()
@full_precision()
def hypergradient(
    task: Task,
    params: Params,
    lam: Tensor,
    train: Any,
    val: Any,
    solver: Solver,
    curvature: str = "gauss_newton",
) -> Hypergradient:
    """Eq. (IFT) at one lambda; memory does not depend on the solver's number of iterations.

    Args:
        task: What is learned.
        params: theta, near an optimum of the training loss.
        lam: lambda ``[H]``.
        train: The training set behind theta.
        val: The validation set.
        solver: See `hcdc.hypergrad.SOLVERS`.
        curvature: ``"gauss_newton"`` or ``"hessian"``.
    """
    of_params, direct = grad(task.val_loss, argnums=(0, 1))(params, lam, val)
    solution = solver(get_curvature(curvature)(task, params, lam, train), of_params)
    implicit = -mixed_transpose(task, params, lam, train, solution.x)
    return Hypergradient(direct, implicit, solution.diagnostics)


@torch.no_grad()
@full_precision()
def solve_response(
    task: Task, params: Params, lam: Tensor, train: Any, solver: Solver, curvature: str = "gauss_newton"
) -> Solution:
    """`best_response` as ``x``, with the diagnostics ``[H]`` of its solves."""
    product = get_curvature(curvature)(task, params, lam, train)

    def one(direction: Tensor) -> Solution:
        return solver(product, mixed_product(task, params, lam, train, -direction))

    result: Solution = vmap(one)(torch.eye(len(lam), dtype=lam.dtype, device=lam.device))
    return result


def best_response(
    task: Task, params: Params, lam: Tensor, train: Any, solver: Solver, curvature: str = "gauss_newton"
) -> Params:
    """J = d theta* / d lambda, one solve per dimension: J_h = - A^-1 d^2 L^train / d theta d lambda_h.

    Returns:
        Tensors with the shapes of ``params`` and a leading dimension H.
    """
    return solve_response(task, params, lam, train, solver, curvature).x


def response_hypergradient(task: Task, params: Params, lam: Tensor, response: Params, val: Any) -> Tensor:
    """g_h = <d L^val / d theta, J_h> + d L^val / d lambda_h, ``[H]``, without a solve.

    Args:
        response: J, from `best_response`, `unrolled_response` or `adam_response`.
    """
    of_params, direct = grad(task.val_loss, argnums=(0, 1))(params, lam, val)
    result: Tensor = inner_each(response, of_params) + direct
    return result


@torch.no_grad()
@full_precision()
def unrolled_response(
    task: Task, params0: Params, lam: Tensor, train: Any, steps: int, lr: float
) -> tuple[Params, Params]:
    """theta_K after K gradient-descent steps, and J_K = d theta_K / d lambda in forward mode.

    Memory does not grow with K. If started at the optimum, J_K is the best response with K Neumann terms and
    alpha = lr.

    Returns:
        ``(theta_K, J_K)``; J has a leading dimension H.
    """

    params, (response, basis) = params0, _no_response(params0, lam)
    for _ in range(steps):
        gradient, tangents = gradient_and_tangents(task, params, lam, train, response, basis)
        params, response = add(params, gradient, -lr), add(response, tangents, -lr)
    return params, response


@torch.no_grad()
@full_precision()
def adam_response(
    task: Task, params0: Params, lam: Tensor, train: Any, recipe: Recipe
) -> tuple[Params, Params]:
    """theta_K of the recipe (full-batch Adam, ``steps`` steps of size ``lr``) and J_K = d theta_K / d lambda.

    This is the exact response of the recipe; it assumes no optimum. Weight decay is part of the training loss
    (`Task.penalty`), so the recipe's own coefficient is ignored. If a parameter's gradient was zero in every
    step, the derivative of the square root in Adam's denominator is taken as zero.

    Returns:
        ``(theta_K, J_K)``; J has a leading dimension H.
    """

    params, (response, basis) = params0, _no_response(params0, lam)
    mean, square = scaled(params, 0.0), scaled(params, 0.0)
    mean_dot, square_dot = response, response
    for step in range(1, recipe.steps + 1):
        gradient, tangents = gradient_and_tangents(task, params, lam, train, response, basis)
        mean, mean_dot = add(scaled(mean, 0.9), gradient, 0.1), add(scaled(mean_dot, 0.9), tangents, 0.1)
        square = {name: 0.999 * square[name] + 0.001 * gradient[name] ** 2 for name in square}
        square_dot = {
            name: 0.999 * square_dot[name] + 0.002 * gradient[name] * tangents[name] for name in square
        }
        size, root = recipe.lr / (1 - 0.9**step), (1 - 0.999**step) ** 0.5
        params, response = dict(params), dict(response)
        for name in params:
            length = square[name].sqrt()
            below = length / root + 1e-8
            below_dot = square_dot[name] / (2 * root * torch.where(length > 0, length, torch.inf))
            params[name] = params[name] - size * mean[name] / below
            response[name] = response[name] - size * (mean_dot[name] - mean[name] / below * below_dot) / below
    return params, response


def _no_response(params: Params, lam: Tensor) -> tuple[Params, Tensor]:
    """J = 0 with leading dimension H, and the identity ``[H, H]``."""
    zero = {name: torch.zeros_like(tensor).expand(len(lam), *tensor.shape) for name, tensor in params.items()}
    return zero, torch.eye(len(lam), dtype=lam.dtype, device=lam.device)


# --- batches over lambda ------------------------------------------------------------------------------------


def batched_hypergradient(
    task: Task,
    params: Params,
    lam: Tensor,
    train: Any,
    val: Any,
    solver: Solver,
    curvature: str = "gauss_newton",
    chunk_size: int | None = None,
) -> Hypergradient:
    """`hypergradient` for a batch: params ``[B, ...]``, lam ``[B, H]``; at most ``chunk_size`` at once."""
    check_batch(params, lam)

    def one(p: Params, l: Tensor) -> Hypergradient:
        return hypergradient(task, p, l, train, val, solver, curvature)

    result: Hypergradient = vmap(one, chunk_size=chunk_size)(params, lam)
    return result


def batched_solve_response(
    task: Task,
    params: Params,
    lam: Tensor,
    train: Any,
    solver: Solver,
    curvature: str = "gauss_newton",
    chunk_size: int | None = None,
) -> Solution:
    """`solve_response` for a batch: ``x`` has shapes ``[B, H, ...]``, the diagnostics ``[B, H]``."""
    check_batch(params, lam)

    def one(p: Params, l: Tensor) -> Solution:
        return solve_response(task, p, l, train, solver, curvature)

    result: Solution = vmap(one, chunk_size=chunk_size)(params, lam)
    return result


def batched_best_response(
    task: Task,
    params: Params,
    lam: Tensor,
    train: Any,
    solver: Solver,
    curvature: str = "gauss_newton",
    chunk_size: int | None = None,
) -> Params:
    """`best_response` for a batch, ``[B, H, ...]``."""
    return batched_solve_response(task, params, lam, train, solver, curvature, chunk_size).x


def batched_response_hypergradient(
    task: Task, params: Params, lam: Tensor, response: Params, val: Any, chunk_size: int | None = None
) -> Tensor:
    """`response_hypergradient` for a batch, ``[B, H]``."""
    check_batch(params, lam)

    def one(p: Params, l: Tensor, j: Params) -> Tensor:
        return response_hypergradient(task, p, l, j, val)

    result: Tensor = vmap(one, chunk_size=chunk_size)(params, lam, response)
    return result


def batched_adam_response(
    task: Task, params0: Params, lam: Tensor, train: Any, recipe: Recipe, chunk_size: int | None = None
) -> tuple[Params, Params]:
    """`adam_response` for a batch of starts and lambdas: ``(theta_K [B, ...], J_K [B, H, ...])``."""
    check_batch(params0, lam)

    def one(p: Params, l: Tensor) -> tuple[Params, Params]:
        return adam_response(task, p, l, train, recipe)

    result: tuple[Params, Params] = vmap(one, chunk_size=chunk_size)(params0, lam)
    return result


def check_batch(params: Params, lam: Tensor) -> None:
    """Refuse params and lam of different batch sizes."""
    if lam.dim() != 2:
        raise InputError(f"lam: a batch [B, H] is needed, got shape {tuple(lam.shape)}")
    for name, tensor in params.items():
        if tensor.dim() < 1 or len(tensor) != len(lam):
            raise InputError(
                f"params['{name}'] has shape {tuple(tensor.shape)}, but lam is a batch of {len(lam)}: "
                "every parameter needs that leading dimension"
            )
