"""S_val from real examples with weights fitted to probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers.validation._base import Made, Validation, Work, register_validation
from hcdc.condensers.validation._probing import probe_configs
from hcdc.condensers.validation._settings import Probing
from hcdc.condensers.validation._trained import probing_cost, train_probes
from hcdc.condensers.validation._weights import weigh_examples
from hcdc.core.configs import Config
from hcdc.core.errors import InputError
from hcdc.spaces import Space
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@register_validation
@dataclass(frozen=True)
class Weighted(Probing, Validation):
    """Weights real validation examples so that the weighted loss orders the probes as the full data does.
    Classes may have any number of examples, but at least one."""

    name = "weighted"
    fixed = frozenset({"probe_steps", "probe_lr", "factors"})

    def refuse(self, task: Task, space: Space, seed: int) -> None:
        super().refuse(task, space, seed)
        if why := task.unweighable():
            raise InputError(f"val_method 'weighted': {why}")

    def val_size(self, task: Task, train_size: int) -> int:
        return task.val_size(train_size)

    def metric(self, task: Task) -> str:
        return task.weighted_metric

    def check_size(self, task: Task, size: int) -> None:
        return

    def asked(self, space: Space, seed: int) -> list[Config]:
        return probe_configs(space, self.probes, seed)

    def sized(self, plan: Plan) -> str:
        return f"{plan.val_size}, of any class"

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        return probing_cost(plan, self, task, device)

    def make(self, plan: Plan, work: Work) -> Made:
        probed = train_probes(plan, self, work)
        phase = work.progress.phase("S_val from probes")
        s_val, history = weigh_examples(
            work.task, probed.networks, probed.scores, plan.val_size, plan.seed, self, probed.companions,
            plan.calibrated.metric,
        )  # fmt: skip
        phase.step(1)
        return Made(s_val, probed.file(), probed.record(history))
