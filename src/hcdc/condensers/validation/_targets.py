"""What companions are expected to reach: the targets that S_val follows besides the probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hcdc.condensers.validation._probing import (
    Array,
    Companions,
    describe,
    expectations,
    free_figures,
    mean_loss,
    outline,
    rank_targets,
)
from hcdc.condensers.validation._settings import Probing
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config, config_hash
from hcdc.core.posterior import Results, corrected, expected_scores
from hcdc.core.ranks import standard
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training import Predictor


@dataclass(frozen=True)
class Known:
    """What is known when companions get their scores.

    Attributes:
        task, space: What is learned and searched.
        probes, truth: The probes and their full-data scores.
        others: The companions.
        networks: The probes, then the companions, trained on S_train.
        pool: Real validation examples that score them.
        seed: Of training-free scores.
        place: Where training-free scores are kept.
    """

    task: Task
    space: Space
    probes: Sequence[Config]
    truth: Sequence[float]
    others: Sequence[Config]
    networks: Sequence[Predictor]
    pool: int
    seed: int
    place: Checkpoint

    def free(self) -> dict[str, Array]:
        """`free_figures` of probes and companions, computed once."""
        every = [*self.probes, *self.others]
        mark = [config_hash(config) for config in every]
        if (saved := self.place.load()) is not None and saved[1]["of"] == mark:
            return {name: np.asarray(values) for name, values in saved[1]["figures"].items()}
        found = free_figures(self.task, self.space, every, self.seed)
        self.place.save({}, {"of": mark, "figures": {name: list(values) for name, values in found.items()}})
        return found


def by_ridge(known: Known) -> Array:
    """A ridge regression of the probes' ranks on the space's features."""
    return expectations(known.space, known.probes, known.truth, known.others)


def by_model(known: Known) -> Array:
    """`modelled`, with the real losses and scores of probes and companions trained on S_train."""
    if not known.others:
        return np.zeros(0)
    real = known.task.pool(known.pool, known.seed)
    figures = {**known.free(), **copied_figures(known.task, known.networks, real)}
    return modelled(known.space, known.probes, known.truth, known.others, figures)


def modelled(
    space: Space,
    probes: Sequence[Config],
    truth: Sequence[float],
    others: Sequence[Config],
    figures: Mapping[str, Array],
    basis: int | None = None,
) -> Array:
    """Posterior mean of the full scores of other candidates, given everything known ``[n]``.

    ``E[f | y] = m + k (K + sigma^2 I)^-1 (y - m)``: y are the probes' scores, m the summed ranks of
    ``figures``; loss and accuracy on S_train are first corrected for their noise by a process of their own.

    Args:
        space: The search space.
        probes, truth: The probes and their full-data scores.
        others: The other candidates.
        figures: What promises a good candidate, by name, of the probes and then of the others. ``"loss"``
            (minus the loss) and ``"accuracy"`` come from networks trained on S_train.
        basis: From how many of the first candidates noise is learned; all by default.
    """
    every = [*probes, *others]
    shape = np.asarray([outline(space, config) for config in every], np.float64)
    some = np.arange(len(every) if basis is None else min(basis, len(every)))
    clear = {name: corrected(shape, figures[name], some) for name in COPIED if name in figures}
    at = np.asarray([describe(space, config) for config in every], np.float64)
    full = Results(np.arange(len(probes)), rank_targets(truth).numpy())
    return expected_scores(at, {**figures, **clear}, full=full)[len(probes) :]


COPIED = ("loss", "accuracy")
"""Figures of networks trained on S_train."""


@torch.no_grad()
def copied_figures(task: Task, networks: Sequence[Predictor], data: Any) -> dict[str, Array]:
    """Minus the loss, and the accuracy, of trained networks on real examples ``[n]`` each.

    Values that are not finite count as the worst finite one.
    """
    found: dict[str, list[float]] = {name: [] for name in COPIED}
    for predict in networks:
        found["loss"].append(-float(mean_loss(task, predict, data)))
        found["accuracy"].append(
            float(torch.stack([task.score(outputs, data) for outputs in predict(data)]).mean())
        )
    return {name: _finite(np.asarray(values, np.float64)) for name, values in found.items()}


def _finite(values: Array) -> Array:
    known = np.isfinite(values)
    return np.where(known, values, values[known].min() if known.any() else 0.0)


@dataclass(frozen=True)
class Target:
    """A way to score companions.

    Attributes:
        expect: What is expected of them ``[n]``.
        loss: Weight of minus their real loss beside it, both standardised.
    """

    expect: Callable[[Known], Array]
    loss: float


TARGETS: dict[str, Target] = {"ridge": Target(by_ridge, 1.0), "model": Target(by_model, 0.0)}
"""Targets by name, as in the setting ``target``. The model knows the real loss already."""


@torch.no_grad()
def make_companions(
    task: Task,
    networks: Sequence[Predictor],
    expected: Array,
    seed: int,
    config: Probing,
    metric: str = "loss",
) -> Companions | None:
    """Companions, scored by what is expected of them plus, for target ``"ridge"``, minus the loss on ``pool``
    images of T_val (for graphs all of T_val), both standardised; None if fewer than 4 have a finite loss.

    If S_val ranks by accuracy, the accuracy replaces minus the loss.

    Args:
        networks: Candidates trained on S_train.
        expected: Result of the target's `Target.expect` ``[n]``.
    """
    real = task.pool(config.pool, seed)
    scores = np.asarray([-float(mean_loss(task, predict, real)) for predict in networks])
    if metric == "accuracy":
        right = [
            float(torch.stack([task.score(o, real) for o in predict(real)]).mean()) for predict in networks
        ]
        scores = np.where(np.isfinite(scores), right, scores)
    kept = [k for k, score in enumerate(scores) if np.isfinite(score)]
    if len(kept) < 4 or len(set(scores[kept])) == 1:
        return None
    joined = TARGETS[config.target].loss * standard(scores[kept]) + standard(np.asarray(expected)[kept])
    return Companions([networks[k] for k in kept], joined.tolist())
