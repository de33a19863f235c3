"""The model that S_val may follow, as a ranking of its own: a rival in protocol ``nas201``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hcdc.condensers import free_figures, modelled
from hcdc.core.configs import Config
from hcdc.core.progress import timed
from hcdc.core.results import Ranking
from hcdc.experiments._command import rounded
from hcdc.spaces import Space
from hcdc.tasks import Task

LABEL = "model"
COPIED = 80
"""Judging cells, beside the probes, from which the noise of losses on the copy is learned."""


class Model:
    """Ranks the judging cells by `hcdc.condensers.modelled`, with the loss and accuracy on S_train.

    Args:
        task: The task, on the device.
        space: The search space.
        judges: The judging cells.
        found: Their losses and accuracies on real validation images.
        probes: All probes.
        known: Their losses and accuracies.
        seed: Of training-free scores.
    """

    def __init__(
        self,
        task: Task,
        space: Space,
        judges: Sequence[Config],
        found: Ranking,
        probes: Sequence[Config],
        known: Ranking,
        seed: int,
    ):
        self.space, self.judges, self.count = space, list(judges), len(probes)
        self.places = {config["cell"]: k for k, config in enumerate(probes)}
        with timed() as spent:
            self.figures = free_figures(task, space, [*probes, *judges], seed)
        self.seconds = spent[0] / (len(probes) + len(judges))
        loss, accuracy = (
            np.concatenate([np.asarray(one.repeats[name], float).mean(1) for one in (known, found)])
            for name in ("loss", "score")
        )
        loss = np.where(np.isfinite(loss), loss, np.nanmax(np.where(np.isfinite(loss), loss, np.nan)))
        self.figures |= {"loss": -loss, "accuracy": accuracy}

    def record(self, learned: Mapping[str, Any], real: Mapping[str, Any]) -> dict[str, Any]:
        """The ranking given the probes of a learned copy's record; ``real`` is that of the real images."""
        cells, count = learned["probes"], len(self.judges)
        rows = [*(self.places[cell] for cell in cells), *range(self.count, self.count + count)]
        figures = {name: values[rows] for name, values in self.figures.items()}
        probes = [{"cell": cell} for cell in cells]
        scores = modelled(
            self.space, probes, learned["probe_scores"], self.judges, figures, len(cells) + COPIED
        )
        kept = ("probes", "probe_scores", "probe_tests", "draw", "train_method", "seed")
        seconds = real["judge_seconds"] + self.seconds * count
        told = {"label": LABEL, "loss": rounded((-scores).tolist()), "judge_seconds": seconds}
        return {**told, "condense_seconds": 0.0, **{name: learned[name] for name in kept}}
