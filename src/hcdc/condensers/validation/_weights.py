"""Weighting real validation examples by the probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hcdc.condensers.validation._objectives import bradley_terry_bound, bradley_terry_slope
from hcdc.condensers.validation._probing import Array, Companions, rank_targets
from hcdc.condensers.validation._settings import Probing
from hcdc.core.errors import NumericalError
from hcdc.core.ranks import spearman
from hcdc.tasks import Task
from hcdc.training import Predictor

FLOOR = 0.01
"""Weight, relative to the mean, of a class's only example if the fit would leave it out."""


@torch.no_grad()
def example_losses(task: Task, networks: Sequence[Predictor], data: Any, metric: str = "loss") -> Array:
    """Loss of every trained candidate on every example ``[m, n]``, mean over repeats; errors by accuracy."""

    def of(outputs: Tensor) -> Tensor:
        wrong: Tensor = outputs.argmax(-1) != data.y
        return task.losses(outputs, data) if metric == "loss" else wrong.to(outputs.dtype)

    rows = []
    for predict in networks:
        each = [of(outputs) for outputs in predict(data)]
        rows.append(torch.stack(each).mean(0).double())
    return torch.stack(rows).cpu().numpy()


def fit_weights(a: Array, target: Array, ridge: float, steps: int = 500) -> Array:
    """Non-negative weights ``[n]`` that bring minus the weighted loss closest to ``target`` ``[m]``.

    ``min_w |A w - target|^2 + ridge |w - w_0|^2, w >= 0``, where A is minus the centred losses ``[m, n]``
    with columns of mean square length 1, and w_0 the best equal weights; by accelerated projected gradients.
    """
    a, start = _scaled(a, target)
    return _descend(a, lambda scores: scores - target, 1.0, start, ridge, steps)


def fit_top_weights(
    rows: Sequence[Array], targets: Sequence[Array], ridge: float, steps: int = 2000
) -> Array:
    """Non-negative weights ``[n]`` that order groups of candidates as their targets do, the top first.

    ``min_w sum_g m_1 BT(A_g w, target_g) + ridge / 2 |w - w_0|^2, w >= 0``, where BT is `bradley_terry`, m_1
    the size of the first group, and A and w_0 are those of `fit_weights`. It is convex.

    Args:
        rows: Minus the centred losses of each group ``[m_g, n]``.
        targets: The targets of each group ``[m_g]``.
    """
    shares = _shares(rows)
    a, start = _scaled(*(_joined(shares, some) for some in (rows, targets)))
    orders, cuts = [torch.from_numpy(target) for target in targets], np.cumsum([len(g) for g in rows])[:-1]

    def slope(scores: Array) -> Array:
        parts = zip(np.split(scores, cuts), orders, shares)
        found = [bradley_terry_slope(torch.from_numpy(part / s), order).numpy() for part, order, s in parts]
        return _joined(shares, found)

    return _descend(a, slope, max(map(bradley_terry_bound, orders)), start, ridge, steps)


def _scaled(a: Array, target: Array) -> tuple[Array, Array]:
    """A with columns of mean square length 1, and the best equal weights."""
    a = a / max(np.sqrt((a**2).sum() / a.shape[1]), 1e-12)
    equal = a.sum(1)
    level = max(float(equal @ target) / max(float(equal @ equal), 1e-12), 1e-6)
    return a, np.full(a.shape[1], level)


def _descend(
    a: Array, slope: Callable[[Array], Array], bound: float, start: Array, ridge: float, steps: int
) -> Array:
    """Minimise ``f(A w) + ridge / 2 |w - start|^2`` over ``w >= 0`` by accelerated projected gradients.

    Args:
        slope: Gradient of f ``[m]``.
        bound: Upper bound of its largest curvature.
    """
    size = bound * float(np.linalg.norm(a @ a.T, 2)) + ridge
    w = ahead = start
    t = 1.0
    for _ in range(steps):
        found = np.maximum(ahead - (a.T @ slope(a @ ahead) + ridge * (ahead - start)) / size, 0.0)
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = found + (t - 1) / t_next * (found - w)
        w, t = found, t_next
    return w


def _fit_near(rows: Sequence[Array], targets: Sequence[Array], ridge: float) -> Array:
    """`fit_weights` of all groups, each of which weighs as much as the first."""
    shares = _shares(rows)
    return fit_weights(_joined(shares, rows), _joined(shares, targets), ridge)


