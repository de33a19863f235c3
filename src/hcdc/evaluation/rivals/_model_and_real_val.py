"""A model of what is free and of the probes, plus the real validation loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from hcdc.condensers import expectations, free_figures
from hcdc.core import ranks
from hcdc.core.progress import timed
from hcdc.core.results import Rival
from hcdc.evaluation._agreement import proxy_scores
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import register_rival
from hcdc.evaluation.rivals._ridge_probes import FEWEST, RidgeProbes, probe_seconds


@register_rival
class ModelAndRealVal(RidgeProbes):
    """What `hcdc.core.posterior` expects from structure, training-free scores and the probes, and the loss of
    the same S_train on the whole real validation set: the sum of both, each standardised.

    It applies to architectures, whose space describes their structure.
    """

    name = "model-and-real-val"

    def applies(self, context: Context) -> bool:
        probes = (context.small.meta.get("probes") or {}).get("configs") or []
        return len(probes) >= FEWEST and bool(context.space.structure(probes[0]))

    def sets(self, context: Context) -> dict[str, Any]:
        return {"real": context.task.val}

    def run(self, context: Context) -> Rival:
        probes = context.small.meta["probes"]
        every = [*probes["configs"], *context.configs]
        with timed() as spent:
            task = context.task.to(context.device)
            figures = free_figures(task, context.space, every, context.seed)
            expected = expectations(
                context.space, probes["configs"], probes["score"], context.configs, figures
            )
        real = np.asarray(proxy_scores(context.copied, "loss", "real"))
        words = (
            f"Gaussian process on the {len(probes['configs'])} full trainings done for condensing around "
            "training-free scores and structure, and the loss of the same S_train on the whole real "
            "validation set, equal weights"
        )
        seconds = spent[0] + sum(r.seconds_for("real") for r in context.copied)
        once = probe_seconds(context) + context.made_seconds
        return context.rival(
            self.name, words, (ranks.standard(expected) + ranks.standard(real)).tolist(), seconds, once
        )
