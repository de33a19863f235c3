"""The test protocol published with GCond: train a 2-layer GCN on a condensed graph, test on the original.

logits = P relu(P X W1 + b1) W2 + b2 with P = D^-1/2 (A + I) D^-1/2. Several seeds train at once: their first
weights are columns ``[d, S * h]`` of one matrix, so one product with the graph serves all of them. Only some
nodes need logits; features and P are reduced to what these nodes see once, before training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.errors import InputError, NumericalError
from hcdc.core.seeds import derive
from hcdc.core.settings import Settings, setting
from hcdc.core.sparse import SparseMatrix
from hcdc.datasets import GraphData, Matrix, Nodes
from hcdc.tasks import GraphTask
from hcdc.training._adam import Adam

GCNParams = dict[str, Tensor]
"""``w1 [d, S, h]``, ``b1 [S, h]``, ``w2 [S, h, C]``, ``b2 [S, C]`` of S networks."""


@dataclass(frozen=True)
class GCNRecipe(Settings):
    """The published settings.

    Attributes:
        steps: Adam steps; halfway, the learning rate falls to a tenth and the optimiser restarts.
        hidden: Width of the hidden layer.
        lr: Learning rate in the first half.
        weight_decay: Coefficient of ``w/2 ||theta||^2`` (0 for ogbn-arxiv in the reference).
        dropout: Share of hidden units dropped in training.
    """

    steps: int = setting(600, least=1)
    hidden: int = setting(256, least=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(5e-4, least=0)
    dropout: float = setting(0.5, least=0, below=1)

    @classmethod
    def owner(cls) -> str:
        return "a GCN recipe"


@dataclass(frozen=True, eq=False)
class GCNInputs:
    """A graph reduced to what its labelled nodes see.

    Attributes:
        first: Matrices whose product is P X around the labelled nodes; the last is applied first.
        second: P from that neighbourhood to the labelled nodes ``[m, r]``; None is the identity.
    """

    first: tuple[Matrix, ...]
    second: Matrix | None


@dataclass(frozen=True, eq=False)
class GCNRun:
    """The result of training.

    Attributes:
        last: Parameters after the last step.
        best: Parameters at the first step with the best validation accuracy; ``last`` without validation.
        best_step: That step per seed, counted from 1.
        val_accuracy: Validation accuracy at that step; NaN without validation.
    """

    last: GCNParams
    best: GCNParams
    best_step: list[int]
    val_accuracy: list[float]


def _restrict(p: SparseMatrix, index: np.ndarray[Any, Any]) -> tuple[SparseMatrix, np.ndarray[Any, Any]]:
    """The rows ``index`` of P and the columns they touch; ``(matrix [m, r], columns [r])``."""
    part = p.to_scipy()[index]
    columns = np.unique(part.indices)
    return SparseMatrix.from_scipy(part[:, columns], p.dtype).to(p.device), columns


def gcn_inputs(nodes: Nodes) -> GCNInputs:
    """Reduce a graph to what a 2-layer GCN needs for the labelled nodes of ``nodes``.

    Dense features are propagated once; sparse ones stay two factors (P, X), which have fewer entries than PX.
    """
    p, x = nodes.graph.propagation(), nodes.graph.x
    index = nodes.positions()
    if p is None:
        return GCNInputs((x.rows(index) if isinstance(x, SparseMatrix) else x[index],), None)
    if isinstance(p, Tensor):
        return GCNInputs((p @ (x.to_dense() if isinstance(x, SparseMatrix) else x),), p[index])
    second, near = _restrict(p, index.cpu().numpy())
    first, far = _restrict(p, near)
    seen = torch.from_numpy(far).to(index.device)
    if isinstance(x, SparseMatrix):
        return GCNInputs((first, x.rows(seen)), second)
    return GCNInputs((first.multiply(x[seen]),), second)


def gcn_logits(params: GCNParams, inputs: GCNInputs, keep: Tensor | None = None) -> Tensor:
    """Logits ``[m, S, C]`` of S networks at the labelled nodes.

    Args:
        params: The networks.
        inputs: See `gcn_inputs`.
        keep: Dropout factors for the hidden units ``[r, S, h]``; None keeps all units.
    """
    w1, w2 = params["w1"], params["w2"]
    hidden = w1.flatten(1)
    for matrix in reversed(inputs.first):
        hidden = matrix @ hidden
    hidden = torch.relu(hidden.view(-1, *w1.shape[1:]) + params["b1"])
    if keep is not None:
        hidden = hidden * keep
    out = torch.einsum("rsh,shc->rsc", hidden, w2)
    if inputs.second is not None:
        out = (inputs.second @ out.flatten(1)).view(-1, *out.shape[1:])
    return out + params["b2"]


def _init(features: int, classes: int, hidden: int, generators: Sequence[torch.Generator]) -> GCNParams:
    """Draw weights and biases uniformly in +-1/sqrt(inputs of the layer), one generator per network."""
    drawn: dict[str, list[Tensor]] = {"w1": [], "b1": [], "w2": [], "b2": []}
    for generator in generators:
        for layer, (fan_in, fan_out) in enumerate([(features, hidden), (hidden, classes)], 1):
            bound = 1 / math.sqrt(fan_in)
            for name, shape in ((f"w{layer}", (fan_in, fan_out)), (f"b{layer}", (fan_out,))):
                drawn[name].append((torch.rand(shape, generator=generator) * 2 - 1) * bound)
    return {name: torch.stack(tensors, 1 if name == "w1" else 0) for name, tensors in drawn.items()}


def _accuracy(params: GCNParams, inputs: GCNInputs, y: Tensor) -> Tensor:
    """Accuracy of each network ``[S]``."""
    with torch.no_grad():
        return (gcn_logits(params, inputs).argmax(-1) == y[:, None]).double().mean(0).cpu()


def train_gcn(
    nodes: Nodes,
    num_classes: int,
    seeds: Sequence[int],
    recipe: GCNRecipe | None = None,
    *,
    val: Nodes | None = None,
    on_step: Callable[[int], None] | None = None,
) -> GCNRun:
    """Train one GCN per seed on labelled nodes; a network does not depend on how many others are trained.

    Args:
        nodes: A condensed graph or the original training nodes.
        num_classes: Number of classes.
        seeds: Seeds for initialisation and dropout, one per network.
        recipe: The settings; defaults to the published ones.
        val: Nodes whose accuracy chooses the best step; None chooses none.
        on_step: Called with the number of steps done.
    """
    recipe = recipe or GCNRecipe()
    inputs, device = gcn_inputs(nodes), nodes.graph.device
    hidden_rows = inputs.first[0].shape[0]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    start = _init(nodes.graph.num_features, num_classes, recipe.hidden, generators)
    params = {name: p.to(device, nodes.graph.x.dtype).requires_grad_() for name, p in start.items()}
    val_inputs = None if val is None else gcn_inputs(val)
    best = {name: p.detach().clone() for name, p in params.items()}
    best_accuracy, best_step = torch.full((len(seeds),), -1.0, dtype=torch.float64), [0] * len(seeds)

    for step in range(1, recipe.steps + 1):
        if step in (1, recipe.steps // 2 + 1):
            lr = recipe.lr if step <= recipe.steps // 2 else 0.1 * recipe.lr
            optimiser = Adam(params, lr, recipe.weight_decay)
        keep = None
        if recipe.dropout:
            draws = [torch.rand(hidden_rows, recipe.hidden, generator=g) for g in generators]
            mask = (torch.stack(draws, 1) >= recipe.dropout).to(device, nodes.graph.x.dtype)
            keep = mask / (1 - recipe.dropout)
        logits = gcn_logits(params, inputs, keep)
        each = F.cross_entropy(
            logits.transpose(1, 2), nodes.y[:, None].expand(-1, len(seeds)), reduction="none"
        )
        loss = (
            each.mean(0)
            if nodes.weight is None
            else (each * nodes.weight[:, None]).sum(0) / nodes.weight.sum()
        )
        optimiser.step(*torch.autograd.grad(loss.sum(), list(params.values())))
        if val is not None and val_inputs is not None:
            accuracy = _accuracy(params, val_inputs, val.y)
            for s in torch.nonzero(accuracy > best_accuracy).flatten().tolist():
                best_accuracy[s], best_step[s] = accuracy[s], step
                for name, p in params.items():
                    at = (slice(None), s) if name == "w1" else (s,)
                    best[name][at] = p.detach()[at]
        if on_step is not None:
            on_step(step)
    last = {name: p.detach() for name, p in params.items()}
    if not all(bool(p.isfinite().all()) for p in last.values()):
        raise NumericalError(f"the GCN's training diverged at learning rate {recipe.lr}; try a smaller one")
    if val is None:
        return GCNRun(last, last, [recipe.steps] * len(seeds), [math.nan] * len(seeds))
    return GCNRun(last, best, best_step, best_accuracy.tolist())


def gcn_accuracy(
    condensed: Nodes,
    data: GraphData,
    seeds: int = 5,
    *,
    seed: int = 0,
    setting: str = "transductive",
    recipe: GCNRecipe | None = None,
) -> dict[str, Any]:
    """Accuracy of 2-layer GCNs trained on a condensed graph, by the published protocol.

    The *original* validation nodes choose the step; the published figure is the test accuracy at that step.
    The test accuracy after the last step, which involves no such choice, is also returned.

    Args:
        condensed: The condensed training graph.
        data: The original data.
        seeds: Number of networks.
        seed: Seed for the whole measurement.
        setting: ``"transductive"`` or ``"inductive"`` (validation and test nodes in their own subgraphs).
        recipe: Defaults to the published settings.

    Returns:
        ``test_accuracy`` and ``last_step_test_accuracy`` (means over networks), ``test_std``,
        ``val_accuracy``, and the lists ``test_accuracies``, ``last_step_test_accuracies``, ``best_steps``;
        accuracies are between 0 and 1.
    """
    if seeds < 1:
        raise InputError(f"seeds {seeds}: at least 1 network is needed")
    task = GraphTask(data, setting=setting)
    run = train_gcn(
        condensed, data.num_classes, [derive(seed, "gcn", k) for k in range(seeds)], recipe, val=task.val
    )
    test = gcn_inputs(task.test)
    at_best, at_last = _accuracy(run.best, test, task.test.y), _accuracy(run.last, test, task.test.y)
    return {
        "test_accuracy": float(at_best.mean()),
        "test_std": float(at_best.std(correction=0)),
        "last_step_test_accuracy": float(at_last.mean()),
        "val_accuracy": float(np.mean(run.val_accuracy)),
        "test_accuracies": at_best.tolist(),
        "last_step_test_accuracies": at_last.tolist(),
        "best_steps": run.best_step,
    }
