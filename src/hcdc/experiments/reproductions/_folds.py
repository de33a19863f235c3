"""Cross-validation as hyperparameters: phi_i = 1 if fold i is the validation set (the paper's appendix).

lambda lies in the simplex of the M folds. With L_j the mean loss on fold j,

    L^train(theta, lambda) = mean over examples of (1 - lambda_fold) loss,   L^val = sum_j lambda_j L_j,

so a one-hot lambda is ordinary cross-validation. A set without folds, such as S_val, has the same validation
loss for every lambda. Condensing by gradient or by distribution matching treats every fold on its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional as F

from hcdc.core.recipe import Recipe
from hcdc.core.seeds import stream
from hcdc.hypergrad import batched_best_response, batched_hypergradient, conjugate_gradient
from hcdc.hypergrad import response_alignment_gradient as aligned
from hcdc.networks import ConvNet, Params
from hcdc.spaces import project_simplex
from hcdc.tasks import Task
from hcdc.training import Adam, init_many, train_many

__all__ = [
    "FoldSet",
    "FoldTask",
    "Matching",
    "condensed",
    "fold_scores",
    "folded",
    "learned_val",
    "random_folds",
    "trained",
]


@dataclass(frozen=True, eq=False)
class FoldSet:
    """Examples ``x`` ``[m, ...]`` with classes ``y`` ``[m]`` in folds ``fold`` ``[m]``; None is no fold."""

    x: Tensor
    y: Tensor
    fold: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, index: Tensor) -> FoldSet:
        fold = None if self.fold is None else self.fold[index]
        return FoldSet(self.x[index], self.y[index], fold)

    def of_fold(self, number: int) -> Tensor:
        """Positions of a fold's examples."""
        assert self.fold is not None, "a set with folds"
        return (self.fold == number).nonzero().flatten()


