"""The regression on the probes plus the real validation loss or accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hcdc.core import ranks
from hcdc.core.results import Rival
from hcdc.evaluation._agreement import proxy_scores
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import register_rival
from hcdc.evaluation.rivals._ridge_probes import RidgeProbes, predictions


@register_rival
class RidgeAndRealVal(RidgeProbes):
    """The sum of both, each standardised."""

    name = "ridge-and-real-val"
    metric = "loss"

    def sets(self, context: Context) -> dict[str, Any]:
        return {"real": context.task.val}

    def run(self, context: Context) -> Rival:
        predicted, seconds, once = predictions(context)
        real = np.asarray(proxy_scores(context.copied, self.metric, "real"))
        words = f"that ridge and the {self.metric} of the same S_train on the whole real validation set"
        words += ", equal weights"
        scores = (ranks.standard(predicted) + ranks.standard(real)).tolist()
        seconds += sum(r.seconds_for("real") for r in context.copied)
        return context.rival(self.name, words, scores, seconds, once + context.made_seconds)


@register_rival
class RidgeAndRealAccuracy(RidgeAndRealVal):
    """The same by accuracy, for copies that rank by accuracy."""

    name = "ridge-and-real-accuracy"
    metric = "accuracy"

    def applies(self, context: Context) -> bool:
        return super().applies(context) and context.calibrated.metric == "accuracy"
