"""SGC, the network whose gradients GCond matches: softmax(P^K X W + b), with gradients in closed form.

Propagation comes before the weights, so P^K X is computed once, a network is logistic regression on its rows,
and the gradient of a class is error times rows. It needs no automatic differentiation, so matching does not
differentiate twice.

Layers are matrices ``[outputs, inputs + 1]`` whose last column is the bias; inputs end in a column of ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from hcdc.core.labels import draw_members, members
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import Graph, Nodes

EPSILON = 1e-6  # beside the lengths in a cosine


def rows(graph: Graph, index: Tensor) -> Tensor:
    """The features of the nodes ``index`` as a dense tensor ``[m, d]``."""
    if isinstance(graph.x, SparseMatrix):
        return graph.x.rows(index).to_dense()
    return graph.x[index]


def with_ones(z: Tensor) -> Tensor:
    """``z`` with a column of ones appended ``[..., d + 1]``."""
    return torch.cat([z, z.new_ones(*z.shape[:-1], 1)], -1)


def propagated(nodes: Nodes, hops: int) -> Tensor:
    """The rows of P^hops X at the labelled nodes ``[m, d]``, dense."""
    p, x, index = nodes.graph.propagation(), nodes.graph.x, nodes.positions()
    if p is None:
        return rows(nodes.graph, index)
    if isinstance(x, Tensor) or isinstance(p, Tensor):
        z = x if isinstance(x, Tensor) else x.to_dense()
        for _ in range(hops):
            z = p @ z
        return z[index]
    left, right, keep = p.to_scipy(), x.to_scipy(), index.cpu().numpy()
    out = torch.empty(len(keep), x.shape[1], dtype=x.dtype)
    for start in range(0, len(keep), 4096):
        block = left[keep[start : start + 4096]]
        for _ in range(hops - 1):
            block = block @ left
        out[start : start + 4096] = torch.from_numpy((block @ right).toarray())
    return out.to(x.device)


def init_sgc(features: int, classes: int, hidden: int, generator: torch.Generator) -> list[Tensor]:
    """Fresh layers, uniform in +-1/sqrt(inputs): one layer, or two with ``hidden`` ReLU units between."""
    sizes = [features, hidden, classes] if hidden else [features, classes]
    return [
        (torch.rand(fan_out, fan_in + 1, generator=generator) * 2 - 1) / math.sqrt(fan_in)
        for fan_in, fan_out in itertools.pairwise(sizes)
    ]


def sgc_gradients(z: Tensor, target: Tensor, weight: Tensor, layers: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of ``sum_i weight_i * cross_entropy(network(z_i), target_i)`` with respect to the layers.

    For one layer ``W``: ``dW = ((softmax(W z^T) - target) * weight) z``. Leading dimensions are separate
    sums (one per class), all in one product.

    Args:
        z: Propagated features with ones ``[..., m, d + 1]``.
        target: One-hot labels ``[..., C, m]`` (or broadcastable).
        weight: Weight of each row ``[..., m]``; 0 for padding.
        layers: One or two matrices, see `init_sgc`.

    Returns:
        One tensor ``[..., outputs, inputs + 1]`` per layer.
    """
    if len(layers) == 1:
        error = (torch.softmax(layers[0] @ z.mT, -2) - target) * weight.unsqueeze(-2)
        return [error @ z]
    first, second = layers
    before = first @ z.mT
    hidden = torch.cat([torch.relu(before), before.new_ones(*before.shape[:-2], 1, before.shape[-1])], -2)
    error = (torch.softmax(second @ hidden, -2) - target) * weight.unsqueeze(-2)
    back = (second[:, :-1].mT @ error) * (before > 0)
    return [back @ z, error @ hidden.mT]


class Groups:
    """Rows of several classes as one padded index, so that a batch of classes is one gather.

    Attributes:
        index: ``[classes, m]`` row numbers, padded with 0.
        weight: ``[classes, m]``, 1 / size of the class, and 0 for padding.
    """

    def __init__(self, rows_of: Sequence[Tensor], device: torch.device, dtype: torch.dtype):
        width = max(len(r) for r in rows_of)
        index = torch.zeros(len(rows_of), width, dtype=torch.long)
        weight = torch.zeros(len(rows_of), width, dtype=torch.float64)
        for c, r in enumerate(rows_of):
            index[c, : len(r)] = r
            weight[c, : len(r)] = 1 / len(r)
        self.index, self.weight = index.to(device), weight.to(device, dtype)