class FoldTask(Task):
    """Softmax regression, or ConvNet-3, with folds as hyperparameters.

    Args:
        shape: Shape of an example; three numbers with a network, else any.
        classes: Number of classes.
        folds: M.
        net: The network; None is softmax regression on all numbers of an example.
        weight_decay: Coefficient of ``w/2 ||theta||^2``.
    """

    kind = "folds"

    def __init__(
        self, shape: tuple[int, ...], classes: int, folds: int, net: ConvNet | None = None,
        weight_decay: float = 5e-4,
    ):  # fmt: skip
        self.shape, self.folds, self.net, self.weight_decay = shape, folds, net, weight_decay
        self._classes = classes

    @property
    def num_classes(self) -> int:
        return self._classes

    def init(self, generator: torch.Generator) -> Params:
        if self.net is not None:
            return self.net.init(generator)
        size = torch.Size(self.shape).numel()
        weight = torch.randn(self.num_classes, size, generator=generator) / size**0.5
        return {"weight": 0.1 * weight, "bias": torch.zeros(self.num_classes)}

    def predict(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        if self.net is not None:
            return self.net.forward(params, lam, data.x)
        outputs: Tensor = data.x.flatten(1) @ params["weight"].mT + params["bias"]
        return outputs

    def penalty(self, params: Params, lam: Tensor) -> Tensor:
        return 0.5 * self.weight_decay * torch.stack([p.square().sum() for p in params.values()]).sum()

    def train_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        each = self.losses(self.predict(params, lam, data), data)
        weight = 1 - lam[data.fold]
        return (weight * each).sum() / weight.sum() + self.penalty(params, lam)

    def val_loss(self, params: Params, lam: Tensor, data: Any) -> Tensor:
        return self.held_out(self.losses(self.predict(params, lam, data), data), lam, data)

    def held_out(self, each: Tensor, lam: Tensor, data: Any) -> Tensor:
        """sum_j lambda_j mean_j of ``each`` ``[m]``; the mean of all where there are no folds."""
        if data.fold is None:
            return each.mean()
        sizes = data.fold.bincount(minlength=self.folds).clamp_min(1)
        total: Tensor = (lam[data.fold] / sizes[data.fold] * each).sum()
        return total

    def replace(self, data: Any, tensors: dict[str, Tensor]) -> Any:
        return dataclasses.replace(data, **tensors)

    def embedded(self, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """A random embedding for distribution matching: ConvNet-3's, or 128 ReLU features."""
        if self.net is not None:
            network, params = self.net, self.net.init(generator)
            return lambda x: network.features({k: p.to(x.device) for k, p in params.items()}, x)
        size = torch.Size(self.shape).numel()
        weight = torch.randn(size, 128, generator=generator) / size**0.5
        return lambda x: torch.relu(x.flatten(-len(self.shape)) @ weight.to(x.device))


def folded(x: Tensor, y: Tensor, folds: int, generator: torch.Generator) -> FoldSet:
    """Random folds of equal size; examples that are left over go."""
    size = len(y) // folds
    order = torch.randperm(len(y), generator=generator)[: size * folds].to(y.device)
    return FoldSet(x[order], y[order], torch.arange(folds, device=y.device).repeat_interleave(size))


def trained(
    task: FoldTask, lam: Tensor, data: FoldSet, recipe: Recipe, seed: int, role: str = "folds"
) -> Params:
    """theta*(lambda) for a batch ``lam`` ``[B, M]``, all from one initialisation, that of ``role``."""
    start = init_many(task, [(0,)] * len(lam), seed, role, data.y.device)
    return train_many(task, start, lam, data, recipe)


def fold_scores(task: FoldTask, params: Params, lam: Tensor, data: FoldSet) -> dict[str, list[float]]:
    """Validation loss and accuracy of each lambda ``[B]``."""

    def one(p: Params, l: Tensor) -> tuple[Tensor, Tensor]:
        outputs = task.predict(p, l, data)
        right = (outputs.argmax(-1) == data.y).to(outputs.dtype)
        return task.held_out(task.losses(outputs, data), l, data), task.held_out(right, l, data)

    with torch.no_grad():
        loss, accuracy = vmap(one)(params, lam)
    return {"loss": loss.tolist(), "accuracy": accuracy.tolist()}


def random_folds(task: FoldTask, data: FoldSet, each: int, seed: int) -> FoldSet:
    """``each`` real examples of every fold, classes in turn as far as the fold has them."""
    generator, picked = stream(seed, "folds", "random"), []
    for number in range(task.folds):
        places = data.of_fold(number).cpu()
        shuffled = places[torch.randperm(len(places), generator=generator)]
        labels = data.y.cpu()[shuffled]
        turns = torch.zeros_like(labels)
        for name in range(task.num_classes):
            mine = (labels == name).nonzero().flatten()
            turns[mine] = torch.arange(len(mine)) * task.num_classes + name
        picked.append(shuffled[turns.argsort()[:each]].sort().values)
    return data.subset(torch.cat(picked).to(data.y.device))


# --- condensing each fold -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matching:
    """How folds are condensed.

    Attributes:
        iterations: Steps on the synthetic examples.
        lr: Their learning rate.
        real: Real examples of a fold that a step sees.
        fresh: Steps with one network (gradient matching).
        inner: Training steps of that network on all folds between two steps (gradient matching).
    """

    iterations: int
    lr: float
    real: int = 200
    fresh: int = 10
    inner: int = 5


def condensed(task: FoldTask, data: FoldSet, start: FoldSet, kind: str, how: Matching, seed: int) -> FoldSet:
    """``start`` with examples learned by gradient (``"gm"``) or distribution matching (``"dm"``)."""
    generator = stream(seed, "folds", kind)
    x, y = start.x.clone(), start.y.view(task.folds, -1)
    learn, recipe = Adam({"x": x}, how.lr), Recipe(steps=max(1, how.inner), lr=0.01)
    params: Params = {}
    for iteration in range(how.iterations):
        real, labels = drawn(task, data, how.real, generator)
        leaf = x.detach().requires_grad_()
        if kind == "dm":
            distance = mean_distance(task.embedded(generator), leaf, y, real, labels, task.num_classes)
        else:
            if iteration % how.fresh == 0:
                params = {name: p.to(x.device) for name, p in task.init(generator).items()}
            wanted = fold_gradients(task, params, real, labels)
            folds = leaf.view(task.folds, -1, *x.shape[1:])
            distance = gradient_distance(fold_gradients(task, params, folds, y), wanted)
        learn.step(*torch.autograd.grad(distance, [leaf]))
        if kind == "gm" and how.inner:
            lanes = {name: p[None] for name, p in params.items()}
            small = dataclasses.replace(start, x=x)
            after = train_many(task, lanes, x.new_zeros(1, task.folds), small, recipe)
            params = {name: p[0].detach() for name, p in after.items()}
    return dataclasses.replace(start, x=x.detach())


def mean_distance(
    embed: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, real: Tensor, labels: Tensor, classes: int
) -> Tensor:
    """Squared distance of mean embeddings, class by class and fold by fold; classes that ``y`` lacks do not
    count.

    Args:
        embed: Embeddings ``[m, d]`` of examples.
        x, y: Synthetic examples, fold after fold, and their labels ``[M, q]``.
        real, labels: Real examples ``[M, b, ...]`` and labels ``[M, b]``.
        classes: Number of classes.
    """
    wanted = class_means(embed(real.flatten(0, 1)).view(*labels.shape, -1), labels, classes)
    found = class_means(embed(x).view(*y.shape, -1), y, classes)
    present = (F.one_hot(y, classes).sum(1) > 0).to(x.dtype)[..., None]
    return (present * (found - wanted)).square().sum()


def drawn(task: FoldTask, data: FoldSet, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``count`` random examples of each fold: ``x [M, count, ...]`` and ``y [M, count]``."""
    size = len(data) // task.folds  # folds come one after the other
    count = min(count, size)
    inside = torch.stack([torch.randperm(size, generator=generator)[:count] for _ in range(task.folds)])
    index = (inside + size * torch.arange(task.folds)[:, None]).to(data.y.device)
    return data.x[index], data.y[index]


def class_means(features: Tensor, y: Tensor, classes: int) -> Tensor:
    """Mean of ``features`` ``[M, m, d]`` over each class of each fold: ``[M, C, d]``, 0 where it has none."""
    member = F.one_hot(y, classes).to(features.dtype)
    return torch.einsum("fmc,fmd->fcd", member, features) / member.sum(1).clamp_min(1)[..., None]


def fold_gradients(task: FoldTask, params: Params, x: Tensor, y: Tensor) -> Params:
    """The gradient of the mean loss of every class in every fold, ``[M, C, ...]`` each; differentiable."""

    def loss(p: Params, images: Tensor, labels: Tensor, number: Tensor) -> Tensor:
        some = FoldSet(images, labels)
        each = task.losses(task.predict(p, images.new_zeros(0), some), some)
        mine = (labels == number).to(each.dtype)
        return (mine * each).sum() / mine.sum().clamp_min(1)

    by_class = vmap(grad(loss), (None, None, None, 0))
    found: Params = vmap(by_class, (None, 0, 0, None))(
        params, x, y, torch.arange(task.num_classes, device=y.device)
    )
    return found


def gradient_distance(found: Params, wanted: Params) -> Tensor:
    """Sum over folds, classes, tensors and their outputs of 1 - cosine, without biases."""
    total = next(iter(wanted.values())).new_zeros(())
    for name, b in wanted.items():
        if b.dim() < 4:  # fold, class, output: a bias
            continue
        a, b = found[name].flatten(3), b.flatten(3)
        total = total + (1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + 1e-6)).sum()
    return total


# --- HCDC ---------------------------------------------------------------------------------------------------


def learned_val(
    task: FoldTask,
    data: FoldSet,
    s_train: FoldSet,
    start: FoldSet,
    recipe: Recipe,
    seed: int,
    *,
    points: int,
    steps: int,
    lr: float,
    system: int,
) -> tuple[FoldSet, float, float]:
    """S_val by aligned hypergradients, as in Algorithm 1: theta comes from S_train, no full training is used.

    Trajectories start at the M folds and move against the synthetic hypergradient.

    Args:
        task, data: The task and the original examples.
        s_train, start: The synthetic training set, and S_val before learning.
        recipe: How theta is trained on S_train.
        seed: Seed of the initialisation.
        points: Lambdas on each trajectory.
        steps, lr: Adam steps on S_val, and their size.
        system: Original training examples in the linear systems.

    Returns:
        S_val, and the alignment loss before and after.
    """
    solver = conjugate_gradient(20, damping=1e-2)
    lam = torch.eye(task.folds, device=data.y.device)
    some = data.subset(torch.randperm(len(data), generator=stream(seed, "system"))[:system].to(lam.device))
    parts: list[tuple[Params, Tensor, Params, Tensor]] = []
    for _ in range(points):
        theta = trained(task, lam, s_train, recipe, seed)
        response = batched_best_response(task, theta, lam, s_train, solver, "hessian", chunk_size=5)
        original = batched_hypergradient(task, theta, lam, some, data, solver, "hessian", chunk_size=5).total
        parts.append((theta, lam, response, centred(original)))
        found = batched_hypergradient(task, theta, lam, s_train, start, solver, "hessian", chunk_size=5).total
        direction = centred(found)
        lam = project_simplex(lam - 0.25 * direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12))
    theta = {name: torch.cat([part[0][name] for part in parts]) for name in parts[0][0]}
    lams, wanted = (torch.cat([part[k] for part in parts]) for k in (1, 3))  # type: ignore[misc]
    response = {name: centred_rows(torch.cat([part[2][name] for part in parts])) for name in parts[0][2]}
    x = start.x.clone()
    learn, losses = Adam({"x": x}, lr), []
    for _ in range(steps):
        s_val = dataclasses.replace(start, x=x.detach())
        loss, gradient = aligned(task, theta, lams, response, wanted, s_val, "cosine")
        learn.step(gradient["x"])
        losses.append(float(loss))
    return dataclasses.replace(start, x=x.detach()), losses[0], losses[-1]


def centred(g: Tensor) -> Tensor:
    """The part of hypergradients ``[B, M]`` within the simplex, whose points sum to 1."""
    return g - g.mean(-1, keepdim=True)


def centred_rows(response: Tensor) -> Tensor:
    """J ``[B, M, ...]`` along directions within the simplex."""
    return response - response.mean(1, keepdim=True)
