"""S_val by aligned hypergradients alone, as in the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers.validation._alignment import learn_validation
from hcdc.condensers.validation._base import (
    Made,
    Validation,
    Work,
    refuse_without_gradients,
    register_validation,
)
from hcdc.condensers.validation._expected import alignment_cost
from hcdc.condensers.validation._run import Learned
from hcdc.condensers.validation._settings import Alignment
from hcdc.core.errors import InputError
from hcdc.core.settings import setting
from hcdc.spaces import Space
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@dataclass(frozen=True)
class Aligning(Alignment, Validation):
    """What the ways that align hypergradients share. S_val starts from random real examples."""

    def for_space(self, space: Space, given: Mapping[str, Any]) -> Validation:
        """In one dimension hypergradients have no direction, so align their size."""
        if space.dimension > 1 or "distance" in given:
            return self
        return dataclasses.replace(self, distance="scaled_l2")

    def refuse(self, task: Task, space: Space, seed: int) -> None:
        refuse_without_gradients(self.name, task)
        if all(each.visibility != "alignment" for each in space.dimensions()):
            raise InputError(
                f"val_method '{self.name}': no loss depends on the hyperparameters of space '{space.name}', "
                "so all hypergradients are 0; choose 'probes' or 'weighted'"
            )
        self.check_for(task, space)
        super().refuse(task, space, seed)

    def describe(self, plan: Plan) -> dict[str, Any]:
        """How the relaxed network is trained on the original data, if not by the full recipe."""
        if self.response != "own" or not plan.task.mini_batches:
            return {}
        return {"relaxed_recipe": plan.relaxed().as_dict()}

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        return alignment_cost(plan, self, task, device)

    def align(self, plan: Plan, work: Work) -> Learned:
        """Make a plan's S_val by alignment."""
        return learn_validation(
            work.task, plan.space, work.s_train, plan.val_size, plan.seed, self, plan.relaxed(),
            plan.calibrated, device=work.device, progress=work.progress, checkpoint=work.checkpoint,
        )  # fmt: skip

    def make(self, plan: Plan, work: Work) -> Made:
        found = self.align(plan, work)
        return Made(
            found.val,
            {"candidates": sorted(set(found.candidates)), "probes": found.probes},
            {"history": found.history, "full_trainings": found.full_trainings, "probe_seconds": 0.0},
        )


@register_validation
@dataclass(frozen=True)
class Aligned(Aligning):
    """Aligns hypergradients on S_val with those on the original data, without using values."""

    name = "aligned"
    fixed = frozenset({"anchors"})

    anchors: float = setting(0.0, least=0, most=0)

    def doubt(self, task: Task) -> str:
        if task.anchored:
            return ""
        return (
            "hypergradients alone ranked cells of CIFAR-10 worse than random validation images did; "
            "--val-method real ranked better, and so did probes (--val-method weighted)"
        )
