"""Yardsticks for tiny instances: the nested problems that condensation avoids, solved directly.

Both record K steps of inner training and differentiate through them, so memory grows with K. The tests
measure what alignment loses against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from hcdc.core.errors import InputError
from hcdc.hypergrad._vectors import add
from hcdc.networks import Params
from hcdc.tasks import Task


def unrolled_params(task: Task, params0: Params, lam: Tensor, data: Any, steps: int, lr: float) -> Params:
    """theta_K after K recorded gradient-descent steps on ``data``; differentiable in ``data`` and lambda."""
    params = params0
    for _ in range(steps):
        params = add(params, grad(task.train_loss)(params, lam, data), -lr)
    return params


def sdc_unrolled(
    task: Task,
    params0: Params,
    lam: Tensor,
    s_train: Any,
    *,
    inner_steps: int,
    inner_lr: float,
    outer_steps: int,
    outer_lr: float,
) -> tuple[Any, Tensor]:
    """Standard dataset condensation, eq. (SDC): min_S L^train_T(theta^S(S), lambda), theta^S unrolled.

    Args:
        task: What is learned; its training set is T.
        params0: theta_0, fixed.
        lam: lambda ``[H]``, fixed.
        s_train: The initial synthetic set.
        inner_steps, inner_lr: Gradient descent on the synthetic set.
        outer_steps, outer_lr: Adam on its learnable tensors.

    Returns:
        The learned set, and the objective before each step and after the last, ``[outer_steps + 1]``.
    """

    def objective(tensors: dict[str, Tensor]) -> Tensor:
        data = task.replace(s_train, tensors)
        return task.train_loss(
            unrolled_params(task, params0, lam, data, inner_steps, inner_lr), lam, task.train
        )

    tensors, history = _adam(objective, task.tensors(s_train), outer_steps, outer_lr)
    return task.replace(s_train, tensors), history


class NestedResult(NamedTuple):
    """The result of `nested_hcdc`.

    Attributes:
        s_train, s_val: The learned sets.
        history: The relaxed objective before each step and after the last.
        choice: Index of lambda^S, the minimum of L*_S on the grid.
        truth: L*_T at every lambda of the grid ``[G]``.
        proxy: L*_S at every lambda of the grid ``[G]`` for the learned sets.
    """

    s_train: Any
    s_val: Any
    history: Tensor
    choice: int
    truth: Tensor
    proxy: Tensor


def optimised_losses(
    task: Task, params0: Params, grid: Tensor, train: Any, val: Any, inner_steps: int, inner_lr: float
) -> Tensor:
    """L*(lambda) ``[G]`` on a grid ``[G, H]`` after unrolled training on ``train``; differentiable."""

    def one(lam: Tensor) -> Tensor:
        return task.val_loss(unrolled_params(task, params0, lam, train, inner_steps, inner_lr), lam, val)

    result: Tensor = vmap(one)(grid)
    return result


def nested_hcdc(
    task: Task,
    params0: Params,
    grid: Tensor,
    s_train: Any,
    s_val: Any,
    *,
    inner_steps: int,
    inner_lr: float,
    outer_steps: int,
    outer_lr: float,
    temperature: float,
) -> NestedResult:
    """The naive problem, eq. (hcdc-bl): min_S L*_T(lambda^S(S)) with lambda^S = argmin over a grid of L*_S.

    The arg min is relaxed to weights softmax(-L*_S / temperature), and the objective is the weighted mean of
    L*_T. Its gradient in S_train and S_val passes through the weights and the recorded inner training.

    Args:
        grid: The candidates lambda ``[G, H]``.
        s_train, s_val: The initial synthetic sets.
        temperature: Temperature of the relaxed arg min, in units of the validation loss.
    """
    if grid.dim() != 2 or len(grid) < 2:
        raise InputError(f"grid: at least 2 candidates [G, H] are needed, got shape {tuple(grid.shape)}")
    truth = optimised_losses(task, params0, grid, task.train, task.val, inner_steps, inner_lr).detach()

    def sets(tensors: dict[str, Tensor]) -> tuple[Any, Any]:
        parts: dict[str, dict[str, Tensor]] = {"train": {}, "val": {}}
        for name, tensor in tensors.items():
            part, _, key = name.partition("/")
            parts[part][key] = tensor
        return task.replace(s_train, parts["train"]), task.replace(s_val, parts["val"])

    def proxy(tensors: dict[str, Tensor]) -> Tensor:
        return optimised_losses(task, params0, grid, *sets(tensors), inner_steps, inner_lr)

    def objective(tensors: dict[str, Tensor]) -> Tensor:
        return (torch.softmax(-proxy(tensors) / temperature, 0) * truth).sum()

    starts = {f"train/{name}": tensor for name, tensor in task.tensors(s_train).items()}
    starts |= {f"val/{name}": tensor for name, tensor in task.tensors(s_val).items()}
    tensors, history = _adam(objective, starts, outer_steps, outer_lr)
    last = proxy(tensors).detach()
    return NestedResult(*sets(tensors), history, int(last.argmin()), truth, last)


def _adam(
    objective: Callable[[dict[str, Tensor]], Tensor], starts: dict[str, Tensor], steps: int, lr: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Adam on a dict of tensors; returns the last iterate and the objective along the way ``[steps + 1]``."""
    tensors = {name: tensor.detach().clone().requires_grad_() for name, tensor in starts.items()}
    optimiser = torch.optim.Adam(list(tensors.values()), lr=lr)
    history = []
    for _ in range(steps):
        loss = objective(tensors)
        for tensor, gradient in zip(tensors.values(), torch.autograd.grad(loss, list(tensors.values()))):
            tensor.grad = gradient
        history.append(loss.detach())
        optimiser.step()
    history.append(objective(tensors).detach())
    return {name: tensor.detach() for name, tensor in tensors.items()}, torch.stack(history)
