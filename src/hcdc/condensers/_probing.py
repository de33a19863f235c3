"""S_val from probes: candidates whose full-data results are known say what the validation set must rank.

No second derivative and no relaxation: candidates are trained on S_train, and then S_val alone changes, until
minus the validation loss orders the probes as the full data does. Either the examples of S_val are learned
(``"probes"``), or real validation examples get weights (``"weighted"``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config
from hcdc.core.errors import InputError, NumericalError
from hcdc.core.progress import Phase
from hcdc.core.ranks import spearman, standard, standard_ranks
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.spaces import Space, halves
from hcdc.tasks import Task
from hcdc.training import CapturedMany, Predictor, adam_step

Array = NDArray[np.float64]
PENALTY = 10.0
"""Of the regression on the probes' features (`expectations`), chosen for cells and 20 probes on tuning cells
(`records/tuning/images.md`); `Probing.ridge` is another one."""
FEWEST = 4
"""Probes with a finite result, at least."""


@dataclass(frozen=True)
class Probing:
    """Settings of the two ways to learn S_val from probes.

    Attributes:
        probes: How many candidates have their full-data result looked up or trained.
        probe_steps: Adam steps on the examples of S_val.
        probe_lr: Their learning rate.
        pool: Real validation examples among which weighted ones are chosen.
        ridge: Strength with which weights are held at equal ones.
        companions: How many further candidates are trained on S_train alone, see `Companions`; of a finite
            space at most what the probes leave of the condensing half.
        calibrate: Choose the recipe on the copy by the probes, see `choose_recipe`.
    """

    probes: int = 20
    probe_steps: int = 60
    probe_lr: float = 0.01
    pool: int = 2000
    ridge: float = 10.0
    companions: int = 0
    calibrate: bool = False

    def __post_init__(self) -> None:
        for name, fits, allowed in (
            ("probes", self.probes >= FEWEST, f"at least {FEWEST}"),
            ("probe_steps", self.probe_steps >= 1, "at least 1"),
            ("probe_lr", self.probe_lr > 0, "more than 0"),
            ("pool", self.pool >= 1, "at least 1"),
            ("ridge", self.ridge > 0, "more than 0"),
            ("companions", self.companions == 0 or self.companions >= 4, "0 or at least 4"),
        ):
            if not fits:
                raise InputError(
                    f"setting '{name}' of method 'hcdc' must be {allowed}, got {getattr(self, name)}"
                )

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


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


def correlation(losses: Tensor, target: Tensor) -> Tensor:
    """Pearson's correlation of minus the losses ``[m]`` with standardised targets ``[m]``."""
    centred = losses.mean() - losses
    return (centred * target).mean() / (centred.square().mean().sqrt() + 1e-12)


def mean_loss(task: Task, predict: Predictor, data: Any) -> Tensor:
    """Loss of one candidate on a labelled set, mean over its repeats."""
    return torch.vmap(lambda outputs: task.loss(outputs, data))(predict(data)).mean()


