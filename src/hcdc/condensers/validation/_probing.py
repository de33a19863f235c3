"""Probes: candidates whose full-data results say what S_val must rank, and their companions.

No second derivative and no relaxation: candidates are trained on S_train, and then S_val alone changes, until
minus the validation loss orders the probes as the full data does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hcdc.condensers.validation._settings import Probing
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.core.ranks import spearman, standard, standard_ranks
from hcdc.core.recipe import Recipe
from hcdc.core.ridge import ridge
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Space, halves
from hcdc.tasks import Task
from hcdc.training import Predictor

Array = NDArray[np.float64]


def probe_configs(space: Space, count: int, seed: int) -> list[Config]:
    """The probes (role ``"probe"``); of a finite space from the condensing half, which judges nothing."""
    if space.candidates() is None:
        return space.sample(count, numpy_stream(seed, "probe"))
    half = halves(space, seed)[0]
    if count > len(half):
        raise InputError(
            f"setting 'probes' {count}: half of space '{space.name}' has only {len(half)} candidates, and "
            "the other half judges; choose at most that"
        )
    return [half[i] for i in numpy_stream(seed, "probe").permutation(len(half))[:count]]


def companion_configs(space: Space, probes: int, count: int, seed: int) -> list[Config]:
    """Candidates beside the probes; of a finite space those that follow them, as many as there are."""
    if space.candidates() is None:
        return space.sample(count, numpy_stream(seed, "companion"))
    half = halves(space, seed)[0]
    order = numpy_stream(seed, "probe").permutation(len(half))
    return [half[i] for i in order[probes : probes + count]]


def rank_targets(truth: Sequence[float]) -> Tensor:
    """Average ranks of full-data scores with mean 0 and variance 1, ``[m]``."""
    ranked = standard_ranks(truth)
    if not ranked.any():
        raise InputError("all probes have the same full-data result, so there is no order to learn from them")
    return torch.from_numpy(ranked)


def mean_loss(task: Task, predict: Predictor, data: Any) -> Tensor:
    """Loss of one candidate on a labelled set, mean over its repeats."""
    return torch.vmap(lambda outputs: task.loss(outputs, data))(predict(data)).mean()


@dataclass(frozen=True)
class Companions:
    """Candidates trained on S_train alone, which S_val must rank as is expected of them.

    Twenty probes leave most of S_val undecided: without companions it follows their chance (see
    docs/decisions.md). They cost no training on the full data.

    Attributes:
        networks: One predictor a candidate.
        scores: What is expected of each, higher is better.
    """

    networks: Sequence[Predictor]
    scores: Sequence[float]


def expectations(
    space: Space, probes: Sequence[Config], truth: Sequence[float], of: Sequence[Config]
) -> Array:
    """What the probes' ranks say of other candidates ``[n]``, by a regression on the space's features."""
    if not of:
        return np.zeros(0)
    at, fresh = (np.asarray([space.features(c) for c in some], np.float64) for some in (probes, of))
    return ridge(at, rank_targets(truth).numpy(), fresh)


@torch.no_grad()
def make_companions(
    task: Task, networks: Sequence[Predictor], expected: Array, seed: int, config: Probing
) -> Companions | None:
    """Companions, by the sum of what the probes let one expect and of minus the loss on ``pool`` images of
    T_val (all of a graph's), both standardised; None where fewer than 4 have a finite loss.

    Args:
        networks: Candidates trained on S_train.
        expected: From `expectations` ``[n]``.
    """
    real = task.pool(config.pool, seed)
    scores = np.asarray([-float(mean_loss(task, predict, real)) for predict in networks])
    kept = [k for k, score in enumerate(scores) if np.isfinite(score)]
    if len(kept) < 4 or len(set(scores[kept])) == 1:
        return None
    joined = standard(scores[kept]) + standard(np.asarray(expected)[kept])
    return Companions([networks[k] for k in kept], joined.tolist())


def choose_recipe(
    task: Task,
    truth: Sequence[float],
    recipes: Sequence[Recipe],
    trained: Callable[[Recipe], Sequence[Predictor]],
    seed: int,
    config: Probing,
    tell: Callable[[int, float], None] = lambda found, agreement: None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Recipe, list[dict[str, Any]]]:
    """The recipe with which the probes, trained on S_train, are ranked best by their loss on T_val.

    Args:
        truth: Full-data scores of the probes.
        recipes: What to choose from; of equal ones the first is taken.
        trained: The probes trained on S_train by a recipe.
        tell: Called after each recipe with how many were tried and the agreement of this one.
        checkpoint: Keeps what was found of each recipe.

    Returns:
        The recipe, and each one's Spearman correlation on the probes (None where it is not defined).
    """
    real = task.pool(config.pool, seed)
    place = checkpoint or Checkpoint(None)
    saved = place.load()
    found: list[dict[str, Any]] = [] if saved is None else saved[1]["tried"]
    for recipe in recipes[len(found) :]:
        with torch.no_grad():
            losses = np.asarray([float(mean_loss(task, predict, real)) for predict in trained(recipe)])
        reached = spearman(np.asarray(truth), -losses)  # NaN where losses are not finite
        told = reached if np.isfinite(reached) else None
        found.append({"recipe": recipe.as_dict(), "probe_spearman": told})
        place.save({}, {"tried": found})
        tell(len(found), reached)
    reached_by = [-2.0 if told["probe_spearman"] is None else told["probe_spearman"] for told in found]
    return recipes[int(np.argmax(reached_by))], found
