"""Gradient matching with any graph network: a small graph whose training gradients are those of the original.

GCond (`hcdc.condensers`) matches SGC, whose gradients have a closed form. Here the network is free, and its
gradients come from automatic differentiation, which costs more. Labels are fixed and in the original
proportions. X' starts from real nodes of each class; A' has one free weight for each pair of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad

from hcdc.core.errors import NumericalError
from hcdc.core.labels import draw_members, members
from hcdc.core.progress import Progress
from hcdc.core.seeds import stream
from hcdc.core.settings import Settings, setting
from hcdc.datasets import Graph, Nodes
from hcdc.networks import Params
from hcdc.tasks import GraphTask
from hcdc.training import Adam

__all__ = ["NetworkMatching", "class_gradients", "gradient_distance"]

START = -3.0
"""Logits of A' at the start: edges of weight .05."""


@dataclass(frozen=True)
class NetworkMatching(Settings):
    """The loops, eq. (SDC) with gradient matching.

    Attributes:
        epochs: Fresh networks, one after the other.
        outer: Steps on X' and A' per network.
        inner: Steps of the network on the small graph between two of these.
        lr_feat, lr_adj: Learning rates of X' and of the logits of A'.
        lr_model: Learning rate of the network.
    """

    epochs: int = setting(30, least=1)
    outer: int = setting(10, least=1)
    inner: int = setting(5, least=0)
    lr_feat: float = setting(3e-4, above=0)
    lr_adj: float = setting(0.02, above=0)
    lr_model: float = setting(0.01, above=0)

    @classmethod
    def owner(cls) -> str:
        return "gradient matching"

    def reduce(self, task: GraphTask, size: int, seed: int, progress: Progress) -> Nodes:
        """A graph of ``size`` nodes for the network that ``task`` is bound to."""
        whole, classes = task.train, task.num_classes
        y = task.labels("train", size)
        counts = y.bincount(minlength=classes).tolist()
        picked = torch.cat(draw_members(members(whole.y, classes), counts, stream(seed, "matching")))
        start = task.chosen("train", picked).graph.x
        assert isinstance(start, Tensor), "a chosen subgraph is dense"
        x, logits = start.clone(), torch.full((size, size), START, device=start.device)
        y = y.to(x.device)
        learn = {"x": Adam({"x": x}, self.lr_feat), "adj": Adam({"adj": logits}, self.lr_adj)}
        task.prepare(whole)
        phase = progress.phase("matching gradients", self.epochs)
        for epoch in range(self.epochs):
            fresh = task.init(stream(seed, "matching", epoch))
            params = {name: p.to(x.device) for name, p in fresh.items()}
            found = self._epoch(task, params, x, logits, y, learn)
            if not found < float("inf"):
                raise NumericalError(
                    f"matching diverged at learning rate {self.lr_feat} of the features; try a smaller one"
                )
            phase.step(epoch + 1, f"distance {found:.3f}")
        return Nodes(Graph(x.detach(), adjacency(logits).detach()), y)

    def _epoch(
        self, task: GraphTask, params: Params, x: Tensor, logits: Tensor, y: Tensor, learn: dict[str, Adam]
    ) -> float:
        """One network; the mean distance of its steps."""
        network, lam, total = Adam(params, self.lr_model), x.new_zeros(0), 0.0
        for step in range(self.outer):
            fixed = Nodes(Graph(x, adjacency(logits)), y)
            for _ in range(self.inner if step else 0):
                network.step(*grad(task.train_loss)(params, lam, fixed).values())
            wanted = class_gradients(task, params, task.train)

            def distance(features: Tensor, edges: Tensor) -> Tensor:
                small = Nodes(Graph(features, adjacency(edges)), y)
                return gradient_distance(class_gradients(task, params, small), wanted)  # noqa: B023

            leaves = x.detach().requires_grad_(), logits.detach().requires_grad_()
            value = distance(*leaves)
            of_x, of_logits = torch.autograd.grad(value, leaves)
            learn["x"].step(of_x)
            learn["adj"].step(of_logits)
            total += float(value.detach())
        return total / self.outer


def adjacency(logits: Tensor) -> Tensor:
    """A' ``[n, n]``, symmetric, weights in (0, 1), no loops."""
    weights = torch.sigmoid((logits + logits.mT) / 2)
    return weights * (1 - torch.eye(len(logits), device=logits.device))


def class_gradients(task: GraphTask, params: Params, nodes: Nodes) -> list[Params]:
    """The gradient of the mean loss of each class in theta; differentiable in the graph."""
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    outputs = task.predict(leaves, next(iter(leaves.values())).new_zeros(0), nodes)
    each = task.losses(outputs, nodes)
    learned = isinstance(nodes.graph.x, Tensor) and nodes.graph.x.requires_grad
    found = []
    for number in range(task.num_classes):
        loss = each[nodes.y == number].mean()
        values = torch.autograd.grad(loss, list(leaves.values()), create_graph=learned, retain_graph=True)
        found.append(dict(zip(leaves, values)))
    return found


def gradient_distance(found: list[Params], wanted: list[Params]) -> Tensor:
    """Sum over classes, matrices and their outputs of 1 - cosine; vectors (biases) are left out."""
    total = next(iter(wanted[0].values())).new_zeros(())
    for ours, theirs in zip(found, wanted):
        for name, a in ours.items():
            if a.dim() == 2:
                b = theirs[name]
                lengths = a.norm(dim=1) * b.norm(dim=1) + 1e-6
                total = total + (1 - (a * b).sum(1) / lengths).sum()
    return total
