"""From what a user passes to a problem that a ladder can climb."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

import torch

from hcdc.core.errors import InputError
from hcdc.core.seeds import check_seed
from hcdc.datasets import CondensedDataset, FullData
from hcdc.evaluation import task_of
from hcdc.search._executor import Executor, Objective
from hcdc.search._objective import ObjectiveProblem
from hcdc.search._task_problem import TaskProblem
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.truth import Truth, check_truth

USUAL_BUDGET = "30m"
UNITS = {
    "ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0,
    "hr": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0,
}  # fmt: skip
AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*")

WITH_TASK = "pruner is for an objective of your own; leave it out with a task"


def parse_budget(budget: str | float) -> float:
    """A budget in seconds.

    Args:
        budget: A number of seconds, or a text such as ``"90s"``, ``"30 min"``, ``"2h"`` or ``"1h30m"``.

    Example:
        >>> from hcdc.search import parse_budget
        >>> parse_budget("30m"), parse_budget("1h30m"), parse_budget(20)
        (1800.0, 5400.0, 20.0)
    """
    text = str(budget).strip().lower()
    amounts = AMOUNT.findall(text)
    units = [UNITS.get(unit, UNITS.get(unit.removesuffix("s"))) for _, unit in amounts]
    if len(amounts) == 1 and not amounts[0][1]:
        units = [1.0]
    seconds = math.nan
    if not isinstance(budget, bool) and AMOUNT.sub("", text) == "" and None not in units:
        seconds = sum(float(amount) * (unit or 0.0) for (amount, _), unit in zip(amounts, units))
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(
            f"budget {budget!r}: give a positive number of seconds, or a text such as 90s, 30m or 1h30m"
        )
    return seconds


def prepare(
    subject: Objective | Task,
    over: FullData | Space,
    copies: Sequence[CondensedDataset | str | os.PathLike[str]] = (),
    rungs: Sequence[str] | None = None,
    truth: Truth | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    executor: Executor | None = None,
    pruner: Any = None,
) -> TaskProblem | ObjectiveProblem:
    """The problem of a task on a space, or of an objective on its full data; arguments as in `search`."""
    check_seed(seed)
    if isinstance(rungs, str):
        rungs = [name.strip() for name in rungs.split(",")]
    if isinstance(copies, (CondensedDataset, str, os.PathLike)):
        copies = [copies]
    if not isinstance(over, Space):
        if truth is not None:
            raise InputError(
                "truth: a table has results of a task's networks; leave it out with an objective"
            )
        return ObjectiveProblem(_objective(subject), over, copies, rungs, executor, pruner)
    task: Any = subject
    if not isinstance(task, Task):
        raise InputError(f"the space belongs to a task, and {type(task).__name__} is none; pass an hcdc.Task")
    if why := task.one_network(over):
        raise InputError(
            f"{why}, so there is nothing to search; choose space 'training', model 'space' or your own model"
        )
    if pruner is not None:
        raise InputError(WITH_TASK)
    if truth is not None:
        check_truth(truth, task)
    files = [name.partition(":")[2] for name in rungs or () if name.startswith("copy:")]
    loaded = [loaded_copy(copy) for copy in [*copies, *files]]
    for small in loaded:
        task_of(small, task)
    own = rungs is not None or bool(copies) or truth is not None
    if rungs is None and truth is not None:
        rungs = [f"short:{length}" for length in sorted(truth.fidelities)]
    stand_ins = ("short:0.1",) if rungs is None else rungs
    names = [name for name in stand_ins if name != "full" and not name.startswith("copy:")]
    return TaskProblem(
        task, over, names, loaded, truth, device=device, seed=seed, make_copy=not own, executor=executor
    )


def loaded_copy(copy: CondensedDataset | str | os.PathLike[str]) -> CondensedDataset:
    """A condensed data set, or the file that holds it."""
    return copy if isinstance(copy, CondensedDataset) else CondensedDataset.load(copy)


def _objective(subject: Any) -> Objective:
    if isinstance(subject, Task):
        raise InputError("the space is missing: pass what to search, e.g. hcdc.spaces.PolynomialFilter()")
    found: Objective = subject
    return found
