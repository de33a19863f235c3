"""S_val that follows a Gaussian process of full-data losses and hypergradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers._forecast import lane_seconds
from hcdc.condensers.validation._alignment import prepared
from hcdc.condensers.validation._base import (
    Made,
    Validation,
    Work,
    refuse_without_gradients,
    register_validation,
)
from hcdc.condensers.validation._following import Following
from hcdc.condensers.validation._settings import Learning
from hcdc.core.errors import InputError
from hcdc.core.progress import duration
from hcdc.core.settings import setting
from hcdc.spaces import Space
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@register_validation
@dataclass(frozen=True)
class FollowsLandscape(Learning, Validation):
    """Learns S_val so that its losses order many lambdas as a Gaussian process expects, which knows few full
    trainings and their hypergradients (`hcdc.core.landscape`). S_val starts from random real examples.

    Attributes:
        trainings: Lambdas trained on the original data, with their hypergradients.
        spread: Random lambdas of which each is the one farthest from those before it; 1 is random.
        companions: Lambdas trained on S_train alone; a quarter of them choose the iterate.
        slopes: Use the hypergradients; otherwise only values.
    """

    name, otherwise = "landscape", "both"
    fixed = frozenset({"relaxation", "tau"})
    form: ClassVar[type[Following]] = Following

    trainings: int = setting(32, least=4)
    spread: int = setting(16, least=1)
    companions: int = setting(256, least=8)
    slopes: bool = True
    steps: int = setting(120, least=1)
    lr: float = setting(2e-3, above=0)
    check: int = setting(20, least=1)

    def refuse(self, task: Task, space: Space, seed: int) -> None:
        refuse_without_gradients(self.name, task)
        if space.candidates() is not None:
            raise InputError(
                f"val_method '{self.name}': space '{space.name}' is finite, and a landscape needs continuous "
                "hyperparameters; choose 'both' or 'probes'"
            )
        if all(each.visibility != "alignment" for each in space.dimensions()):
            raise InputError(
                f"val_method '{self.name}': no loss depends on the hyperparameters of space '{space.name}', "
                "so all hypergradients are 0; choose 'probes' or 'weighted'"
            )
        self.check_for(task, space)
        super().refuse(task, space, seed)

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        bound, where = self.bind(task, plan.space), task.train.y.device
        train = task.sampled(self.nodes, self.fanouts, 0)[0] if self.samples else task.train
        original = lane_seconds(bound, plan.space, train, where)
        copy = lane_seconds(bound, plan.space, task.sample("train", plan.train_size, 0), where)
        full, small = plan.relaxed().steps, plan.calibrated.steps
        spent = self.trainings * (full + self.iterations + 2) * original
        spent += (self.companions * small + self.steps * min(self.batch, self.companions)) * copy
        told = (
            f"{self.trainings} full-data trainings of {full} steps with their hypergradients, "
            f"{self.companions} trainings of {small} steps on the copy, {self.steps} steps of S_val: about "
            f"{duration(spent)} (estimate from a few steps)"
        )
        return [Expense(told, spent, full_trainings=self.trainings, copy_trainings=self.companions)]

    def make(self, plan: Plan, work: Work) -> Made:
        run = self.run(plan, work)
        found = run.learn(run.survey(self.trainings, self.spread), run.company(self.companions), self.slopes)
        return Made(
            found.val,
            {"candidates": sorted(set(found.candidates)), "probes": found.probes},
            {"history": found.history, "full_trainings": found.full_trainings, "probe_seconds": 0.0},
        )

    def run(self, plan: Plan, work: Work) -> Following:
        """The run of a plan, before any work."""
        bound, s_val = prepared(work.task, plan.space, work.s_train, plan.val_size, plan.seed, self)
        return self.form(
            bound, plan.space, work.s_train, s_val, plan.seed, self, plan.relaxed(), plan.calibrated,
            torch.device(work.device), work.progress, work.checkpoint,
        )  # fmt: skip
