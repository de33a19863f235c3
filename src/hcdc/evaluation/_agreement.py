"""Candidate scores, and how well two lists of scores agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcdc.core import ranks
from hcdc.core.errors import NumericalError
from hcdc.evaluation.trust import rank_estimate
from hcdc.training import Result

TOP_K = 10
LEVEL = 0.90
"""Level of the intervals."""


def agreement(truth: Sequence[float], test: Sequence[float], proxy: Sequence[float]) -> dict[str, Any]:
    """How well ``proxy`` agrees with full-data scores, as fields of a `Ranking`.

    Args:
        truth: Full-data validation scores ``[n]``, higher is better.
        test: Full-data test scores ``[n]``, or an empty list.
        proxy: The scores to judge ``[n]``.
    """
    a, b = np.asarray(truth), np.asarray(proxy)
    value = ranks.spearman(a, b)
    undefined = math.isnan(value)
    pick = None if undefined else int(np.argmax(b))
    return {
        "proxy": [float(v) for v in b],
        "spearman": value,
        "kendall": ranks.kendall(a, b),
        "calibration": math.nan if undefined else ranks.calibration(a, b),
        "interval": _interval(a, b),
        "level": LEVEL,
        "test_spearman": ranks.spearman(test, b) if len(test) else None,
        "test_interval": _interval(np.asarray(test), b) if len(test) else (None, None),
        "top_k_overlap": math.nan if undefined else ranks.top_k_overlap(a, b, TOP_K),
        "upper_half_spearman": ranks.upper_half_spearman(a, b),
        "regret": math.nan if undefined else ranks.regret(a, b),
        "selected_test_accuracy": math.nan if pick is None or not len(test) else float(test[pick]),
        "note": _undefined(a, b) if undefined else "",
    }


def _interval(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Interval of Spearman's correlation, as in `hcdc.trust`; NaN where the correlation is undefined."""
    if math.isnan(ranks.spearman(a, b)):
        return math.nan, math.nan
    return rank_estimate(a, b).interval(LEVEL)


def _undefined(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    """Why the rank agreement of two lists is undefined."""
    if not np.isfinite(a).all():
        return "some full-data scores are not finite, so there is no ranking to compare with"
    if (a == a[0]).all():
        return "all candidates have the same full-data score, so there is no ranking to compare with"
    if not np.isfinite(b).all():
        return "some scores are not finite, so there is no ranking"
    return "all scores are equal, so there is no ranking"


def proxy_scores(results: Sequence[Result], metric: str, part: str) -> list[float]:
    """Scores on ``part``, higher is better; diverged candidates rank just below the worst."""
    scores = [
        r.values[f"{part}.score"] if metric == "accuracy" else -r.values[f"{part}.loss"] for r in results
    ]
    bad = diverged(results, part)
    if len(bad) == len(results):
        raise NumericalError(
            "every candidate diverged (its loss is not finite); try a smaller learning rate ('lr') in the "
            "recipe or a limit on the gradient norm ('clip')"
        )
    last = math.nextafter(min(v for k, v in enumerate(scores) if k not in bad), -math.inf)
    return [last if k in bad else v for k, v in enumerate(scores)]


def diverged(results: Sequence[Result], part: str) -> set[int]:
    """Positions of candidates whose loss on ``part`` is not finite."""
    return {k for k, r in enumerate(results) if not math.isfinite(r.values[f"{part}.loss"])}
