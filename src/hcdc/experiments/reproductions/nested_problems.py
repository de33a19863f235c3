"""``nested-problems``: HCDC beside the problems it stands in for, on tables small enough to solve them.

eq. (SDC) learns S_train so that training on it minimises the original training loss; eq. (HCDC-bl), the naive
nested problem, learns both sets so that the best lambda on the copy is good on the original. Both record and
differentiate the whole inner training. HCDC aligns hypergradients by learning S_val alone. All of them learn
at the same lambdas, and other lambdas judge. The model is logistic regression with one penalty per feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from hcdc.core.progress import timed
from hcdc.core.ranks import calibration, spearman
from hcdc.core.seeds import numpy_stream, stream
from hcdc.core.settings import setting
from hcdc.datasets import Rows, TableData
from hcdc.experiments._command import rounded
from hcdc.experiments.reproductions._frame import (
    Record,
    Reproduction,
    Scale,
    Table,
    Unit,
    Work,
    mean_text,
    register,
)
from hcdc.experiments.standing import standing
from hcdc.hypergrad import (
    batched_response_hypergradient,
    nested_hcdc,
    optimised_losses,
    response_alignment_gradient,
    sdc_unrolled,
    unrolled_response,
)
from hcdc.networks import Params
from hcdc.tasks import TableTask
from hcdc.training import Adam

LOW, HIGH = -3.0, 0.0
"""Bounds of lambda, log10 of a penalty."""
FEATURES, CLASSES = 4, 3
INNER_LR, OUTER_LR, TEMPERATURE = 0.3, 0.05, 0.02
WORDS = {
    "sampled": "S_train and S_val as drawn",
    "sdc": "S_train by eq. (SDC), S_val as drawn",
    "nested": "both by the naive nested problem",
    "hcdc": "S_val by HCDC, cosines",
    "hcdc-scaled": "S_val by HCDC, one global scale",
}


@register
@dataclass(frozen=True)
class NestedProblems(Reproduction):
    """Correlation and regret of lambdas that none of the methods saw.

    Attributes:
        rows: Generated rows in each original part.
        size: Rows of S_train and of S_val.
        points: Lambdas at which the methods learn.
        judges: Lambdas that judge.
        inner: Gradient-descent steps of every training.
        outer: Steps on the synthetic rows.
    """

    rows: int = setting(60, least=9)
    size: int = setting(9, least=3)
    points: int = setting(16, least=2)
    judges: int = setting(40, least=3)
    inner: int = setting(40, least=1)
    outer: int = setting(60, least=1)

    name = "nested-problems"
    label = "eq. (SDC), eq. (HCDC-bl)"
    title = "HCDC beside the nested problems, on tiny tables"
    axes = ()
    scales: ClassVar = {
        "smoke": Scale({"rows": 12, "points": 3, "judges": 4, "inner": 4, "outer": 2}),
        "small": Scale(seeds=10, takes="two minutes on one core"),
        "paper": Scale(seeds=20, takes="minutes on one core"),
    }

    def units(self, seeds: Sequence[int]) -> list[Unit]:
        return [self.unit(seed) for seed in seeds]

    def run(self, unit: Unit, work: Work) -> list[Record]:
        """One record, with a figure for each method."""
        seed = unit["seed"]
        task = tiny_task(seed, self.rows)
        start = {name: p.double() for name, p in task.init(stream(seed, self.name)).items()}
        learn, judge = lambdas(seed, "learn", self.points), lambdas(seed, "judge", self.judges)
        sets = task.sample("train", self.size, seed), task.sample("val", self.size, seed)

        def losses(train: Any, val: Any) -> Tensor:
            return optimised_losses(task, start, judge, train, val, self.inner, INNER_LR).detach()

        truth, found = losses(task.train, task.val), {}
        for name in WORDS:
            with timed() as spent:
                made = self.made(name, task, start, learn, *sets)
            proxy = losses(*made)
            found[name] = {**figures(truth, proxy), "seconds": spent[0]}
        return [rounded({"seed": seed, "found": found})]

    def made(
        self, name: str, task: TableTask, start: Params, learn: Tensor, s_train: Any, s_val: Any
    ) -> tuple[Any, Any]:
        """S_train and S_val by a method."""
        inner = {"inner_steps": self.inner, "inner_lr": INNER_LR}
        if name == "sdc":
            middle = learn.mean(0)
            return sdc_unrolled(
                task, start, middle, s_train, **inner, outer_steps=self.outer, outer_lr=OUTER_LR  # type: ignore[arg-type]
            )[0], s_val  # fmt: skip
        if name == "nested":
            both = nested_hcdc(
                task, start, learn, s_train, s_val, **inner, outer_steps=self.outer, outer_lr=OUTER_LR,  # type: ignore[arg-type]
                temperature=TEMPERATURE,
            )  # fmt: skip
            return both.s_train, both.s_val
        if name.startswith("hcdc"):
            distance = "cosine" if name == "hcdc" else "scaled_l2"
            return s_train, self.aligned(task, start, learn, s_train, s_val, distance)
        return s_train, s_val

    def aligned(
        self, task: TableTask, start: Params, learn: Tensor, s_train: Any, s_val: Any, distance: str
    ) -> Any:
        """S_val by alignment, with the exact response of the inner training on each side."""

        def responses(data: Any) -> tuple[Params, Params]:
            found: tuple[Params, Params] = vmap(
                lambda lam: unrolled_response(task, start, lam, data, self.inner, INNER_LR)
            )(learn)
            return found

        theta, response = responses(task.train)
        wanted = batched_response_hypergradient(task, theta, learn, response, task.val)
        theta, response = responses(s_train)
        x = s_val.x.clone()
        adam = Adam({"x": x}, OUTER_LR)
        for _ in range(self.outer):
            data = task.replace(s_val, {"x": x.clone()})
            _, gradient = response_alignment_gradient(task, theta, learn, response, wanted, data, distance)
            adam.step(gradient["x"])
        return task.replace(s_val, {"x": x})

    def table(self, found: Sequence[Record]) -> Table:
        head = [
            "copy", "Corr.", "pairs in order", "regret, % of the range", "seconds to learn", "paper",
            "HCDC is",
        ]  # fmt: skip
        every = {name: [r["found"][name] for r in found] for name in WORDS}
        corr = {name: [each["spearman"] for each in some] for name, some in every.items()}
        others = {name: values for name, values in corr.items() if not name.startswith("hcdc")}
        rows = [
            [
                WORDS[name], mean_text(corr[name]), mean_text([each["calibration"] for each in some]),
                mean_text([100 * each["regret"] for each in some], 1),
                mean_text([each["seconds"] for each in some]), "none",
                standing({**others, name: corr[name]}, name, WORDS) if name.startswith("hcdc") else "",
            ]
            for name, some in every.items()
        ]  # fmt: skip
        return Table(head, rows, ["generated rows; the paper solves none of the nested problems"])


def tiny_task(seed: int, rows: int) -> TableTask:
    """Three noisy classes in double precision; the last two features say nothing."""
    rng = numpy_stream(seed, "nested-problems")
    means = rng.standard_normal((CLASSES, FEATURES))
    means[:, FEATURES - 2 :] = 0

    def drawn() -> Rows:
        y = torch.arange(rows) % CLASSES
        x = torch.from_numpy(means[y.numpy()] + rng.standard_normal((rows, FEATURES)))
        return Rows(x, y)

    table = TableData("tiny", "generated", drawn(), drawn(), drawn(), num_classes=CLASSES)
    return TableTask(table, "logistic")


def lambdas(seed: int, role: str, count: int) -> Tensor:
    """``count`` random lambdas ``[count, FEATURES]``."""
    rng = numpy_stream(seed, "nested-problems", role)
    return torch.from_numpy(rng.uniform(LOW, HIGH, (count, FEATURES)))


def figures(truth: Tensor, proxy: Tensor) -> dict[str, float]:
    """Rank agreement of the losses, and the share of their range that the proxy's best loses."""
    lost = (truth[proxy.argmin()] - truth.min()) / (truth.max() - truth.min())
    agreed = spearman(-truth, -proxy), calibration(-truth, -proxy)
    return {"spearman": agreed[0], "calibration": agreed[1], "regret": float(lost)}
