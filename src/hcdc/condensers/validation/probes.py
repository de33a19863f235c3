"""S_val with examples learned from probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hcdc.condensers._cost import Expense
from hcdc.condensers.validation._base import (
    Made,
    Validation,
    Work,
    refuse_without_gradients,
    register_validation,
)
from hcdc.condensers.validation._examples import learn_examples
from hcdc.condensers.validation._probing import probe_configs
from hcdc.condensers.validation._settings import Probing
from hcdc.condensers.validation._trained import Probed, probing_cost, train_probes
from hcdc.core.configs import Config
from hcdc.spaces import Space
from hcdc.tasks import Task

if TYPE_CHECKING:
    from hcdc.condensers._plan import Plan


@register_validation
@dataclass(frozen=True)
class Probes(Probing, Validation):
    """Changes examples until minus the loss on them orders the probes as the full data does.

    S_val starts from random real examples.
    """

    name = "probes"
    fixed = frozenset({"ridge"})

    def refuse(self, task: Task, space: Space, seed: int) -> None:
        refuse_without_gradients(self.name, task)
        super().refuse(task, space, seed)

    def asked(self, space: Space, seed: int) -> list[Config]:
        return probe_configs(space, self.probes, seed)

    def cost(self, plan: Plan, task: Task, device: torch.device | str) -> list[Expense]:
        return probing_cost(plan, self, task, device)

    def make(self, plan: Plan, work: Work) -> Made:
        probed = train_probes(plan, self, work)
        start = work.task.sample("val", plan.val_size, plan.seed)
        s_val, history = self.learn(plan, work, probed, start)
        return Made(s_val, probed.file(), probed.record(history))

    def learn(self, plan: Plan, work: Work, probed: Probed, start: Any) -> tuple[Any, list[dict[str, Any]]]:
        """Learn S_val from its start; returns it and the history."""
        return learn_examples(
            work.task, probed.networks, probed.scores, start, self, seed=plan.seed,
            companions=probed.companions, device=work.device,
            phase=work.progress.phase("S_val from probes", self.probe_steps),
            checkpoint=work.checkpoint.child("probes"),
        )  # fmt: skip
