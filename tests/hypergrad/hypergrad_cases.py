"""The table of cases of the hypergrad tests: tiny float64 tasks with dense derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.func import grad, hessian, jacrev

from hcdc.core.sparse import SparseMatrix, matmul
from hcdc.datasets import Rows, normalise_dense
from hcdc.datasets._graph import normalise_sparse
from hcdc.networks import Params
from hcdc.tasks import Task

F64 = torch.float64


def flatten(params: Params) -> Tensor:
    """All parameters as one vector ``[P]``."""
    return torch.cat([tensor.reshape(-1) for tensor in params.values()])


def unflatten(vector: Tensor, like: Params) -> Params:
    """The inverse of `flatten`."""
    parts = vector.split([tensor.numel() for tensor in like.values()])
    return {name: part.view(tensor.shape) for part, (name, tensor) in zip(parts, like.items())}


@dataclass(frozen=True, eq=False)
class Wired:
    """Labelled nodes with a ready propagation matrix (dense or sparse)."""

    x: Tensor
    y: Tensor
    matrix: Any


class Tiny(Task):
    """What the cases share: data given at construction, features as the learnable part."""

    kind = "tiny"

    def __init__(self, train: Any, val: Any, s_train: Any, s_val: Any, shapes: dict[str, tuple[int, ...]]):
        self._train, self._val, self.s_train, self.s_val, self.shapes = train, val, s_train, s_val, shapes

    @property
    def train(self) -> Any:
        return self._train

    @property
    def val(self) -> Any:
        return self._val

    def init(self, generator: torch.Generator) -> Params:
        return {k: 0.3 * torch.randn(s, generator=generator, dtype=F64) for k, s in self.shapes.items()}

    def loss(self, outputs: Tensor, data: Any) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs, data.y)

    def sample(self, part: str, size: int, seed: int) -> Any:
        raise AssertionError("not used here")

    def tensors(self, data: Any) -> dict[str, Tensor]:
        return {"x": data.x}

    def replace(self, data: Any, tensors: dict[str, Tensor]) -> Any:
        return replace(data, x=tensors["x"])

    def to(self, device: torch.device | str) -> Task:
        return self


class Ridge(Tiny):
    """1/2 mean (x w - y)^2 + 1/2 sum_i exp(lam_i) w_i^2."""

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        return data.x @ params["w"]

    def loss(self, outputs: Tensor, data: Rows) -> Tensor:
        return 0.5 * ((outputs[:, 0] - data.y) ** 2).mean()

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * (lam.exp() * params["w"][:, 0] ** 2).sum()


class Logistic(Tiny):
    """Softmax regression; lambda: log penalties of weights and bias, and a temperature inside the model."""

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        return (1 + lam[2] ** 2) * (data.x @ params["w"] + params["b"])

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * (lam[0].exp() * (params["w"] ** 2).sum() + lam[1].exp() * (params["b"] ** 2).sum())


class TanhMLP(Tiny):
    """One hidden layer; lambda: log penalties of the two layers and the slope of tanh."""

    def predict(self, params: Params, lam: Tensor, data: Rows) -> Tensor:
        return torch.tanh((1.5 + lam[2]) * (data.x @ params["u"])) @ params["v"]

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * (lam[0].exp() * (params["u"] ** 2).sum() + lam[1].exp() * (params["v"] ** 2).sum())


class Filter(Tiny):
    """Two layers of the filter sum_k lam_k P^k, k = 0..2, on a dense or sparse graph; weight decay fixed."""

    def predict(self, params: Params, lam: Tensor, data: Wired) -> Tensor:
        hidden = torch.tanh(self._filter(lam, data.matrix, data.x @ params["u"]))
        return self._filter(lam, data.matrix, hidden @ params["v"])

    def _filter(self, lam: Tensor, matrix: Any, z: Tensor) -> Tensor:
        out = lam[0] * z
        for k in range(1, len(lam)):
            z = matmul(matrix, z)
            out = out + lam[k] * z
        return out

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.03 * ((params["u"] ** 2).sum() + (params["v"] ** 2).sum())


@dataclass(frozen=True, eq=False)
class Case:
    """A task, lambdas ``[B, H]`` and the optima of the original and the synthetic training loss there."""

    name: str
    task: Tiny
    lam: Tensor
    params: Params  # [B, ...], optima on T_train
    params_s: Params  # [B, ...], optima on S_train

    def one(self, index: int = 0) -> tuple[Params, Tensor]:
        return {k: v[index] for k, v in self.params.items()}, self.lam[index]


def dense_hessian(task: Task, params: Params, lam: Tensor, data: Any) -> Tensor:
    """d^2 L^train / d theta^2 ``[P, P]`` by reverse over reverse, nothing of the library in it."""
    return hessian(lambda flat: task.train_loss(unflatten(flat, params), lam, data))(flatten(params))


def dense_mixed(task: Task, params: Params, lam: Tensor, data: Any) -> Tensor:
    """d^2 L^train / d theta d lambda ``[P, H]``."""

    def gradient(at: Tensor) -> Tensor:
        return grad(lambda flat: task.train_loss(unflatten(flat, params), at, data))(flatten(params))

    return jacrev(gradient)(lam)


def optimum(task: Task, start: Params, lam: Tensor, data: Any) -> Params:
    """A minimum of the training loss with gradient norm below 1e-10: L-BFGS, then Newton."""
    params = {k: v.clone().requires_grad_() for k, v in start.items()}
    lbfgs = torch.optim.LBFGS(
        list(params.values()), max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        lbfgs.zero_grad()
        loss = task.train_loss(params, lam, data)
        loss.backward()
        return loss

    lbfgs.step(closure)
    return newton(task, {k: v.detach() for k, v in params.items()}, lam, data)


def newton(task: Task, params: Params, lam: Tensor, data: Any) -> Params:
    """Newton's method from a point near the optimum."""
    for _ in range(20):
        gradient = grad(task.train_loss)(params, lam, data)
        if flatten(gradient).norm() < 1e-13:
            break
        step = torch.linalg.solve(dense_hessian(task, params, lam, data), flatten(gradient))
        params = unflatten(flatten(params) - step, params)
    assert flatten(grad(task.train_loss)(params, lam, data)).norm() < 1e-10
    return params


