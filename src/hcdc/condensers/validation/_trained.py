"""Trains probes and companions on the copy, and gets the full-data results of the probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers._forecast import FEW, full_trainings, training_seconds
from hcdc.condensers.validation._base import Work
from hcdc.condensers.validation._probing import (
    Companions,
    choose_recipe,
    companion_configs,
    mean_loss,
    probe_configs,
)
from hcdc.condensers.validation._settings import FEWEST, Probing
from hcdc.condensers.validation._targets import TARGETS, Known, make_companions
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.configs import Config, config_hash
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Phase, duration, timed
from hcdc.core.recipe import Recipe
from hcdc.tasks import Task
from hcdc.training import Predictor, predictors
from hcdc.truth import TrainedTruth, full_scores

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@dataclass(frozen=True)
class Probed:
    """What S_val is learned from.

    Attributes:
        configs, scores: The probes and their full-data results.
        networks: The probes trained on S_train.
        companions: Their companions; None if there are too few.
        used: Hashes of all trained candidates.
        says: What the condensed file says about the recipe on the copy.
        full_trainings: Number of probes trained on the full data.
        looked_up: Seconds of full-data results that were already known.
    """

    configs: list[Config]
    scores: list[float]
    networks: list[Predictor]
    companions: Companions | None
    used: list[str]
    says: dict[str, Any]
    full_trainings: int
    looked_up: float

    def file(self, used: Sequence[str] = ()) -> dict[str, Any]:
        """What the condensed file says; ``used`` are hashes of other candidates met earlier."""
        probes = {"configs": self.configs, "score": self.scores}
        return {**self.says, "candidates": sorted({*used, *self.used}), "probes": probes}

    def record(self, history: list[dict[str, Any]], earlier: int = 0) -> dict[str, Any]:
        """What the record says; ``earlier`` counts previous full-data trainings."""
        count = earlier + self.full_trainings
        return {"history": history, "full_trainings": count, "probe_seconds": self.looked_up}


def train_probes(plan: Plan, config: Probing, work: Work) -> Probed:
    """Get the probes' full-data results, then train probes and companions on S_train.

    Args:
        plan: Space, seed, recipes and full-data results.
        config: How many, and whether the probes choose the recipe on the copy.
        work: Task, S_train and device of the run, its checkpoint and progress.
    """
    space, seed, task, checkpoint = plan.space, plan.seed, work.task, work.checkpoint
    configs = probe_configs(space, config.probes, seed)
    scores, looked_up = _scores(plan, configs, work)
    beside = companion_configs(space, config.probes, config.companions, seed)

    def train(
        some: list[Config], recipe: Recipe, place: Checkpoint | None = None, phase: Phase | None = None
    ) -> list[Predictor]:
        return predictors(
            task, space, some, work.s_train, recipe, seed=seed, role="probe", device=work.device,
            checkpoint=place, phase=phase,
        )  # fmt: skip

    recipe, says = plan.calibrated, {}
    if config.calibrate:
        around = task.recipes_around(recipe)
        trying = work.progress.phase("recipes on the copy", len(around))

        def tell(found: int, agreement: float) -> None:
            trying.step(found, f"agreement with the probes {agreement:.3f}")

        recipe, tried = choose_recipe(
            task, scores, around, lambda one: train(configs, one), seed, config, tell,
            checkpoint.child("recipe"),
        )  # fmt: skip
        says = {"calibrated_recipe": recipe.as_dict(), "recipes_tried": tried}
    together = configs + beside
    training = work.progress.phase("probes and companions on the copy", len(together))
    kept = work.networks or checkpoint
    trained = train(together, recipe, kept, training)
    networks = trained[: len(configs)]
    check_trained(task, networks, work.s_train, recipe)
    known = Known(
        task, space, configs, scores, beside, trained, config.pool, seed, kept.child("figures")
    )  # fmt: skip
    expected = TARGETS[config.target].expect(known)
    companions = make_companions(task, trained[len(configs) :], expected, seed, config, recipe.metric)
    used = [config_hash(each) for each in together]
    count = len(configs) if plan.truth is None else 0
    return Probed(configs, scores, networks, companions, used, says, count, looked_up)


@torch.no_grad()
def check_trained(task: Task, networks: Sequence[Predictor], s_train: Any, recipe: Recipe) -> None:
    """Refuse diverged probes: nothing can be learned from them."""
    lost = sum(not np.isfinite(float(mean_loss(task, predict, s_train))) for predict in networks)
    if lost:
        raise NumericalError(
            f"{lost} of {len(networks)} probes have no finite loss after training on the copy; a smaller "
            f"learning rate of the recipe (lr, now {recipe.lr}) or a limit on the gradient's norm (clip, now "
            f"{recipe.clip}) may help"
        )


def _scores(plan: Plan, configs: list[Config], work: Work) -> tuple[list[float], float]:
    """Full-data validation scores of the probes, and the seconds of those already known.

    Diverged probes come last. A resumed run reports the seconds of its first part, since what was trained
    then already counts among the earlier seconds.
    """
    with timed() as spent:
        if plan.truth is not None:
            scores = [plan.truth.score(config, "val") for config in configs]
            seconds = sum(plan.truth.seconds(config) for config in configs)
        else:
            scores, seconds = _trained_scores(plan, configs, work)
    looked_up = seconds if plan.truth is not None else max(0.0, seconds - spent[0])  # from the cache
    store = work.checkpoint.child("scores")
    if (saved := store.load()) is not None:
        return scores, float(saved[1]["looked_up"])
    store.save({}, {"looked_up": looked_up})
    return scores, looked_up


def _trained_scores(plan: Plan, configs: list[Config], work: Work) -> tuple[list[float], float]:
    """Full-data validation scores by training, and the seconds of training and validation."""
    known = TrainedTruth(
        work.task, plan.space, plan.full, device=work.device, progress=work.progress,
        fingerprint=str(plan.meta["data"].get("fingerprint")),
    ).results(configs, ("val",))  # fmt: skip
    if (finite := sum(r.finite for r in known)) < FEWEST:
        raise NumericalError(
            f"{finite} of {len(known)} probes have a finite loss after training on the full data, and at "
            f"least {FEWEST} are needed; a smaller learning rate there (full_recipe lr, now {plan.full.lr}) "
            "may help"
        )
    return full_scores(known, "val"), sum(r.seconds_for("val") for r in known)


def probing_cost(plan: Plan, config: Probing, task: Task, device: torch.device | str) -> list[Expense]:
    """The cost of probes and companions: trainings on the copy, and full-data results."""
    space, probes, seeds = plan.space, config.probes, plan.calibrated.seeds
    count = probes + len(companion_configs(space, probes, config.companions, plan.seed))
    words = f"{count} candidates trained {'once' if seeds == 1 else f'{seeds} times'} each on the copy"
    if config.calibrate:
        recipes = len(task.recipes_around(plan.calibrated))
        words += f", {probes} of them by {recipes} recipes before"
        count += recipes * probes
    spent = count * training_seconds(task, space, plan.calibrated, device, plan.train_size)
    words += f": about {duration(spent)} {FEW}"
    on_copy = Expense(words, spent, copy_trainings=count * seeds)
    if plan.truth is None:
        return [on_copy, full_trainings(probes, training_seconds(task, space, plan.full, device))]
    clock = sum(plan.truth.seconds(each) for each in probe_configs(space, probes, plan.seed))
    told = f"{probes} full-data results from the table ({clock:,.0f} s by its own clock)"
    return [on_copy, Expense(told, 0.0)]
