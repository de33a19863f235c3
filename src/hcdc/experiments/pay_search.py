"""Protocol ``graphs-pay-picks`` on a real graph: random copies against full and shortened trainings.

    OMP_NUM_THREADS=1 python -m hcdc.experiments.pay_search --dataset coauthor_physics --seeds 0,1 --out FILE

Filters of the space of ``graphs-pay`` are tried on 5 % of the training nodes (split 60 / 20 / 20, one seed,
scored on the real validation nodes), and the best is trained in full. As many CPU seconds go to full
trainings, and to trainings of a tenth of the steps of which the best is trained in full. Picks are made by
validation accuracy and judged by test accuracy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcdc.core import records
from hcdc.core.configs import Config
from hcdc.core.recipe import Recipe
from hcdc.core.seeds import numpy_stream
from hcdc.datasets import Nodes, data
from hcdc.experiments._command import as_command, integers, protocol_parser, rounded
from hcdc.experiments.graph_pays import SHARE, SHORT, SPACES, STEPS, random_copy, split
from hcdc.experiments.pay_replay import PROTOCOL
from hcdc.tasks import GraphTask
from hcdc.training import Job, score

SPACE = SPACES["filters"]


class Trials:
    """Trainings of one search.

    Attributes:
        task: The task.
        seed: Determines initialisations.
    """

    def __init__(self, task: GraphTask, seed: int):
        self.task, self.seed = task, seed

    def run(
        self, configs: Sequence[Config], train: Nodes, steps: int, part: str = "val"
    ) -> tuple[NDArray[np.float64], float]:
        """Accuracies ``[n]`` and the CPU seconds of one training with its validation."""
        begun = time.process_time()
        job = Job(
            self.task, SPACE, configs, [train], Recipe(steps=steps), parts={part: self.task.part(part)},
            seed=self.seed, role="pays-search", keep_diverged=True,
        )  # fmt: skip
        found = np.array([result.values[f"{part}.score"] for result in score(job)[0]])
        return np.nan_to_num(found), (time.process_time() - begun) / len(configs)


def searched(task: GraphTask, trials: int, seed: int) -> dict[str, Any]:
    """Test accuracy of the pick of each way."""
    configs = SPACE.sample(trials, numpy_stream(seed, "pays-search"))
    run, least = Trials(task, seed), 5 * task.num_classes
    few = random_copy(task, max(least, round(SHARE * len(task.train))), seed)
    on_copy, copy_seconds = run.run(configs, few, STEPS)
    budget, tried = trials * copy_seconds, {"copy": on_copy}
    steps = round(SHORT * STEPS)
    first, short_seconds = run.run(configs[:8], task.train, steps)
    count = min(trials, max(9, int(budget / short_seconds)))
    tried[f"short:{SHORT}"] = np.concatenate([first, run.run(configs[8:count], task.train, steps)[0]])
    first, full_seconds = run.run(configs[:2], task.train, STEPS)
    count = min(trials, max(3, int(budget / full_seconds) + 1))  # and the winner's training
    tried["full"] = np.concatenate([first, run.run(configs[2:count], task.train, STEPS)[0]])
    picks = {name: configs[int(scores.argmax())] for name, scores in tried.items()}
    test, _ = run.run(list(picks.values()), task.train, STEPS, "test")
    ways = {
        name: {"test": t, "low": t, "high": t, "trials": len(tried[name])} for name, t in zip(picks, test)
    }
    each = {"copy": copy_seconds, "short": short_seconds, "full": full_seconds}
    scores = {name: values.tolist() for name, values in tried.items()}
    return {
        "trials": trials, "seconds": budget + full_seconds, "each": each, "ways": ways, "scores": scores
    }  # fmt: skip


def main() -> None:
    parser = protocol_parser(__doc__, "coauthor_physics")
    parser.add_argument("--trials", type=int, default=200)
    given = parser.parse_args()
    task = GraphTask(split(data(given.dataset), "60"))  # type: ignore[arg-type]
    told = {
        "protocol": PROTOCOL,
        "dataset": given.dataset,
        "split": "60",
        "space": "filters",
        "copy": "random",
    }
    for seed in integers("--seeds", given.seeds):
        found = rounded({**told, "seed": seed, **searched(task, given.trials, seed)})
        records.append(given.out, {**found, "environment": records.environment()})
        logging.getLogger("hcdc").info("seed %d: %s, %s", seed, found["each"], found["ways"])


if __name__ == "__main__":
    as_command(main)