def _shares(rows: Sequence[Array]) -> list[float]:
    """Factors by which every group weighs as much as the first, in sums of squares."""
    return [float(np.sqrt(len(rows[0]) / len(group))) for group in rows]


def _joined(shares: Sequence[float], parts: Sequence[Array]) -> Array:
    return np.concatenate([share * part for share, part in zip(shares, parts)])


FITS: dict[str, Callable[[Sequence[Array], Sequence[Array], float], Array]] = {
    "correlation": _fit_near,
    "top": fit_top_weights,
}
"""How weights are fitted to groups of rows and targets, by name, as in the setting ``objective``."""


def weigh_examples(
    task: Task,
    networks: Sequence[Predictor],
    truth: Sequence[float],
    val_size: int,
    seed: int,
    config: Probing,
    companions: Companions | None = None,
    metric: str = "loss",
) -> tuple[Any, list[dict[str, Any]]]:
    """Real validation examples with weights fitted to the probes.

    From ``pool`` random examples, this keeps the ``val_size`` whose losses fall most clearly with the scores
    (sum over probes and companions of the correlation times the root of their number) and weights them. It
    only uses the matrix of losses, no gradients. Companions count as much as the probes in the weights.

    By the metric ``"accuracy"`` the losses are errors, 0 or 1, and S_val ranks by its weighted accuracy.

    Every class of the pool is represented (values are one class): its clearest example is kept, with a weight
    of at least `FLOOR` times the mean if no other example of the class has any.

    Returns:
        S_val and its Spearman on the probes, ``probe_spearman`` (``probe_correlation`` in older records).
    """
    pool = task.pool(max(config.pool, val_size), seed)
    groups = [(networks, truth)]
    if companions is not None:
        groups.append((companions.networks, companions.scores))
    clear = np.zeros(len(pool))
    for members, scores in groups:
        centred = _centred(example_losses(task, members, pool, metric))
        clear += rank_targets(scores).numpy() @ centred / np.sqrt((centred**2).sum(0) + 1e-12)
    kept = clearest(clear, _groups(task, pool), val_size)
    chosen = task.subset(pool, torch.from_numpy(kept).to(pool.y.device))
    rows, targets = [], []
    for members, scores in groups:
        losses = example_losses(
            task, members, chosen, metric
        )  # again: BatchNorm now only sees these examples
        rows.append(_centred(losses))
        targets.append(rank_targets(scores).numpy())
    weight = FITS[config.objective](rows, targets, config.ridge)
    if not weight.any():
        raise NumericalError(
            "on every validation example the probes' losses rise with their full-data scores, so no weights "
            "rank them; choose val_method 'probes', or train longer on the copy"
        )
    weight = with_every_class(weight / weight.sum() * len(weight), clear[kept], _groups(task, chosen))
    reached = spearman(np.asarray(truth), rows[0] @ weight)
    weighted = task.replace(chosen, {"weight": torch.from_numpy(weight).to(chosen.y.device, torch.float32)})
    return weighted, [{"step": 1, "probe_spearman": float(reached), "nonzero": int((weight > 0).sum())}]


def clearest(clear: Array, labels: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The ``size`` clearest examples, sorted by position, including the clearest of each class."""
    order = np.argsort(-clear, kind="stable")
    first = np.unique(labels[order], return_index=True)[1]  # positions in the order
    rest = np.setdiff1d(np.arange(len(order)), first)
    places = np.concatenate([np.sort(first), rest])[:size]
    found: NDArray[np.int64] = np.sort(order[places])
    return found


def with_every_class(weight: Array, clear: Array, labels: NDArray[np.int64]) -> Array:
    """Weights with mean 1 and a positive one per class: a class without any gets `FLOOR` on its clearest."""
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    without = [members[np.argmax(clear[members])] for members in groups if not weight[members].any()]
    if not without:
        return weight
    weight = weight.copy()
    weight[without] = FLOOR
    found: Array = weight / weight.sum() * len(weight)
    return found


def _groups(task: Task, data: Any) -> NDArray[np.int64]:
    """The class of each example; regression has one."""
    if task.num_classes is None:
        return np.zeros(len(data), np.int64)
    labels: NDArray[np.int64] = data.y.cpu().numpy()
    return labels


def _centred(losses: Array) -> Array:
    """How far each loss lies below the candidates' mean on each example ``[m, n]``."""
    found: Array = losses.mean(0) - losses
    return found
