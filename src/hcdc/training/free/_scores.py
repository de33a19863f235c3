"""Training-free scores of many candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hcdc.core.configs import Config
from hcdc.core.seeds import stream
from hcdc.spaces import Space
from hcdc.tasks import Task
from hcdc.training.free._base import Untrained, free_names, free_score

EXAMPLES = 64
"""Examples in the minibatch, as in the published scores; more if there are more classes."""


def free_scores(
    task: Task, space: Space, configs: Sequence[Config], names: Sequence[str] | None = None, seed: int = 0
) -> dict[str, list[float]]:
    """Scores of untrained candidates by name, in the order of ``configs``; higher is better.

    All candidates see the same minibatch of training examples and start from the same random stream. They run
    on the task's device.

    Args:
        task: What is learned.
        space: The search space.
        configs: The candidates.
        names: Scores to compute, see `free_names`; None means all.
        seed: Determines the minibatch and the initialisations (role ``"free"``).
    """
    scores = [free_score(name) for name in (free_names() if names is None else names)]
    measured = [[score.measure(one) for score in scores] for one in untrained(task, space, configs, seed)]
    return {score.name: score.combine([parts[k] for parts in measured]) for k, score in enumerate(scores)}


def untrained(task: Task, space: Space, configs: Sequence[Config], seed: int = 0) -> Iterator[Untrained]:
    """The candidates one by one, at their initialisation, with the same minibatch."""
    size = min(max(EXAMPLES, task.least), task.most("train"))
    data = task.sample("train", size, seed)
    x = task.tensors(data)["x"]
    for config in configs:
        bound = task.bind(space, config)
        bound.prepare(data)
        params = {name: p.to(x.device) for name, p in bound.init(stream(seed, "free")).items()}
        yield Untrained(bound, params, space.encode(config).to(x), data, seed)
