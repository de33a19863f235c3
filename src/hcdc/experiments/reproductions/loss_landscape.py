"""``loss-landscape``: losses over (theta, lambda), the optimum and its hypergradients (fig:hyper-gradients).

Ridge regression on one generated feature: theta is its weight, lambda is log10 of its penalty. theta*(lambda)
has a closed form, so the curve L*(lambda) is exact, and its slope checks the hypergradient of eq. (IFT).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hcdc.core.seeds import numpy_stream
from hcdc.core.settings import setting
from hcdc.datasets import Rows, TableData
from hcdc.experiments.reproductions._frame import Record, Reproduction, Scale, Table, Unit, Work, register
from hcdc.hypergrad import exact, hypergradient
from hcdc.reporting import new_figure, plain
from hcdc.tasks import TableTask

RANGE = (-3.0, 1.0)
"""Bounds of lambda."""
STEP = 1e-4
"""Of the central difference that checks a hypergradient."""


@register
@dataclass(frozen=True)
class LossLandscape(Reproduction):
    """Training and validation loss on a grid, the curves theta*(lambda) and L*(lambda), and hypergradients.

    Attributes:
        rows: Generated rows in each part.
        points: Values of theta and of lambda on the grid.
        tangents: Values of lambda with a hypergradient.
    """

    rows: int = setting(20, least=5)
    points: int = setting(60, least=3)
    tangents: int = setting(5, least=1)

    name = "loss-landscape"
    label = "fig:hyper-gradients"
    title = "losses over theta and lambda, and hypergradients of the optimum"
    axes = ()
    scales: ClassVar = {"smoke": Scale({"points": 5}), "small": Scale(), "paper": Scale()}

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [self.unit(seed) for seed in seeds]

    def run(self, unit: Unit, work: Work) -> list[Record]:
        task = ridge_task(unit["seed"], self.rows)
        lam = torch.linspace(*RANGE, self.points, dtype=torch.float64)
        optimum = torch.stack([task.solve(value[None], task.train)["weight"][0, 0] for value in lam])
        theta = torch.linspace(-0.2, 1.2, self.points, dtype=torch.float64) * optimum.abs().max()
        theta = theta * optimum.sum().sign()
        bias = task.solve(lam[:1], task.train)["bias"]

        def at(value: Tensor) -> dict[str, Tensor]:
            return {"weight": value[None, None], "bias": bias}

        train = [[float(task.train_loss(at(t), value[None], task.train)) for t in theta] for value in lam]
        val = [float(task.val_loss(at(t), lam[:1], task.val)) for t in theta]
        tangents = torch.linspace(*RANGE, self.tangents + 2, dtype=torch.float64)[1:-1]
        return [
            {
                "seed": unit["seed"], "lam": lam, "theta": theta, "train_loss": train, "val_loss": val,
                "optimum": optimum, "best_loss": [best_loss(task, value) for value in lam],
                "tangents": tangents, "tangent_loss": [best_loss(task, value) for value in tangents],
                "hypergradient": [slope(task, value) for value in tangents],
                "difference": [
                    (best_loss(task, value + STEP) - best_loss(task, value - STEP)) / (2 * STEP)
                    for value in tangents
                ],
            }
        ]  # fmt: skip

    def table(self, found: Sequence[Record]) -> Table:
        head = ["seed", "lambda", "L*(lambda)", "hypergradient", "slope of the curve", "paper"]
        names = ("tangents", "tangent_loss", "hypergradient", "difference")
        rows = [
            [str(r["seed"]), f"{lam:.2f}", *(f"{value:.6f}" for value in others), "a figure"]
            for r in found
            for lam, *others in zip(*(r[name] for name in names))
        ]
        return Table(head, rows)

    def draw(self, found: Sequence[Record]) -> Any:
        """Left the training loss with theta*(lambda), right L*(lambda) with hypergradients; first seed."""
        from matplotlib.colors import BoundaryNorm

        r = {key: np.asarray(value) for key, value in found[0].items() if isinstance(value, list)}
        figure = new_figure(9.0, 3.8)
        axes = figure.add_subplot(1, 2, 1)
        levels = np.unique(np.quantile(r["train_loss"], np.linspace(0, 1, 24)))
        shades = BoundaryNorm(levels, 256)  # the loss spans magnitudes: equal shares of the plane get a shade
        axes.contourf(r["theta"], r["lam"], r["train_loss"], levels=levels, cmap="Greys", norm=shades)
        axes.plot(r["optimum"], r["lam"], color="#0072B2", label="optimal theta at each lambda")
        axes.set_xlabel("theta, the weight")
        axes.set_ylabel("lambda, log10 of the penalty")
        axes.set_title("training loss, dark is high", fontsize=10)
        axes.legend(fontsize=8)
        axes = figure.add_subplot(1, 2, 2)
        axes.plot(r["lam"], r["best_loss"], color="#D55E00", label="L* at each lambda")
        side = np.array([-0.35, 0.0, 0.35])
        for k, (lam, loss, up) in enumerate(zip(r["tangents"], r["tangent_loss"], r["hypergradient"])):
            axes.plot(
                lam + side, loss + up * side, color="#7B3FA0", linestyle="--", marker="o", markevery=[1],
                markersize=5, label="" if k else "hypergradient at a lambda",
            )  # fmt: skip
        axes.set_xlabel("lambda, log10 of the penalty")
        axes.set_ylabel("validation loss at the optimal theta")
        axes.set_title("validation loss and its slopes", fontsize=10)
        axes.legend(fontsize=8, frameon=False)
        plain(axes)
        return figure


def ridge_task(seed: int, rows: int) -> TableTask:
    """A noisy line in double precision, with as many training as validation rows."""
    rng = numpy_stream(seed, "loss-landscape")

    def drawn() -> Rows:
        x = torch.from_numpy(rng.standard_normal((rows, 1)))
        return Rows(x, 0.6 * x[:, 0] + 0.8 * torch.from_numpy(rng.standard_normal(rows)))

    table = TableData("line", "generated", drawn(), drawn(), drawn(), num_classes=None)
    return TableTask(table, "ridge", penalty="single")


def best_loss(task: TableTask, lam: Tensor) -> float:
    """L*(lambda): the validation loss at theta*(lambda)."""
    return float(task.val_loss(task.solve(lam[None], task.train), lam[None], task.val))


def slope(task: TableTask, lam: Tensor) -> float:
    """The hypergradient of eq. (IFT), with the linear system solved exactly."""
    theta = task.solve(lam[None], task.train)
    found = hypergradient(task, theta, lam[None], task.train, task.val, exact(), "hessian")
    return float(found.total)
