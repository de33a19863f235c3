"""HCDC on the tiny graph with schedules that take a moment, for tests of condensing and judging."""

import functools

import numpy as np
import pytest
import torch
from tiny_graph import tiny_task

from hcdc.condensers import condense
from hcdc.condensers.validation._batched import Batched
from hcdc.core.progress import Progress
from hcdc.core.recipe import Recipe
from hcdc.datasets import Rows, TableData
from hcdc.spaces import PolynomialFilter
from hcdc.tasks import TableTask
from recipes import change_recipes

SPACE = PolynomialFilter(order=2, width=4)
QUICK = {"trajectories": 4, "points": 2, "holdout": 3, "steps": 4, "batch": 3, "check": 1, "iterations": 2}
PAPER = {
    "response": "shared",
    "schedule": "sequential",
    "anchors": 0.0,
    "trajectories": 2,
    "theta_steps": 2,
    "lam_every": 2,
    "iterations": 2,
}


@pytest.fixture
def short_recipes(monkeypatch):
    """Candidates are trained for two steps instead of two hundred."""
    change_recipes(monkeypatch, functools.partial(Recipe, steps=2, lr=0.05))


def make(task=None, space=SPACE, train_size=6, val_size=9, seed=0, method="hcdc", options=QUICK, **arguments):
    """A copy; HCDC's S_val by ``both`` unless another way is named."""
    if method == "hcdc":
        arguments.setdefault("val_method", "both")
    return condense(
        task or tiny_task(),
        space,
        method,
        train_size=train_size,
        val_size=val_size,
        seed=seed,
        options=options,
        **arguments,
    )


def content(small):
    """The bytes of all tensors of a copy."""
    return b"|".join(k.encode() + v.numpy().tobytes() for k, v in sorted(small.tensors().items()))


def poor_start(patch):
    """Let the start of S_val be the worst iterate, so that a few steps on tiny data count."""
    real = Batched.objective
    patch.setattr(Batched, "objective", lambda run, held: real(run, held) if run.history else 9.0)


class Interrupting(Progress):
    """Counts its reports, or those of one phase alone, and raises `KeyboardInterrupt` at number ``stop``."""

    def __init__(self, stop=None, phase=""):
        super().__init__(every=0.0)
        self.stop, self.name, self.reports, self.steps = stop, phase, 0, []

    def report(self, text, last=False):
        if self.name and f"] {self.name}: " not in text:
            return
        self.reports += 1
        self.steps.append(text.split(": ")[1].split(",")[0])
        if self.reports == self.stop:
            raise KeyboardInterrupt


def tiny_table(classes=3, dtype=torch.float32):
    """60 rows of 4 features, for classes or (None) for values, as a task with a penalty a feature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    if classes is None:
        y = torch.tensor(x @ [2.0, 0.0, -1.0, 0.0] + 0.3 * rng.normal(size=60), dtype=dtype)
    else:
        y = torch.tensor(np.argmax(x[:, :classes] + 0.5 * rng.normal(size=(60, classes)), 1))
    rows = [Rows(torch.tensor(x[a:b], dtype=dtype), y[a:b]) for a, b in ((0, 24), (24, 44), (44, 60))]
    return TableTask(
        TableData("numbers", "memory", *rows, num_classes=classes), "ridge" if classes is None else "logistic"
    )