class ClassBatches:
    """Propagated original rows, drawn per class.

    Args:
        z: Propagated features ``[m, d]``.
        y: Labels ``[m]``.
        num_classes: Number of classes.
        batch: Rows drawn per class; a class without more rows gives all of them every time.
    """

    def __init__(self, z: Tensor, y: Tensor, num_classes: int, batch: int):
        self.z, self.batch = with_ones(z), batch
        self.members = members(y, num_classes)
        self._all = self._gather(self.members) if max(len(m) for m in self.members) <= batch else None

    def _gather(self, rows_of: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        groups = Groups(rows_of, self.z.device, self.z.dtype)
        return self.z[groups.index], groups.weight

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``(z [classes, m, d + 1], weight [classes, m])``."""
        if self._all is not None:
            return self._all
        counts = [self.batch] * len(self.members)
        return self._gather(draw_members(self.members, counts, generator))


def matching_distance(synthetic: Sequence[Tensor], real: Sequence[Tensor], class_weight: Tensor) -> Tensor:
    """Sum over classes, layers and outputs of 1 - cosine between gradient rows, without biases.

    Args:
        synthetic, real: Gradients ``[classes, outputs, inputs + 1]`` of each layer.
        class_weight: ``[classes]``.
    """
    total = class_weight.new_zeros(())
    for s, r in zip(synthetic, real):
        s, r = s[..., :-1], r[..., :-1]
        cosine = (s * r).sum(-1) / (s.norm(dim=-1) * r.norm(dim=-1) + EPSILON)
        total = total + (class_weight[:, None] * (1 - cosine)).sum()
    return total


def synthetic_distance(
    z: Tensor, groups: Groups, real: Sequence[Tensor], layers: Sequence[Tensor], class_weight: Tensor
) -> Tensor:
    """`matching_distance` of the synthetic set's gradients, class by class, as a function of its features.

    Args:
        z: Propagated synthetic features with ones ``[n, d + 1]``.
        groups: The synthetic nodes of each class.
        real: Gradients of the original classes, one ``[classes, outputs, inputs + 1]`` per layer.
        layers: The network.
        class_weight: ``[classes]``.
    """
    if len(layers) == 1:
        given = z, groups.index, groups.weight, real[0], layers[0], class_weight
        distance: Tensor = _Distance.apply(*given)  # type: ignore[no-untyped-call]
        return distance
    target = torch.eye(len(class_weight)).to(z)[:, :, None]
    return matching_distance(
        sgc_gradients(z[groups.index], target, groups.weight, layers), real, class_weight
    )


class _Distance(Function):
    """`synthetic_distance` for one layer W, with its derivative by the features in closed form.

    A class with rows Z (ones left out) and errors ``E = (softmax(Z W^T + b) - target) * weight`` has the
    gradient ``G = E^T Z``. Products with its rows need only ``K = Z Z^T`` and ``Q = Z R^T``, where R is the
    gradient to match: ``G_o R_o = (E^T Q)_oo``, ``|G_o|^2 = (E^T K E)_oo``. The distance has the derivative
    ``x_o R_o + y_o G_o`` by G_o, so ``dE = Q x + K E y`` and ``dZ = (E x) R + (E y E^T) Z + dlogits W``.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, index: Tensor, weight: Tensor, *fixed: Tensor) -> Tensor:
        """``fixed``: gradients of the original classes, the layer and the weights of the classes."""
        layer, class_weight = fixed[1], fixed[2][:, None]
        classes, width = index.shape
        rows_of = z.index_select(0, index.flatten())
        p = torch.softmax(rows_of @ layer.t(), -1).view(classes, width, classes)
        whole = rows_of.view(classes, width, -1)
        rows_of, real = whole[..., :-1], fixed[0][..., :-1]
        weight = weight[..., None]
        error = (p - torch.eye(classes).to(z)[:, None]) * weight
        q, k_error = rows_of @ real.mT, (rows_of @ rows_of.mT) @ error
        real_length, length = real.norm(dim=-1), (error * k_error).sum(-2).clamp_min(1e-30).sqrt()
        below = length * real_length + EPSILON
        cosine = (error * q).sum(-2) / below
        if ctx.needs_input_grad[0]:
            x = (-class_weight / below)[:, None]
            y = (class_weight * cosine * real_length / (below * length))[:, None]
            dp = (q * x).addcmul_(k_error, y) * weight
            dlogits = p * (dp - (dp * p).sum(-1, keepdim=True))
            by_rows = torch.baddbmm(dlogits @ layer, error * x, fixed[0])
            by_rows.baddbmm_((error * y) @ error.mT, whole)
            derivative = torch.zeros_like(z).index_add_(0, index.flatten(), by_rows.flatten(0, 1))
            derivative[:, -1] = 0  # the ones are constants
            ctx.save_for_backward(derivative)
        distance: Tensor = (class_weight * (1 - cosine)).sum()
        return distance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (gradients[0] * ctx.saved_tensors[0], *[None] * 5)
