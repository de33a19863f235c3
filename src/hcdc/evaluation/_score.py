"""The score of one configuration on the copy, for a search to rank by."""

from __future__ import annotations

import torch

from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.datasets import CondensedDataset
from hcdc.evaluation._agreement import proxy_scores
from hcdc.evaluation._tasks import task_of
from hcdc.spaces import from_spec
from hcdc.tasks import Task
from hcdc.training import run_candidates


def score(
    small: CondensedDataset, config: Config, task: Task | None = None, device: torch.device | str = "cpu"
) -> float:
    """Train one configuration on the copy by its recipe and return its score, higher is better.

    This is the score that `evaluate` gives it: accuracy on S_val or minus the loss, as
    ``small.meta["metric"]`` says. ``task`` and ``device`` are as in `evaluate`.
    """
    task, small = task_of(small, task).to(device), small.to(device)
    recipe = Recipe.from_dict(small.meta["calibrated_recipe"])
    parts = {"copy": task.val if small.val is None else small.val}
    space = from_spec(small.meta["space"])
    results = run_candidates(task, space, [config], small.train, parts, recipe, 0, "judge", device)
    return proxy_scores(results, recipe.metric, "copy")[0]