class Slopes:
    """Losses of trained candidates on a synthetic set and their slopes in its examples, at one launch each.

    Args:
        task: For the loss.
        networks: One predictor a candidate.
        data: The synthetic set; its tensor ``x`` is changed in place from outside.
    """

    def __init__(self, task: Task, networks: Sequence[Predictor], data: Any, device: torch.device):
        self.task, self.data, self.networks = task, data, list(networks)
        self.x = task.tensors(data)["x"]
        self.losses = torch.zeros(len(networks), device=device, dtype=self.x.dtype)
        self.slopes = torch.zeros(len(networks), *self.x.shape, device=device, dtype=self.x.dtype)
        steps = [self._step(k, one) for k, one in enumerate(networks)]
        plain = device if task.recordable else "cpu"  # sparse products are not recorded
        self.run = CapturedMany(steps, plain)

    def _step(self, k: int, predict: Predictor) -> Callable[[], object]:
        def step() -> None:
            x = self.x.detach().requires_grad_()
            loss = mean_loss(self.task, predict, self.task.replace(self.data, {"x": x}))
            self.slopes[k].copy_(torch.autograd.grad(loss, x)[0])
            self.losses[k].copy_(loss.detach())

        return step

    def __call__(
        self, targets: Sequence[Tensor], members: Sequence[int] | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Correlations with targets and the slope of their mean distance from 1 in ``x``.

        Args:
            targets: One vector a group of candidates, which follow each other; `rank_targets`.
            members: The numbers of these candidates; None is all.
        """
        members = range(len(self.networks)) if members is None else members
        self.run(members)
        index = torch.as_tensor(list(members), device=self.losses.device)
        losses = self.losses[index].requires_grad_()
        groups = torch.split(losses, [len(target) for target in targets])
        reached = [correlation(group, target) for group, target in zip(groups, targets)]
        (weight,) = torch.autograd.grad(1 - torch.stack(reached).mean(), losses)
        return [r.detach() for r in reached], torch.tensordot(weight, self.slopes[index], dims=1)

    def members(self, networks: Sequence[Predictor]) -> list[int]:
        """The numbers of some of its candidates."""
        known = {id(network): k for k, network in enumerate(self.networks)}
        return [known[id(network)] for network in networks]


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


def ridge(at: Array, target: Array, fresh: Array) -> Array:
    """Ridge regression of ``target [m]`` on standardised features ``at [m, f]``, at ``fresh [n, f]``."""
    centre, scale = at.mean(0), at.std(0) + 1e-9
    a, b = (at - centre) / scale, (fresh - centre) / scale
    found: Array = b @ np.linalg.solve(a.T @ a + PENALTY * np.eye(a.shape[1]), a.T @ (target - target.mean()))
    return found


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


def learn_examples(
    task: Task,
    networks: Sequence[Predictor],
    truth: Sequence[float],
    s_val: Any,
    config: Probing,
    *,
    companions: Companions | None = None,
    device: torch.device | str,
    phase: Phase,
    checkpoint: Checkpoint,
    slopes: Slopes | None = None,
) -> tuple[Any, list[dict[str, Any]]]:
    """Move the examples of S_val until minus the loss on them ranks the probes as the full data does.

    Args:
        task: Bound or not; its loss alone is used.
        networks: The probes trained on S_train.
        truth: Full-data scores of the probes, higher is better.
        s_val: Where S_val starts.
        companions: Ranked beside the probes, with equal weight.
        slopes: Of candidates that hold all of these, on a set with the labels of ``s_val``: what is recorded
            there is not recorded again.

    Returns:
        S_val and, at each tenth step, the correlation (Pearson's, of losses with ranks) on the probes,
        ``probe_correlation``, and on the companions.
    """
    device = torch.device(device)
    x = task.tensors(s_val)["x"].detach().clone()
    learned = task.replace(s_val, {"x": x})
    targets = [rank_targets(truth).to(x)]
    networks = list(networks)
    if companions is not None:
        targets.append(rank_targets(companions.scores).to(x))
        networks += companions.networks
    theta = {"x": x}
    first, second = {"x": torch.zeros_like(x)}, {"x": torch.zeros_like(x)}
    history: list[dict[str, Any]] = []
    begun = 0
    if (saved := checkpoint.load()) is not None:
        for name, tensor in (("x", x), ("first", first["x"]), ("second", second["x"])):
            tensor.copy_(saved[0][name])
        begun, history = saved[1]["step"], saved[1]["history"]
    phase.first_step = begun
    if slopes is None:
        slopes = Slopes(task, networks, learned, device)
    assert torch.equal(slopes.data.y, learned.y), "slopes of a set with other labels"
    members = slopes.members(networks)
    for step in range(begun, config.probe_steps):
        slopes.x.copy_(x)
        reached, gradient = slopes(targets, members)
        adam_step(theta, {"x": gradient}, first, second, step + 1, config.probe_lr)
        if (step + 1) % 10 == 0 or step + 1 == config.probe_steps:
            value = float(reached[0])
            if not np.isfinite(value) or not bool(torch.isfinite(x.square()).all()):  # as BatchNorm sees it
                raise NumericalError(
                    f"S_val is not finite after {step + 1} steps on the probes; try a smaller probe_lr (now "
                    f"{config.probe_lr})"
                )
            history.append({"step": step + 1, "probe_correlation": value})
            if companions is not None:
                history[-1]["companion_correlation"] = float(reached[1])
            checkpoint.save(
                {"x": x, "first": first["x"], "second": second["x"]}, {"step": step + 1, "history": history}
            )
            phase.step(step + 1, f"correlation on the probes {value:.3f}")
    return learned, history


@torch.no_grad()
def example_losses(task: Task, networks: Sequence[Predictor], data: Any) -> Array:
    """Loss of every trained candidate on every example ``[m, n]``, mean over repeats."""
    rows = []
    for predict in networks:
        each = [F.cross_entropy(outputs, data.y, reduction="none") for outputs in predict(data)]
        rows.append(torch.stack(each).mean(0).double())
    return torch.stack(rows).cpu().numpy()


def fit_weights(a: Array, target: Array, ridge: float, steps: int = 500) -> Array:
    """Non-negative weights ``[n]`` with which minus the weighted loss is closest to ``target`` ``[m]``.

    ``min_w |A w - target|^2 + ridge |w - w_0|^2, w >= 0``, where A is minus the centred losses ``[m, n]``
    with columns of mean square length 1 and w_0 the best equal weights; accelerated projected gradients.
    """
    a = a / max(np.sqrt((a**2).sum() / a.shape[1]), 1e-12)
    equal = a.sum(1)
    start = np.full(a.shape[1], max(float(equal @ target) / max(float(equal @ equal), 1e-12), 1e-6))
    size = float(np.linalg.norm(a @ a.T, 2)) + ridge
    w = ahead = start
    t = 1.0
    for _ in range(steps):
        found = np.maximum(ahead - (a.T @ (a @ ahead - target) + ridge * (ahead - start)) / size, 0.0)
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = found + (t - 1) / t_next * (found - w)
        w, t = found, t_next
    return w


def weigh_examples(
    task: Task,
    networks: Sequence[Predictor],
    truth: Sequence[float],
    val_size: int,
    seed: int,
    config: Probing,
    companions: Companions | None = None,
) -> tuple[Any, list[dict[str, Any]]]:
    """Real validation examples with weights fitted to the probes.

    Of ``pool`` random examples the ``val_size`` whose losses fall most clearly with the scores are kept (by
    the sum over probes and companions of the correlation times the root of their number), then weighted;
    only the matrix of losses is looked at, no gradient of any network. In the weights companions count as
    much as the probes do.

    Returns:
        S_val and its Spearman on the probes, ``probe_spearman`` (``probe_correlation`` in older records).
    """
    pool = task.pool(max(config.pool, val_size), seed)
    groups = [(networks, truth)]
    if companions is not None:
        groups.append((companions.networks, companions.scores))
    clear = np.zeros(len(pool))
    for members, scores in groups:
        centred = _centred(example_losses(task, members, pool))
        clear += rank_targets(scores).numpy() @ centred / np.sqrt((centred**2).sum(0) + 1e-12)
    kept = np.sort(np.argsort(-clear, kind="stable")[:val_size])
    chosen = task.subset(pool, torch.from_numpy(kept).to(pool.y.device))
    rows, targets = [], []
    for members, scores in groups:
        losses = example_losses(task, members, chosen)  # again: BatchNorm now sees these examples alone
        share = np.sqrt(len(networks) / len(members))
        rows.append(share * _centred(losses))
        targets.append(share * rank_targets(scores).numpy())
    weight = fit_weights(np.concatenate(rows), np.concatenate(targets), config.ridge)
    if not weight.any():
        raise NumericalError(
            "on every validation example the probes' losses rise with their full-data scores, so no weights "
            "rank them; choose val_method 'probes', or train longer on the copy"
        )
    weight = weight / weight.sum() * len(weight)
    reached = spearman(np.asarray(truth), rows[0] @ weight)
    weighted = task.replace(chosen, {"weight": torch.from_numpy(weight).to(chosen.x)})
    return weighted, [{"step": 1, "probe_spearman": float(reached), "nonzero": int((weight > 0).sum())}]


def _centred(losses: Array) -> Array:
    """How much less than the mean candidate each loses on each example ``[m, n]``."""
    found: Array = losses.mean(0) - losses
    return found
