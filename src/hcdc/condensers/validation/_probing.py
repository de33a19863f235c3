"""Probes, candidates whose full-data results S_val must reproduce in rank, and their companions.

No second derivative and no relaxation is needed: candidates are trained on S_train, and then only S_val
changes until minus the validation loss orders the probes as the full data does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from hcdc.core.posterior import Results, expected_scores
from hcdc.core.ranks import spearman, standard_ranks
from hcdc.core.recipe import Recipe
from hcdc.core.ridge import ridge
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Space, halves
from hcdc.tasks import Task
from hcdc.training import Predictor
from hcdc.training.free import free_scores

Array = NDArray[np.float64]

FREE = ("jacov", "naswot", "synflow")
"""Training-free scores among the figures that promise a good candidate."""


def probe_configs(space: Space, count: int, seed: int) -> list[Config]:
    """The probes (role ``"probe"``); in a finite space from the condensing half, which never judges."""
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
    """Candidates besides the probes; in a finite space those that follow them, as many as there are."""
    if space.candidates() is None:
        return space.sample(count, numpy_stream(seed, "companion"))
    half = halves(space, seed)[0]
    order = numpy_stream(seed, "probe").permutation(len(half))
    return [half[i] for i in order[probes : probes + count]]


def rank_targets(truth: Sequence[float]) -> Tensor:
    """Average ranks of full-data scores, standardised to mean 0 and variance 1, ``[m]``."""
    ranked = standard_ranks(truth)
    if not ranked.any():
        raise InputError("all probes have the same full-data result, so there is no order to learn from them")
    return torch.from_numpy(ranked)


def mean_loss(task: Task, predict: Predictor, data: Any) -> Tensor:
    """Mean loss of one candidate on a labelled set over its repeats."""
    return torch.vmap(lambda outputs: task.loss(outputs, data))(predict(data)).mean()


@dataclass(frozen=True)
class Companions:
    """Candidates without full-data scores; their predicted ranks keep S_val from overfitting the probes.

    Twenty probes leave most of S_val undetermined (see docs/decisions.md). Companions are trained on S_train
    only, so they cost no training on the full data.

    Attributes:
        networks: One predictor per candidate.
        scores: The predicted score of each, higher is better.
    """

    networks: Sequence[Predictor]
    scores: Sequence[float]


def expectations(
    space: Space,
    probes: Sequence[Config],
    truth: Sequence[float],
    of: Sequence[Config],
    figures: Mapping[str, Array] | None = None,
) -> Array:
    """Predict other candidates' ranks ``[n]`` from the probes'.

    Args:
        space: The search space.
        probes, truth: The probes and their full-data scores.
        of: The other candidates.
        figures: What promises a good candidate (`free_figures`), by name, of the probes and then of the
            others; the prediction is then that of `hcdc.core.posterior`, otherwise a ridge regression on the
            space's features.
    """
    if not of:
        return np.zeros(0)
    target = rank_targets(truth).numpy()
    if figures is None:
        at, fresh = (np.asarray([space.features(c) for c in some], np.float64) for some in (probes, of))
        return ridge(at, target, fresh)
    known = np.asarray([describe(space, config) for config in (*probes, *of)], np.float64)
    return expected_scores(known, figures, full=Results(np.arange(len(probes)), target))[len(probes) :]


def describe(space: Space, config: Config) -> list[float]:
    """Everything that a space knows of a configuration without training: lambda, features, structure."""
    figures = {**space.structure(config), **space.promises(config)}
    return [*space.encode(config).tolist(), *space.features(config), *figures.values()]


def outline(space: Space, config: Config) -> list[float]:
    """The same without lambda: fewer figures, for values with much noise."""
    figures = {**space.structure(config), **space.promises(config)}
    return [*space.features(config), *figures.values()]


def free_figures(task: Task, space: Space, configs: Sequence[Config], seed: int = 0) -> dict[str, Array]:
    """Figures of untrained candidates of which more promises more, by name ``[n]`` each.

    Training-free scores that are not defined for all of these networks are left out.
    """
    count = [space.parameter_count(config, task.features, task.num_classes or 1) or 0 for config in configs]
    promises = [space.promises(config) for config in configs]
    found = {"parameters": count, **{name: [one[name] for one in promises] for name in promises[0]}}
    scores = _defined_scores(task, space, configs, seed)
    every = {name: np.asarray(values, np.float64) for name, values in {**found, **scores}.items()}
    return {name: np.where(np.isnan(values), -np.inf, values) for name, values in every.items()}


def _defined_scores(task: Task, space: Space, configs: Sequence[Config], seed: int) -> dict[str, list[float]]:
    """Those of `FREE` that are defined for every candidate, not only for the first."""
    names = () if task.without_gradients() else FREE
    with suppress(InputError):
        return free_scores(task, space, configs, names, seed)
    found: dict[str, list[float]] = {}
    for name in names:
        with suppress(InputError):
            found |= free_scores(task, space, configs, [name], seed)
    return found


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
    """The recipe whose probes, trained on S_train, are ranked best by their loss on T_val.

    Args:
        truth: Full-data scores of the probes.
        recipes: What to choose from; the first wins ties.
        trained: Trains the probes on S_train by a recipe.
        tell: Called after each recipe with the number tried and this one's agreement.
        checkpoint: Stores the result of each recipe.

    Returns:
        The recipe, and every recipe's Spearman correlation on the probes (None if undefined).
    """
    real = task.pool(config.pool, seed)
    place = checkpoint or Checkpoint(None)
    saved = place.load()
    found: list[dict[str, Any]] = [] if saved is None else saved[1]["tried"]
    for recipe in recipes[len(found) :]:
        with torch.no_grad():
            losses = np.asarray([float(mean_loss(task, predict, real)) for predict in trained(recipe)])
        reached = spearman(np.asarray(truth), -losses)  # NaN if losses are not finite
        told = reached if np.isfinite(reached) else None
        found.append({"recipe": recipe.as_dict(), "probe_spearman": told})
        place.save({}, {"tried": found})
        tell(len(found), reached)
    reached_by = [-2.0 if told["probe_spearman"] is None else told["probe_spearman"] for told in found]
    return recipes[int(np.argmax(reached_by))], found
