"""What a hypergradient and a step of S_val cost, counted and not timed (Appendix complexity-analysis).

`Meter` counts the numbers that kernels read and write, a stand-in for time that is the same in every run, and
the bytes of tensors alive at once. The model's loss costs O(P + H) per example, so whatever grows faster is
due to the method.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hcdc.core.seeds import stream
from hcdc.datasets import Rows
from hcdc.hypergrad import (
    Solution,
    Solver,
    alignment_gradient,
    alignment_loss,
    batched_best_response,
    batched_hypergradient,
    hypergradient,
    naive_paths,
    neumann,
    optimised_losses,
    response_alignment_gradient,
    response_hypergradient,
)
from hcdc.networks import Params
from hcdc.tasks import Task

TERMS, ALPHA = 5, 1e-4
SOLVER = neumann(TERMS, ALPHA)
"""With a fixed scale, no products go into finding one."""


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what torch does inside ``with Meter() as meter:``.

    Attributes:
        work: Numbers read and written by all kernels (views are free).
        peak: Most bytes alive at once in tensors made inside.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.work = self.peak = self._live = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        owned = {leaf.untyped_storage()._cdata for leaf in given}
        new = [
            leaf
            for leaf in tree_leaves(made)
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in owned
        ]
        if new:
            self.work += sum(leaf.numel() for leaf in (*given, *new))
        for leaf in new:
            self._watch(leaf.untyped_storage())
        return made

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self._live += size
        self.peak = max(self.peak, self._live)

        def gone() -> None:
            self._known.discard(key)
            self._live -= size

        weakref.finalize(storage, gone)


def counting(solver: Solver) -> tuple[Solver, list[int]]:
    """The solver, and a list with one entry that counts its products with the curvature."""
    count = [0]

    def solve(matvec: Callable[[Params], Params], rhs: Params) -> Solution:
        def counted(v: Params) -> Params:
            count[0] += 1
            return matvec(v)

        return solver(counted, rhs)

    return solve, count


class ScaledRegression(Task):
    """The model (x W) (1 + <gates_i, lambda>) for example i, with weight decay: P + H products per example.

    Args:
        parameters: P.
        gates: How lambda scales each example, ``[n, H]``; the same in every set of n examples.
    """

    kind = "scaled-regression"

    def __init__(self, parameters: int, gates: Tensor):
        self.parameters, self.gates = parameters, gates

    def init(self, generator: torch.Generator) -> Params:
        return {"W": torch.randn(self.parameters, generator=generator, dtype=torch.float64)}

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        return (data.x @ params["W"]) * (1 + self.gates @ lam)

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return params["W"].square().sum()


Instance = tuple[ScaledRegression, Params, Tensor, Rows, Rows]


def instance(parameters: int, dimension: int, p: int | None = None) -> Instance:
    """Random ``(task, params, lam, train, val)`` with 8 examples, at one point or at a batch of p points."""
    generator = stream(0, "theory-instance")

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    batch = () if p is None else (p,)
    task = ScaledRegression(parameters, draw(8, dimension))
    train, val = (Rows(draw(8, parameters), draw(8)) for _ in range(2))
    return task, {"W": draw(*batch, parameters)}, draw(*batch, dimension), train, val


def jacobian_gradient(
    task: Task, params: Params, lam: Tensor, response: Params, g_t: Tensor, s_val: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """The S_val step of Algorithm 1 by way of d g_S / d S_val ``[H, B]``: O(H B) time and memory.

    Row h is the gradient in S_val of the slope of L^val along (J_h, e_h). The result is that of
    `hcdc.hypergrad.response_alignment_gradient` for one lambda and the cosine distance.

    Args:
        task: What is learned.
        params: theta.
        lam: lambda ``[H]``.
        response: J, with leading dimension H.
        g_t: The original hypergradient ``[H]``.
        s_val: The synthetic validation set.
    """
    g_s = response_hypergradient(task, params, lam, response, s_val)
    u, loss = grad_and_value(lambda g: alignment_loss(g_t[None], g[None]))(g_s)
    tensors = task.tensors(s_val)

    def row(moved: Params, direction: Tensor) -> dict[str, Tensor]:
        def slope(at: dict[str, Tensor]) -> Tensor:
            data = task.replace(s_val, at)
            found: Tensor = jvp(lambda p, l: task.val_loss(p, l, data), (params, lam), (moved, direction))[1]
            return found

        found: dict[str, Tensor] = grad(slope)(tensors)
        return found

    rows = vmap(row)(response, torch.eye(len(lam), dtype=lam.dtype))
    return loss, {name: torch.tensordot(u, part, dims=1) for name, part in rows.items()}


def metered(run: Callable[[], object]) -> Meter:
    """A meter that has seen one call."""
    meter = Meter()
    with meter:
        run()
    return meter


@dataclass(frozen=True)
class Counts:
    """One panel of `complexity_counts`: plain numbers, ready for ``dataclasses.asdict``.

    Attributes:
        title: The statement.
        across, up: What is on the axes, with units.
        x: Values across.
        lines: Values up, by name.
    """

    title: str
    across: str
    up: str
    x: tuple[int, ...]
    lines: dict[str, tuple[int, ...]]


def complexity_counts() -> list[Counts]:
    """The cost statements of the appendix on small instances (a few seconds); the same in every run."""
    return [_candidates(), _dimensions(), _terms(), *_validation_step(), _products()]


def _candidates(sizes: Sequence[int] = (2, 4, 6, 8, 10), points: int = 4) -> Counts:
    """Hypergradients along p trajectories and along the paths between all pairs, 4 points each."""

    def work(lams: int) -> int:
        return metered(partial(batched_hypergradient, *instance(16, 3, lams), SOLVER)).work

    pairs = [sum(len(path) for path in naive_paths(torch.zeros(p, 3), points)) for p in sizes]
    return Counts(
        "Time is linear in p",
        "candidates p",
        "numbers read and written",
        tuple(sizes),
        {
            "paths between all pairs": tuple(work(count) for count in pairs),
            "p trajectories": tuple(work(p * points) for p in sizes),
        },
    )


def _dimensions(extra: Sequence[int] = (0, 20, 40, 60, 80)) -> Counts:
    """One hypergradient as P grows and as H grows."""

    def work(parameters: int, dimension: int) -> int:
        return metered(partial(hypergradient, *instance(parameters, dimension), SOLVER)).work

    return Counts(
        "Time is linear in P + H",
        "P + H",
        "numbers read and written",
        tuple(40 + more for more in extra),
        {
            "P grows, H = 20": tuple(work(20 + more, 20) for more in extra),
            "H grows, P = 20": tuple(work(20, 20 + more) for more in extra),
        },
    )


def _terms(terms: Sequence[int] = (10, 20, 30, 40)) -> Counts:
    """Memory of the Neumann series against that of recorded training steps."""
    task, params, lam, train, val = instance(64, 4)

    def recorded(steps: int) -> int:
        def value(at: Tensor) -> Tensor:
            return optimised_losses(task, params, at[None], train, val, steps, ALPHA).sum()

        return metered(partial(grad(value), lam)).peak

    def series(count: int) -> int:
        return metered(partial(hypergradient, task, params, lam, train, val, neumann(count, ALPHA))).peak

    return Counts(
        "Memory is constant in the Neumann terms",
        "Neumann terms or recorded steps",
        "peak memory (bytes)",
        tuple(terms),
        {
            "recorded training": tuple(recorded(count) for count in terms),
            "Neumann series": tuple(series(count) for count in terms),
        },
    )


def _validation_step(dimensions: Sequence[int] = (4, 8, 12, 16, 20)) -> list[Counts]:
    """The S_val step by the Jacobian and by the adjoint form; B = 8 x 256 numbers in S_val."""
    jacobian, adjoint = [], []
    for dimension in dimensions:
        task, params, lam, train, val = instance(256, dimension, 1)
        response = batched_best_response(task, params, lam, train, SOLVER)
        g_t = torch.ones_like(lam)
        adjoint.append(metered(partial(response_alignment_gradient, task, params, lam, response, g_t, val)))
        first = [{name: tensor[0] for name, tensor in each.items()} for each in (params, response)]
        jacobian.append(metered(partial(jacobian_gradient, task, first[0], lam[0], first[1], g_t[0], val)))

    def panel(title: str, up: str, of: Callable[[Meter], int]) -> Counts:
        lines = {
            "H rows of d g_S / d S_val": tuple(of(meter) for meter in jacobian),
            "adjoint form": tuple(of(meter) for meter in adjoint),
        }
        return Counts(title, "hyperparameters H", up, tuple(dimensions), lines)

    return [
        panel("Time of an S_val step, B = 2048", "numbers read and written", lambda meter: meter.work),
        panel("Memory of an S_val step, B = 2048", "peak memory (bytes)", lambda meter: meter.peak),
    ]


def _products(dimensions: Sequence[int] = (4, 8, 12, 16, 20)) -> Counts:
    """Products with the curvature for one S_val step after theta has moved."""
    responses, adjoints = [], []
    for dimension in dimensions:
        solver, count = counting(SOLVER)
        task, params, lam, train, val = instance(16, dimension, 1)
        batched_best_response(task, params, lam, train, solver)
        responses.append(count[0] * dimension)  # one call serves all H systems of the vmap
        solver, count = counting(SOLVER)
        alignment_gradient(task, params, lam, torch.ones_like(lam), train, val, solver)
        adjoints.append(count[0])
    return Counts(
        f"Curvature products, {TERMS} Neumann terms",
        "hyperparameters H",
        "products",
        tuple(dimensions),
        {"solves for the response J": tuple(responses), "adjoint form": tuple(adjoints)},
    )
