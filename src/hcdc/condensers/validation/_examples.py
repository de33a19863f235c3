"""Learning the examples of S_val from probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hcdc.condensers.validation._factors import examples_form
from hcdc.condensers.validation._objectives import OBJECTIVES, Distance, correlation, uncorrelated
from hcdc.condensers.validation._probing import Companions, mean_loss, rank_targets
from hcdc.condensers.validation._run import flat
from hcdc.condensers.validation._settings import Probing
from hcdc.core.checkpoint import Checkpoint
from hcdc.core.errors import NumericalError
from hcdc.core.progress import Phase
from hcdc.tasks import Task
from hcdc.training import CapturedMany, Predictor, adam_step


class Slopes:
    """Losses of trained candidates on a synthetic set and their gradients in its examples, one launch each.

    Args:
        task: Gives the loss.
        networks: One predictor per candidate.
        data: The synthetic set; callers change its tensor ``x`` in place.
    """

    def __init__(self, task: Task, networks: Sequence[Predictor], data: Any, device: torch.device):
        self.task, self.data = task, data
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
        self, targets: Sequence[Tensor], distance: Distance = uncorrelated
    ) -> tuple[list[Tensor], Tensor]:
        """Correlations with targets, and the gradient of the mean distance from them in ``x``.

        Args:
            targets: One vector per group of consecutive candidates, see `rank_targets`.
            distance: One of `OBJECTIVES`.
        """
        reached: list[Tensor] = []

        def mean_distance(losses: Tensor) -> Tensor:
            groups = list(zip(torch.split(losses, [len(target) for target in targets]), targets))
            reached.extend(correlation(group.detach(), target) for group, target in groups)
            return torch.stack([distance(group, target) for group, target in groups]).mean()

        return reached, self.gradient(mean_distance)

    def gradient(self, objective: Callable[[Tensor], Tensor]) -> Tensor:
        """The gradient in ``x`` of an objective of all losses ``[m]``."""
        self.run()
        losses = self.losses.clone().requires_grad_()
        (weight,) = torch.autograd.grad(objective(losses), losses)
        found: Tensor = torch.tensordot(weight, self.slopes, dims=1)
        return found


def learn_examples(
    task: Task,
    networks: Sequence[Predictor],
    truth: Sequence[float],
    s_val: Any,
    config: Probing,
    *,
    seed: int = 0,
    companions: Companions | None = None,
    device: torch.device | str,
    phase: Phase,
    checkpoint: Checkpoint,
) -> tuple[Any, list[dict[str, Any]]]:
    """Change the examples of S_val until minus the loss on them ranks the probes as the full data does.

    ``min over S_val of D(L(probes), target) + D(L(companions), target)``, D is the ``objective``.

    Args:
        task: Bound or not; only its loss is used.
        networks: The probes trained on S_train.
        truth: Full-data scores of the probes, higher is better.
        s_val: The initial S_val.
        seed: Of the factors, if examples are learned as a product.
        companions: Ranked besides the probes, with equal weight.

    Returns:
        S_val, and every tenth step the Pearson correlation of losses with ranks on the probes
        (``probe_correlation``) and on the companions.
    """
    device = torch.device(device)
    form = examples_form({"x": task.tensors(s_val)["x"]}, config.factors, seed)
    theta = form.start()
    first = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
    second = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
    state = {"theta": theta, "first": first, "second": second}
    x = form.examples(theta)["x"].clone()
    targets = [rank_targets(truth).to(x)]
    networks = list(networks)
    if companions is not None:
        targets.append(rank_targets(companions.scores).to(x))
        networks += companions.networks
    history: list[dict[str, Any]] = []
    begun = 0
    if (saved := checkpoint.load()) is not None:
        for name, tensor in flat(state).items():
            tensor.copy_(saved[0][name])
        begun, history = saved[1]["step"], saved[1]["history"]
    phase.first_step = begun
    slopes = Slopes(task, networks, task.replace(s_val, {"x": x}), device)
    for step in range(begun, config.probe_steps):
        slopes.x.copy_(form.examples(theta)["x"])
        reached, gradient = slopes(targets, OBJECTIVES[config.objective])
        adam_step(theta, form.chained(theta, {"x": gradient}), first, second, step + 1, config.probe_lr)
        if (step + 1) % 10 == 0 or step + 1 == config.probe_steps:
            value = float(reached[0])
            squares = form.examples(theta)["x"].square()  # as BatchNorm sees them
            if not np.isfinite(value) or not bool(torch.isfinite(squares).all()):
                raise NumericalError(
                    f"S_val is not finite after {step + 1} steps on the probes; try a smaller probe_lr (now "
                    f"{config.probe_lr})"
                )
            history.append({"step": step + 1, "probe_correlation": value})
            if companions is not None:
                history[-1]["companion_correlation"] = float(reached[1])
            checkpoint.save(flat(state), {"step": step + 1, "history": history})
            phase.step(step + 1, f"correlation on the probes {value:.3f}")
    return task.replace(s_val, {"x": form.examples(theta)["x"]}), history
