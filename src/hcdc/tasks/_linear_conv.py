"""The linear convolution regression of the paper (eq. least-square-linear-conv), on graphs and on signals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hcdc.core.configs import Config
from hcdc.core.errors import InputError, unknown_name
from hcdc.core.seeds import stream
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, Nodes
from hcdc.networks import Params
from hcdc.spaces import Box, Space
from hcdc.tasks._base import Task
from hcdc.tasks._graph import graph_lanes
from hcdc.tasks._registry import register_task

FORMS = ("gnn", "cnn")


@register_task
@dataclass(frozen=True, eq=False)
class LinearConvTask(Task):
    """min over W of ``||C_lambda(A) X W - y||^2 + r ||W||^2`` with a convolution matrix C that lambda sets.

    - ``"gnn"``: C = sum_{k=0..K} lambda_k P^k with P = D^-1/2 (A + I) D^-1/2 of the graph.
    - ``"cnn"``: C = sum_{k=-K..K} lambda_k S^k with S the cyclic shift of the rows, ``(S x)_i = x_{i-1}``
      (eq. cnn); the adjacency is not used: a signal is ``Nodes(Graph(x, None), y)``.

    With ``learn_alpha`` theta = [alpha, W] as in the appendix: the k-th term has the factor lambda_k alpha_k,
    and lambda gates which terms a model has (entries 0 and 1 give the smaller kernels of the appendix). Then
    there is no closed form.

    Attributes:
        train_nodes, val_nodes: T_train and T_val; labels y ``[m]`` are floating point.
        test_nodes: The test set, if there is one.
        order: K.
        form: ``"gnn"`` or ``"cnn"``.
        ridge: r, a small penalty that makes the optimum unique.
        learn_alpha: alpha ``[H]`` is a parameter beside W ``[d]``.
    """

    train_nodes: Nodes
    val_nodes: Nodes
    test_nodes: Nodes | None = None
    order: int = 2
    form: str = "gnn"
    ridge: float = 1e-6
    learn_alpha: bool = False

    kind = "linear-conv"

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise unknown_name("form", self.form, FORMS)
        if self.order < 0 or not self.ridge >= 0:
            raise InputError(f"order and ridge must be at least 0, got {self.order} and {self.ridge}")
        for name in ("train_nodes", "val_nodes", "test_nodes"):
            nodes = getattr(self, name)
            if nodes is not None and not nodes.y.is_floating_point():
                raise InputError(f"{name}: labels are {nodes.y.dtype}; a regression needs floating point")

    @property
    def train(self) -> Nodes:
        return self.train_nodes

    @property
    def val(self) -> Nodes:
        return self.val_nodes

    @property
    def test(self) -> Nodes | None:
        return self.test_nodes

    @property
    def features(self) -> int:
        return self.train.graph.num_features

    @property
    def dimension(self) -> int:
        """H: K + 1 powers of P, or 2 K + 1 shifts."""
        return self.order + 1 if self.form == "gnn" else 2 * self.order + 1

    def space(self) -> Box:
        """The filters ``[-1, 1]^H``."""
        first = 0 if self.form == "gnn" else -self.order
        return Box([f"lambda_{k}" for k in range(first, self.order + 1)], -1.0, 1.0)

    def bind(self, space: Space, config: Config | None = None) -> LinearConvTask:
        if space.dimension != self.dimension:
            raise InputError(
                f"space '{space.name}' has {space.dimension} dimensions, this convolution {self.dimension}"
            )
        return self

    def lanes(self, data: Nodes, device: torch.device | str) -> int:
        return graph_lanes(super().lanes(data, device), data, device)

    def init(self, generator: torch.Generator) -> Params:
        """W ``[d]`` with variance 1 / d; alpha ``[H]`` normal where it is learned."""
        y, d = self.train.y, self.train.graph.num_features
        params = {"W": torch.randn(d, generator=generator, dtype=y.dtype) / d**0.5}
        if self.learn_alpha:
            params["alpha"] = torch.randn(self.dimension, generator=generator, dtype=y.dtype)
        return {name: value.to(y.device) for name, value in params.items()}

    def prepare(self, data: Nodes) -> None:
        if self.form == "gnn":
            data.graph.prepare("P")

    def convolve(self, lam: Tensor, graph: Graph, z: Tensor) -> Tensor:
        """C_lambda(A) z for z ``[n, k]``."""
        if lam.shape != (self.dimension,):
            raise InputError(f"lam has shape {tuple(lam.shape)}; this convolution needs ({self.dimension},)")
        if self.form == "cnn":
            shifts = range(-self.order, self.order + 1)
            return torch.stack([lam[i] * z.roll(k, 0) for i, k in enumerate(shifts)]).sum(0)
        p = graph.propagation()
        total = lam[0] * z
        for k in range(1, self.dimension):
            z = z if p is None else p @ z
            total = total + lam[k] * z
        return total

    def predict(self, params: Params, lam: Tensor, data: Nodes) -> Tensor:
        """C_lambda(A) X W at the labelled nodes, ``[m, 1]``."""
        filters = lam * params["alpha"] if self.learn_alpha else lam
        outputs = self.convolve(filters, data.graph, data.graph.x @ params["W"][:, None])
        return outputs if data.index is None else outputs[data.index]

    def loss(self, outputs: Tensor, data: Nodes) -> Tensor:
        """Sum of squares (weighted where the nodes have weights), as in the appendix."""
        each = (outputs.squeeze(-1) - data.y).square()
        return each.sum() if data.weight is None else (data.weight * each).sum()

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return self.ridge * torch.stack([value.square().sum() for value in params.values()]).sum()

    def design(self, lam: Tensor, data: Nodes) -> Tensor:
        """Z = C_lambda(A) X at the labelled nodes, ``[m, d]``."""
        x = data.graph.x
        z = self.convolve(lam, data.graph, x.to_dense() if isinstance(x, SparseMatrix) else x)
        return z if data.index is None else z[data.index]

    def solve(self, lam: Tensor, data: Nodes) -> Params:
        """W*(lambda) = (Z^T Z + r I)^-1 Z^T y in closed form, differentiable in lambda and in the data."""
        if self.learn_alpha:
            raise InputError("theta = [alpha, W] has no closed form; use learn_alpha=False")
        z = self.design(lam, data)
        scaled = z if data.weight is None else data.weight[:, None] * z
        gram = scaled.t() @ z + self.ridge * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        return {"W": torch.linalg.solve(gram, scaled.t() @ data.y)}

    def sample(self, part: str, size: int, seed: int, balanced: bool = False) -> Nodes:
        """Random labelled nodes with their induced subgraph; of a signal, consecutive positions (cyclic)."""
        if part not in ("train", "val"):
            raise unknown_name("part", part, ("train", "val"))
        data = self.train if part == "train" else self.val
        self.check_count(part, size)
        generator = stream(seed, "sample", part)
        if self.form == "gnn":
            picked = torch.randperm(len(data), generator=generator)[:size].sort().values
        else:
            start = int(torch.randint(len(data), (), generator=generator))
            picked = (start + torch.arange(size)) % len(data)
        picked = picked.to(data.y.device)
        weight = None if data.weight is None else data.weight[picked]
        return Nodes(data.graph.subgraph(data.positions()[picked]), data.y[picked], weight=weight)

    def tensors(self, data: Nodes) -> dict[str, Tensor]:
        assert isinstance(data.graph.x, Tensor), "a synthetic graph has dense features"
        return {"x": data.graph.x}

    def replace(self, data: Nodes, tensors: dict[str, Tensor]) -> Nodes:
        graph = data.graph.with_x(tensors["x"]) if "x" in tensors else data.graph
        return dataclasses.replace(data, graph=graph, weight=tensors.get("weight", data.weight))

    def to(self, device: torch.device | str) -> LinearConvTask:
        test = None if self.test_nodes is None else self.test_nodes.to(device)
        train, val = self.train_nodes.to(device), self.val_nodes.to(device)
        return dataclasses.replace(self, train_nodes=train, val_nodes=val, test_nodes=test)

    def spec(self) -> dict[str, Any]:
        names = ("order", "form", "ridge", "learn_alpha")
        return {"name": self.kind, **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], data: Any) -> LinearConvTask:
        """The task again; ``data`` holds its training, validation and, if there are any, test nodes."""
        return cls(*data, **{key: value for key, value in spec.items() if key != "name"})
