"""The Gaussian process that S_val follows, by itself."""

from __future__ import annotations

import time

import numpy as np

from hcdc.core.landscape import fit_landscape
from hcdc.core.results import Rival
from hcdc.evaluation._context import Context
from hcdc.evaluation.rivals._base import RivalMethod, register_rival
from hcdc.evaluation.rivals._ridge_probes import probe_seconds


@register_rival
class LandscapeProbes(RivalMethod):
    """Losses and hypergradients of the full trainings done for condensing, without a copy."""

    name = "landscape-probes"

    def applies(self, context: Context) -> bool:
        return "gradient" in (context.small.meta.get("probes") or {})

    def run(self, context: Context) -> Rival:
        probes = context.small.meta["probes"]
        given = [np.asarray(probes[key], np.float64) for key in ("lam", "loss", "gradient", "score")]
        fresh = np.stack([context.space.encode(config).double().numpy() for config in context.configs])
        begun = time.perf_counter()
        expected, _ = fit_landscape(*given, even=context.space.even).predict(fresh)
        seconds, count = time.perf_counter() - begun, len(given[0])
        words = f"Gaussian process on the {count} full trainings done for condensing and their hypergradients"
        text, once = f"{words}, no copy at all", probe_seconds(context)
        return context.rival(self.name, text, (-expected).tolist(), seconds, once)