def _rows(rng: np.random.Generator, count: int, width: int, classes: int | None) -> Rows:
    x = rng.normal(size=(count, width))
    if classes is None:
        y = x @ np.linspace(1, -1, width) + 0.3 * rng.normal(size=count)
        return Rows(torch.tensor(x), torch.tensor(y))
    y = np.argmax(x[:, :classes] + rng.normal(size=(count, classes)), 1)
    return Rows(torch.tensor(x), torch.tensor(y))


def _wired(rng: np.random.Generator, count: int, width: int, classes: int, as_sparse: bool) -> Wired:
    rows = _rows(rng, count, width, classes)
    upper = np.triu(rng.random((count, count)) < 0.2, 1).astype(float)
    adj = upper + upper.T
    if as_sparse:
        matrix = normalise_sparse(SparseMatrix.from_scipy(sparse.csr_matrix(adj), F64, symmetric=True))
    else:
        matrix = normalise_dense(torch.tensor(adj))
    return Wired(rows.x, rows.y, matrix)


def _four(make: Callable[[int], Any]) -> list[Any]:
    return [make(count) for count in (24, 18, 9, 7)]


def _ridge(rng: np.random.Generator) -> tuple[Tiny, Tensor]:
    task = Ridge(*_four(lambda n: _rows(rng, n, 5, None)), {"w": (5, 1)})
    return task, torch.tensor(rng.uniform(-3, 0, size=(4, 5)))


def _logistic(rng: np.random.Generator) -> tuple[Tiny, Tensor]:
    task = Logistic(*_four(lambda n: _rows(rng, n, 4, 3)), {"w": (4, 3), "b": (3,)})
    return task, torch.tensor(rng.uniform([-3, -3, -0.5], [-1, -1, 0.5], size=(4, 3)))


def _mlp(rng: np.random.Generator) -> tuple[Tiny, Tensor]:
    task = TanhMLP(*_four(lambda n: _rows(rng, n, 4, 3)), {"u": (4, 4), "v": (4, 3)})
    return task, torch.tensor(rng.uniform([-4, -4, -0.5], [-3, -3, 0.5], size=(4, 3)))


def _filter(as_sparse: bool) -> Callable[[np.random.Generator], tuple[Tiny, Tensor]]:
    def make(rng: np.random.Generator) -> tuple[Tiny, Tensor]:
        task = Filter(*_four(lambda n: _wired(rng, n, 4, 3, as_sparse)), {"u": (4, 3), "v": (3, 3)})
        return task, torch.tensor(rng.uniform(0.2, 1.0, size=(4, 3)))

    return make


MAKERS = {
    "ridge": _ridge,
    "logistic": _logistic,
    "mlp": _mlp,
    "filter-dense": _filter(False),
    "filter-sparse": _filter(True),
}


@functools.cache
def case(name: str) -> Case:
    """The case of that name with its optima (computed once)."""
    task, lam = MAKERS[name](np.random.default_rng(7))
    start = task.init(torch.Generator().manual_seed(1))
    optima = [[optimum(task, start, l, data) for l in lam] for data in (task.train, task.s_train)]
    stacked = [{k: torch.stack([p[k] for p in row]) for k in start} for row in optima]
    return Case(name, task, lam, stacked[0], stacked[1])
